//! What is told of each request: its span, its line in the log, and its part in the metrics.

use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use jobs::telemetry::{self, RemoteContext, metrics};
use tracing::Span;
use tracing::field::Empty;

/// Neither headers nor the query are logged: a credential belongs into the first and may end in the second. A client's trace
/// goes on here.
pub fn span(request: &Request) -> Span {
    let (method, route) = (method(request.method()), request.extensions().get::<MatchedPath>());
    // A path that is none of ours can be anything, a credential too.
    let path = route.is_some().then(|| request.uri().path());
    let route = route.map_or("unknown", MatchedPath::as_str);
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        trace_id = Empty,
        "http.request.method" = method,
        "http.route" = route,
        "url.path" = path,
        "http.response.status_code" = Empty,
    );
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    telemetry::note_trace(&span, &RemoteContext::new(header("traceparent"), header("tracestate")));
    span
}

/// Any token is a method, and none but these may make a label of its own.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}

/// Notes in a request's span and in the log how it was answered.
pub fn answered(response: &Response, took: Duration, span: &Span) {
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    tracing::debug!(status = status.as_u16(), millis = took.as_secs_f64() * 1000.0, "answered");
}

/// How long a request waited for a change because its client asked for that: an extension of the response.
#[derive(Debug, Clone, Copy)]
pub struct Waited(pub Duration);

/// Counts a request among the metrics. The route is known here, and no more to whoever looks at the response.
pub async fn measured(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = method(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
    // Who asked to wait was not kept waiting.
    let waited = response.extensions().get::<Waited>().map_or(Duration::ZERO, |waited| waited.0);
    metrics().answered(method, route, response.status().as_u16(), started.elapsed().saturating_sub(waited));
    response
}
