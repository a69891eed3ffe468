//! `GET /jobs/{id}/report` and `GET /jobs/{a}/compare/{b}`: what the reports of a job say, as pages; the comparison as JSON too.
//!
//! Both answer from the database alone, and go on doing so when the archives are gone.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use jobs::digest::Digest;
use jobs::digest::compare::Comparison;
use jobs::ids::JobId;
use jobs::page;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::retry::patiently;

/// Shows the report of all shapes of a job that have one by now.
pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = path.map_err(|_| ApiError::NoSuchJob)?;
    let digests = digests(&app, &caller, &id).await?;
    caller.must_not_be_refused(&app).await?;
    rendered(move || page::report(&digests)).await
}

/// Compares two jobs of one owner; JSON unless a page is asked for, by `Accept` or by `.html` behind the second id.
pub async fn compare(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((first, second)) = path.map_err(|_| ApiError::NoSuchJob)?;
    let (second, wants_page) = match second.rsplit_once('.') {
        Some((id, "html")) => (id, true),
        Some((id, "json")) => (id, false),
        _ => (second.as_str(), accepts_pages(&headers)),
    };
    let (first, second) = (digests(&app, &caller, &first).await?, digests(&app, &caller, second).await?);
    caller.must_not_be_refused(&app).await?;
    let found = Comparison::new(&first, &second).map_err(|why| ApiError::NotComparable(why.to_string()))?;
    if wants_page { rendered(move || page::comparison(&found)).await } else { Ok(Json(found).into_response()) }
}

/// What the reports of a job say. A job of somebody else's is none.
async fn digests(app: &App, caller: &Caller, id: &str) -> Result<Vec<Digest>, ApiError> {
    let id: JobId = id.parse().map_err(|_| ApiError::NoSuchJob)?;
    app.known.job(&app.queue, app.database_patience, id, caller.owner).await?.ok_or(ApiError::NoSuchJob)?;
    patiently(app.database_patience, || app.queue.digests(id, &caller.owner)).await
}

/// Whether a browser asks, which names pages before anything else that is served here.
fn accepts_pages(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let place =
        |kind: &str| accepted.split(',').position(|one| one.split(';').next().unwrap_or_default().trim() == kind);
    match (place("text/html"), place("application/json")) {
        (Some(page), Some(json)) => page < json,
        (page, _) => page.is_some(),
    }
}

/// A page, made where it keeps nobody else waiting: a large one takes milliseconds.
async fn rendered(render: impl FnOnce() -> String + Send + 'static) -> Result<Response, ApiError> {
    let rendered = tokio::task::spawn_blocking(render).await;
    let page = rendered.map_err(|panic| ApiError::Internal(format!("rendering a page: {panic}")))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::CONTENT_SECURITY_POLICY)),
    ];
    Ok((headers, page).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_gets_a_page_and_everybody_else_json() {
        let accepts = |value: &'static str| {
            accepts_pages(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]))
        };
        assert!(accepts("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(accepts("text/html; q=0.9, application/json;q=0.5"));
        assert!(!accepts("application/json, text/html;q=0.1"));
        assert!(!accepts("*/*") && !accepts("text/htmlx"));
        assert!(!accepts_pages(&HeaderMap::new()));
    }
}
