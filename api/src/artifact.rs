//! `GET /jobs/{id}/artifacts/{name}`: one archive, streamed.
//!
//! The name is only ever looked up among those that the worker recorded for the job; no path is made of it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use jobs::ids::JobId;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;

/// Sends an archive; `HEAD` sends its size.
pub async fn download(
    State(app): State<Arc<App>>,
    caller: Caller,
    method: Method,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((id, name)) = path.map_err(|_| ApiError::NoSuchArtifact)?;
    let id: JobId = id.parse().map_err(|_| ApiError::NoSuchArtifact)?;
    // Postgres takes no NUL in a text, and no archive has one in its name.
    if name.contains('\0') {
        return Err(ApiError::NoSuchArtifact);
    }
    let artifact = app.known.artifact(&app.queue, app.database_patience, id, caller.owner, &name);
    let artifact = artifact.await?.ok_or(ApiError::NoSuchArtifact)?;
    caller.must_not_be_refused(&app).await?;
    if artifact.expired_at.is_some() {
        return Err(ApiError::ArtifactExpired);
    }
    let stored = artifact.stored;

    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        Body::from_stream(app.store.get(&stored.path).await.map_err(ApiError::StoreAway)?)
    };
    // Names are plain, so this never fails; were one not, the client still knows the name from the job.
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""))
        .unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/zip")),
        (header::CONTENT_LENGTH, HeaderValue::from(stored.bytes)),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, body).into_response())
}
