//! `GET /jobs`: the caller's own jobs, for whoever has lost an id.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use chrono::{DateTime, Utc};
use jobs::ids::JobId;
use jobs::queue::{self, ErrorKind, ListFilter, ListedJob};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::job::timestamp;
use crate::retry::patiently;

/// Jobs on a page, unless the caller wants less or more.
const USUAL_LIMIT: i64 = 20;
const MAX_LIMIT: i64 = 100;

/// Which jobs are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Which {
    status: Option<String>,
    leaderboard: Option<String>,
    since: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

/// A page, the newest job first.
#[derive(Debug, Serialize)]
pub struct Page {
    jobs: Vec<Item>,
    /// What to ask with for the next page; null on the last one.
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize)]
struct Item {
    id: String,
    url: String,
    status: &'static str,
    error: Option<String>,
    error_kind: Option<String>,
    cancelled: bool,
    leaderboard: String,
    file_name: String,
    /// SHA-256 of the submitted file, in hexadecimal: which of one's files it was.
    file_sha256: String,
    created_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    shapes: i64,
    shapes_ended: i64,
    /// Archives that can be downloaded; the job names them.
    archives: i64,
}

/// Lists the caller's jobs.
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Page>, ApiError> {
    let unusable = |what: &str| ApiError::Unusable(what.to_owned());
    let Query(which) =
        which.map_err(|_| unusable("The query cannot be read: each of its fields is given once, as text."))?;
    let limit = match which.limit {
        None => USUAL_LIMIT,
        Some(limit) => limit
            .parse()
            .ok()
            .filter(|limit| (1..=MAX_LIMIT).contains(limit))
            .ok_or_else(|| ApiError::Unusable(format!("limit must be a number from 1 to {MAX_LIMIT}.")))?,
    };
    let state = |word: String| {
        queue::State::try_from(word)
            .map_err(|_| unusable("status must be one of queued, running, succeeded, failed, timed_out."))
    };
    let time = |text: String| {
        // In a query a plus is a space, unless it is encoded.
        let at = DateTime::parse_from_rfc3339(&text.replace(' ', "+"));
        at.map(|at| at.with_timezone(&Utc))
            .map_err(|_| unusable("since must be a time like 2026-11-30T20:00:00+00:00."))
    };
    let unknown = || unusable("The cursor is of no job of yours: ask without one for the newest jobs.");
    let filter = ListFilter {
        state: which.status.map(state).transpose()?,
        // Postgres takes no NUL, and no job is of such a leaderboard.
        leaderboard: which.leaderboard.map(|name| name.replace('\0', "\u{fffd}")),
        since: which.since.map(time).transpose()?,
        before: which.cursor.map(|cursor| cursor.parse::<JobId>().map_err(|_| unknown())).transpose()?,
    };
    // One more tells whether there is another page.
    let asked = patiently(app.database_patience, || app.queue.list(&caller.owner, &filter, limit + 1));
    let mut found = asked.await?.ok_or_else(unknown)?;
    caller.must_not_be_refused(&app).await?;
    let on_page = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = found.len() > on_page;
    found.truncate(on_page);
    let next_cursor = found.last().filter(|_| has_more).map(|job| job.id.to_string());
    Ok(Json(Page { jobs: found.into_iter().map(Item::from).collect(), next_cursor }))
}

impl From<ListedJob> for Item {
    fn from(job: ListedJob) -> Self {
        let id = job.id.to_string();
        Self {
            url: format!("/jobs/{id}"),
            id,
            status: job.state.as_str(),
            error: job.error,
            cancelled: job.error_kind.as_deref() == Some(ErrorKind::Cancelled.as_str()),
            error_kind: job.error_kind,
            leaderboard: job.leaderboard,
            file_name: job.file_name,
            file_sha256: hex::encode(job.source_sha256),
            created_at: timestamp(job.created_at),
            started_at: job.started_at.map(timestamp),
            ended_at: job.ended_at.map(timestamp),
            shapes: job.shapes,
            shapes_ended: job.shapes_ended,
            archives: job.archives,
        }
    }
}
