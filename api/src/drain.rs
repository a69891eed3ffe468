//! Reads the rest of a body before a refusal is sent.
//!
//! A client that is still sending when the connection closes sees a broken pipe and never reads why it was refused.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

/// How much of a refused body is read and thrown away, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// For how long.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Middleware: when the answer is no success, what the handler left of the body is read first.
pub async fn before_refusing(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    // Such a client sends nothing before it is told to, and must not be told to now.
    let waits = parts.headers.contains_key(header::EXPECT);
    let rest = Shared(Arc::new(Mutex::new(body.into_data_stream())));
    let response = next.run(Request::from_parts(parts, Body::from_stream(rest.clone()))).await;
    // Nor is a client read on that was too slow already.
    let slow = response.status() == StatusCode::REQUEST_TIMEOUT;
    if !response.status().is_success() && !waits && !slow {
        // Whether it ended, failed or was cut off, the answer goes out now.
        let _ = tokio::time::timeout(TIME_LIMIT, drain(rest)).await;
    }
    response
}

async fn drain(mut rest: Shared) {
    let mut bytes = 0;
    while let Some(Ok(chunk)) = rest.next().await {
        bytes += chunk.len();
        if bytes > MAX_BYTES {
            return;
        }
    }
}

/// A body that two can read, one after the other.
#[derive(Clone)]
struct Shared(Arc<Mutex<BodyDataStream>>);

impl Stream for Shared {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).poll_next_unpin(context)
    }
}
