//! What holds for every form of `POST /profile`. The fuzz target in `jobs/fuzz/` and the test below play inputs against it; it is in
//! no program. See `docs/fuzzing-parsers.md`.

#![allow(
    clippy::expect_used,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "what stops here is a finding"
)]

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures_util::stream;

use crate::error::MAX_FILE_BYTES;
use crate::upload;

/// The first byte is the size of the body's chunks, and a first line may name another content type than the usual one.
///
/// # Panics
///
/// Where the input is a finding.
pub fn upload(input: &[u8]) {
    let (&size, rest) = input.split_first().unwrap_or((&0, &[]));
    let (kind, body) = match rest.strip_prefix(b"type:").and_then(|rest| rest.split_once_newline()) {
        Some((kind, body)) => (kind, body),
        None => (&b"multipart/form-data; boundary=b"[..], rest),
    };
    let Ok(request) = Request::post("/profile").header(CONTENT_TYPE, kind).body(()) else { return };
    let chunks: Vec<Result<Bytes, std::convert::Infallible>> =
        body.chunks(usize::from(size) + 1).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    let request = request.map(|()| Body::from_stream(stream::iter(chunks)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    match runtime.block_on(upload::read(request, Duration::from_mins(1))) {
        Ok(submission) => {
            let name = &submission.file_name;
            assert!(name.ends_with(".py") && name.len() > 3 && name.len() <= 255, "{name:?}");
            assert!(!name.contains(|c: char| matches!(c, '/' | '\\') || c.is_control()), "{name:?}");
            assert!(!submission.source.is_empty() && submission.source.len() <= MAX_FILE_BYTES);
            assert!(!submission.source.contains('\0'));
            let leaderboard = &submission.leaderboard;
            assert!(!leaderboard.trim().is_empty() && !leaderboard.contains(char::is_control), "{leaderboard:?}");
        }
        Err(error) => {
            let answer = error.into_response();
            assert!(answer.status().is_client_error(), "{}", answer.status());
        }
    }
}

trait SplitLine {
    fn split_once_newline(&self) -> Option<(&[u8], &[u8])>;
}

impl SplitLine for [u8] {
    fn split_once_newline(&self) -> Option<(&[u8], &[u8])> {
        let at = self.iter().position(|&byte| byte == b'\n')?;
        Some((&self[..at], &self[at + 1..]))
    }
}

#[cfg(test)]
#[path = "../../jobs/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn no_form_upsets_its_reader() {
        super::replay::replay("upload", super::upload);
    }
}
