//! `/metrics` for Prometheus, on an address of its own: it is for operators, not for the public.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder as _, Registry, TextEncoder};
use tokio::net::TcpListener;

/// Answers until the process ends.
pub async fn serve(listener: TcpListener, registry: Registry) {
    let router = Router::new().route("/metrics", get(async move || show(&registry)));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "/metrics is not served any more");
    }
}

fn show(registry: &Registry) -> Response {
    let (encoder, mut text) = (TextEncoder::new(), Vec::new());
    match encoder.encode(&registry.gather(), &mut text) {
        Ok(()) => ([(header::CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be shown");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
