//! The style sheet and the script of the page. Their paths change with their content, so a browser may keep them for good.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

/// One of the two.
pub struct Asset {
    /// Where it is served.
    pub path: String,
    kind: &'static str,
    content: &'static str,
}

pub static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("css", "text/css; charset=utf-8", include_str!("page.css")));
pub static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("js", "text/javascript; charset=utf-8", include_str!("page.js")));

impl Asset {
    fn new(extension: &str, kind: &'static str, content: &'static str) -> Self {
        // It keeps releases apart and guards nothing.
        let mut hash = DefaultHasher::new();
        content.hash(&mut hash);
        Self { path: format!("/assets/page-{:016x}.{extension}", hash.finish()), kind, content }
    }
}

/// Hands one out.
pub async fn show(path: Result<Path<String>, PathRejection>) -> Result<Response, ApiError> {
    let Path(file) = path.map_err(|_| ApiError::NoSuchPath)?;
    let is_it = |asset: &&LazyLock<Asset>| asset.path.strip_prefix("/assets/") == Some(&file);
    let asset = [&STYLE, &SCRIPT].into_iter().find(is_it).ok_or(ApiError::NoSuchPath)?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
    ];
    Ok((headers, asset.content).into_response())
}
