//! `POST /profile`: everything is checked, then one job is queued.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use jobs::ids::{JobId, Owner};
use jobs::problems::{Problem, Shape};
use jobs::queue::{self, Admission, NewJob};
use jobs::telemetry::{RemoteContext, metrics};
use serde::Serialize;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::upload;

/// How long an upload waits for a place: a burst passes sooner.
const PLACE_PATIENCE: Duration = Duration::from_secs(5);
/// How long the database may take to say whether somebody is over a quota.
const QUOTA_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the database may take to queue a job. Trying again is the client's: a job must not be queued twice.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an accepted job is looked at once more, for the polls to come.
const REMEMBER_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer to an accepted submission.
#[derive(Debug, Serialize)]
pub struct Accepted {
    job_id: String,
    status: &'static str,
    queue_position: i64,
}

/// Queues a job.
pub async fn submit(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    caller.must_not_be_a_web_page(request.headers())?;
    caller.must_be_known(&app).await?;
    must_have_quota(&app, &caller.owner).await?;
    // Held until the job is queued: the source is in memory for as long. Who waits for a place takes no memory yet.
    let _place = app.uploads.take(caller.owner, PLACE_PATIENCE).await?;
    let submission = upload::read(request, app.upload_timeout).await?;
    let problem = app.problem(submission.leaderboard.clone()).await?;
    let benchmarks = chosen(&problem, &submission.leaderboard, submission.benchmark_index.as_deref())?;

    let job = NewJob {
        id: JobId::random(),
        owner: caller.owner,
        leaderboard: submission.leaderboard,
        problem_dir: problem.directory.clone(),
        file_name: submission.file_name,
        source: submission.source,
        benchmarks,
        options: submission.options,
        trace_parent: RemoteContext::of(&tracing::Span::current()).parent().map(str::to_owned),
    };
    let admission = async {
        // The semaphore is never closed; if it were, queueing without a turn is no harm.
        let _turn = app.queueing.acquire().await.ok();
        app.queue.submit_within(&job, &app.quotas).await
    };
    let admission = tokio::time::timeout(SUBMIT_TIMEOUT, admission)
        .await
        .map_err(|_| ApiError::DatabaseSilent)?
        .map_err(ApiError::DatabaseAway)?;
    let queue_position = match admission {
        Admission::Queued(position) => position,
        Admission::Refused(over) => return Err(ApiError::over_quota(over, &app.quotas)),
    };
    metrics().submitted(&job.leaderboard);
    tracing::info!(
        job = %job.id,
        owner = ?job.owner,
        leaderboard = job.leaderboard,
        shapes = job.benchmarks.len(),
        source_bytes = job.source.len(),
        queue_position,
        "job queued"
    );
    // The first poll may meet an outage already.
    let _ = app.known.job(&app.queue, REMEMBER_TIMEOUT, job.id, job.owner).await;
    let status = queue::State::Queued.as_str();
    Ok((StatusCode::ACCEPTED, Json(Accepted { job_id: job.id.to_string(), status, queue_position })))
}

/// Refuses who is over a quota before the upload, as far as the database says so soon: the source need not be sent. What
/// counts is asked again when the job is queued.
async fn must_have_quota(app: &App, owner: &Owner) -> Result<(), ApiError> {
    match tokio::time::timeout(QUOTA_TIMEOUT, app.queue.over_quota(owner, 0, &app.quotas)).await {
        Ok(Ok(Some(over))) => Err(ApiError::over_quota(over, &app.quotas)),
        _ => Ok(()),
    }
}

/// The shapes to profile: the one asked for, or all.
fn chosen(problem: &Problem, leaderboard: &str, index: Option<&str>) -> Result<Vec<(u32, Shape)>, ApiError> {
    let all = || (0..).zip(problem.benchmarks.iter().cloned());
    let Some(last) = problem.benchmarks.len().checked_sub(1) else {
        return Err(ApiError::Unusable(format!("Leaderboard {leaderboard:?} has no benchmark shapes to profile.")));
    };
    let Some(written) = index else { return Ok(all().collect()) };

    let digits = written.strip_prefix('-').unwrap_or(written);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ApiError::Unusable(format!(
            "benchmark_index must be a whole number: leaderboard {leaderboard:?} has benchmarks 0 to {last}."
        )));
    }
    // A number too large for any integer is out of range like any other.
    let wanted: Option<u32> = written.parse().ok();
    all().find(|&(index, _)| Some(index) == wanted).map(|one| vec![one]).ok_or_else(|| {
        let shown = written.get(..20).map_or_else(|| written.to_owned(), |start| format!("{start}…"));
        ApiError::Unusable(format!(
            "benchmark_index {shown} is out of range: leaderboard {leaderboard:?} has benchmarks 0 to {last}."
        ))
    })
}
