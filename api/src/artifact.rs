//! `GET /jobs/{id}/artifacts/{name}`: one archive, streamed, whole or in part; and one file of it.
//!
//! A name is only ever looked up: the archive's among those that the worker recorded for the job, the file's in the table of the
//! zip. No path is made of either.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use jobs::ids::JobId;
use jobs::queue::StoredArtifact;

use crate::app::App;
use crate::auth::Caller;
use crate::conditions::{self, Part};
use crate::error::ApiError;

/// How long the reading of a file of an archive waits for its turn.
const ENTRY_PATIENCE: Duration = Duration::from_secs(5);
/// Endings of files that hold text. All else is no more than bytes to a browser.
const TEXT: [&str; 7] = [".csv", ".html", ".json", ".log", ".md", ".txt", ".svg"];

/// Sends an archive, or the part of it that is asked for; `HEAD` sends its size.
pub async fn download(
    State(app): State<Arc<App>>,
    caller: Caller,
    method: Method,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((id, name)) = path.map_err(|_| ApiError::NoSuchArtifact)?;
    let stored = stored(&app, &caller, &id, &name).await?;
    let tag = conditions::tag(&hex::encode(stored.sha256));
    if conditions::is_known(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    // A range is a matter of GET alone.
    let part = if method == Method::GET { conditions::part(&headers, &tag, stored.bytes) } else { Part::Whole };
    let (status, range) = match part {
        Part::Unsatisfiable => return Err(ApiError::NoSuchRange { bytes: stored.bytes }),
        Part::Whole => (StatusCode::OK, 0..stored.bytes),
        Part::Range { first, last } => (StatusCode::PARTIAL_CONTENT, first..last + 1),
    };
    let length = range.end - range.start;
    let body = if method == Method::HEAD {
        Body::empty()
    } else if part == Part::Whole {
        Body::from_stream(app.store.get(&stored.path).await.map_err(ApiError::StoreAway)?)
    } else {
        Body::from_stream(app.store.get_range(&stored.path, range).await.map_err(ApiError::StoreAway)?)
    };
    let fields = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/zip")),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
        (header::CONTENT_DISPOSITION, attachment(&name)),
        (header::ETAG, tag),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
    ];
    let mut response = (status, fields, body).into_response();
    response.headers_mut().extend(conditions::content_range(part, stored.bytes));
    Ok(response)
}

/// Sends one file of an archive, unpacked; `HEAD` sends its size.
pub async fn entry(
    State(app): State<Arc<App>>,
    caller: Caller,
    method: Method,
    headers: HeaderMap,
    path: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((id, name, entry)) = path.map_err(|_| ApiError::NoSuchArtifact)?;
    let stored = stored(&app, &caller, &id, &name).await?;
    // An entry of an archive never changes; the names of two may differ in a case or an encoding, so their digest is the tag.
    let tag = conditions::tag(&format!("{}-{}", hex::encode(&stored.sha256[..16]), hex::encode(&entry)));
    let place = app.entries.take(caller.owner, ENTRY_PATIENCE).await.map_err(|_| ApiError::TooManyReads)?;
    let found = app.store.entry(&stored.path, stored.bytes, &entry).await.map_err(ApiError::StoreAway)?;
    let found = found.ok_or(ApiError::NoSuchEntry)?;
    if conditions::is_known(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let bytes = found.bytes;
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        // The place is held until the last byte is sent, or nobody takes it any more.
        Body::from_stream(found.into_stream().map(move |chunk| {
            let _held = &place;
            chunk
        }))
    };
    let mut response = body.into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    fields.insert(header::ETAG, tag);
    if TEXT.iter().any(|ending| entry.ends_with(ending)) {
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    } else {
        let file_name = entry.rsplit('/').next().unwrap_or_default();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        fields.insert(header::CONTENT_DISPOSITION, attachment(file_name));
    }
    Ok(response)
}

/// The archive of that name, for whom it belongs to.
async fn stored(app: &App, caller: &Caller, id: &str, name: &str) -> Result<StoredArtifact, ApiError> {
    let id: JobId = id.parse().map_err(|_| ApiError::NoSuchArtifact)?;
    // Postgres takes no NUL in a text, and no archive has one in its name.
    if name.contains('\0') {
        return Err(ApiError::NoSuchArtifact);
    }
    let artifact = app.known.artifact(&app.queue, app.database_patience, id, caller.owner, name);
    let artifact = artifact.await?.ok_or(ApiError::NoSuchArtifact)?;
    caller.must_not_be_refused(app).await?;
    if artifact.expired_at.is_some() {
        return Err(ApiError::ArtifactExpired);
    }
    Ok(artifact.stored)
}

/// Names are plain, so this never fails; were one not, the client still knows the name from the job.
fn attachment(name: &str) -> HeaderValue {
    let is_plain = name.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    let named = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")).ok().filter(|_| is_plain);
    named.unwrap_or(HeaderValue::from_static("attachment"))
}
