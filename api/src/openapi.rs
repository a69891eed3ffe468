//! The description of this API, for whoever writes a client.

use axum::http::header;
use axum::response::IntoResponse;

/// What the tests hold every answer against.
const DESCRIPTION: &str = include_str!("../../docs/openapi.yaml");

/// Hands out the description.
pub async fn show() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/yaml")], DESCRIPTION)
}
