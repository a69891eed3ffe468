//! `DELETE /jobs/{id}`: ends a job. One that waits ends at once; one that runs is killed by its worker, which hears of it at once.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jobs::ids::JobId;
use jobs::queue::{Cancelled, State as JobState};
use tokio::time::timeout;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::job::Body;

/// How long the database may take. A cancellation that may have gone through can be ordered again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Cancels a job of the caller's. 200 when it has ended, 202 while its worker ends it.
pub async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<(StatusCode, Json<Body>), ApiError> {
    let Path(id) = path.map_err(|_| ApiError::NoSuchJob)?;
    let id: JobId = id.parse().map_err(|_| ApiError::NoSuchJob)?;
    caller.must_not_be_refused(&app).await?;
    let ordered = timeout(TIMEOUT, app.queue.cancel_own(id, &caller.owner)).await;
    let cancelled = ordered.map_err(|_| ApiError::DatabaseSilent)?.map_err(ApiError::DatabaseAway)?;
    let cancelled = cancelled.ok_or(ApiError::NoSuchJob)?;
    let seen = app.known.job(&app.queue, app.database_patience, id, caller.owner).await?.ok_or(ApiError::NoSuchJob)?;
    let body = Body::of(&seen, app.forecasts.of(id).await);
    match cancelled {
        // To order twice what has been done is no error.
        Cancelled::TooLate(JobState::Failed) if body.is_cancelled() => Ok((StatusCode::OK, Json(body))),
        Cancelled::TooLate(state) => Err(ApiError::JobHasEnded { state }),
        Cancelled::Ended => {
            tracing::info!(job = %id, "a waiting job was cancelled by its owner");
            Ok((StatusCode::OK, Json(body)))
        }
        Cancelled::Requested => {
            tracing::info!(job = %id, "a running job is to be cancelled for its owner");
            Ok((StatusCode::ACCEPTED, Json(body)))
        }
    }
}
