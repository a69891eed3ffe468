//! Reads the form of `POST /profile` as a stream, and refuses what cannot be a submission.

use std::time::Duration;

use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{StatusCode, header};
use jobs::capture::options::{REQUEST_FIELDS, RequestOptions};

use crate::error::{ApiError, MAX_FILE_BYTES};

/// Longest body of which a part is looked at, in bytes: the largest file with room for the other fields.
pub const MAX_FORM_BYTES: usize = MAX_FILE_BYTES + (256 << 10);
/// Longest text field, in bytes: a kernel name of 1,024 characters of 4 bytes, doubled.
const MAX_FIELD_BYTES: usize = 8 << 10;
/// Most parts in a form: a client sends three and its options, and a newer one may send more.
const MAX_PARTS: usize = 32;
/// Longest file name or leaderboard, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A form that was read whole; whether its leaderboard and index exist is for others to say.
#[derive(Debug)]
pub struct Submission {
    /// The submitted file's base name; it ends in `.py`.
    pub file_name: String,
    /// The submitted source: not empty, without NUL.
    pub source: String,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// The one benchmark asked for, as the client wrote it.
    pub benchmark_index: Option<String>,
    /// The capture options.
    pub options: RequestOptions,
    /// Whether the client wants a new measurement, or takes a stored one; it may say neither.
    pub fresh: Option<bool>,
}

/// Reads a submission within a time limit.
pub async fn read(request: Request, time_limit: Duration) -> Result<Submission, ApiError> {
    let is_form = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("multipart/form-data"));
    if !is_form {
        return Err(ApiError::NotAForm);
    }
    let form = Multipart::from_request(request, &()).await.map_err(|_| ApiError::MalformedForm)?;
    tokio::time::timeout(time_limit, read_form(form))
        .await
        .map_err(|_| ApiError::UploadTooSlow { limit_secs: time_limit.as_secs() })?
}

async fn read_form(mut form: Multipart) -> Result<Submission, ApiError> {
    let mut seen: Vec<String> = Vec::new();
    let mut file = None;
    let mut leaderboard = None;
    let mut benchmark_index = None;
    let mut options = RequestOptions::default();
    let mut fresh = None;

    while let Some(field) = form.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or_default().to_owned();
        if name.is_empty() || name.len() > MAX_NAME_BYTES || has_control(&name) {
            return Err(unusable("A part of the form has no usable name."));
        }
        if seen.len() == MAX_PARTS {
            return Err(unusable(format!("The form has more than {MAX_PARTS} parts.")));
        }
        if seen.contains(&name) {
            return Err(unusable(match name.as_str() {
                "file" => "Two files were sent: submit exactly one.".to_owned(),
                _ => format!("The form field {name:?} was sent twice: send it once."),
            }));
        }
        match name.as_str() {
            "file" => file = Some((file_name(&field)?, source(field).await?)),
            _ if field.file_name().is_some() => {
                return Err(unusable(
                    "The submission is expected in the form field \"file\", and no other file is taken.",
                ));
            }
            "leaderboard" => leaderboard = Some(self::leaderboard(&text(field, &name).await?)?),
            "fresh" => fresh = Some(switch(&text(field, &name).await?)?),
            "benchmark_index" => benchmark_index = Some(text(field, &name).await?),
            known if REQUEST_FIELDS.contains(&known) => {
                options.set(known, &text(field, known).await?).map_err(ApiError::Unusable)?;
            }
            // A misspelt option would be a capture of something else than what was asked for.
            unknown if unknown.starts_with("ncu_") => {
                let known = REQUEST_FIELDS.join(", ");
                return Err(unusable(format!("The option {unknown:?} is not known: the options are {known}.")));
            }
            // Newer clients may say more than this service understands.
            other => drop(text(field, other).await?),
        }
        seen.push(name);
    }

    let (file_name, source) = file.ok_or_else(|| unusable("No file was sent: the form field \"file\" is missing."))?;
    let leaderboard = leaderboard.ok_or_else(|| unusable("No leaderboard was named: give one with --leaderboard."))?;
    Ok(Submission { file_name, source, leaderboard, benchmark_index, options, fresh })
}

/// The base name of a file, as a container and an archive can carry it.
fn file_name(field: &Field<'_>) -> Result<String, ApiError> {
    let sent = field.file_name().unwrap_or_default();
    let base = sent.rsplit(['/', '\\']).next().unwrap_or_default();
    if has_control(sent) {
        return Err(unusable("The file's name holds control characters: rename it."));
    }
    if base.len() > MAX_NAME_BYTES {
        return Err(unusable(format!("The file's name is longer than {MAX_NAME_BYTES} bytes: rename it.")));
    }
    match base.strip_suffix(".py") {
        Some(stem) if !stem.is_empty() => Ok(base.to_owned()),
        _ => Err(unusable("Only Python submissions can be profiled: the file's name must end in .py.")),
    }
}

async fn source(field: Field<'_>) -> Result<String, ApiError> {
    let bytes = capped(field, MAX_FILE_BYTES).await?.ok_or(ApiError::TooLarge)?;
    if bytes.is_empty() {
        return Err(unusable("The submitted file is empty."));
    }
    let source = String::from_utf8(bytes).map_err(|_| unusable("The submitted file is not UTF-8 text."))?;
    if source.contains('\0') {
        return Err(unusable("The submitted file holds a NUL character, which Python does not accept."));
    }
    Ok(source)
}

/// What `fresh` says, in the form or in the query.
pub fn switch(value: &str) -> Result<bool, ApiError> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(unusable("fresh must be 1 for a new measurement, or 0 for a stored one where there is one.")),
    }
}

fn leaderboard(name: &str) -> Result<String, ApiError> {
    if name.trim().is_empty() {
        return Err(unusable("No leaderboard was named: give one with --leaderboard."));
    }
    if name.len() > MAX_NAME_BYTES || has_control(name) {
        return Err(unusable(format!(
            "The leaderboard's name is longer than {MAX_NAME_BYTES} bytes or holds control characters."
        )));
    }
    Ok(name.to_owned())
}

/// A small text field.
async fn text(field: Field<'_>, name: &str) -> Result<String, ApiError> {
    let bytes = capped(field, MAX_FIELD_BYTES)
        .await?
        .ok_or_else(|| unusable(format!("The form field {name:?} is longer than {MAX_FIELD_BYTES} bytes.")))?;
    String::from_utf8(bytes).map_err(|_| unusable(format!("The form field {name:?} is not UTF-8 text.")))
}

/// A field's bytes, or `None` when there are more than `max_bytes`.
async fn capped(mut field: Field<'_>, max_bytes: usize) -> Result<Option<Vec<u8>>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = field.chunk().await.map_err(broken)? {
        if bytes.len() + chunk.len() > max_bytes {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn broken(error: MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge,
        _ => ApiError::MalformedForm,
    }
}

fn unusable(sentence: impl Into<String>) -> ApiError {
    ApiError::Unusable(sentence.into())
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}
