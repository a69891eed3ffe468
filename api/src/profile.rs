//! `POST /profile`: everything is checked, then one job is queued.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use jobs::ids::{JobId, Owner};
use jobs::problems::{Problem, Shape};
use jobs::queue::{Admission, NewJob, Reuse, State as JobState};
use jobs::telemetry::{RemoteContext, metrics};
use serde::{Deserialize, Serialize};

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
    queue_position: Option<i64>,
    /// Whether a stored result has answered for it.
    cached: bool,
    /// A job of the same user whose result would have.
    same_as: Option<String>,
}

/// What else a submission may say, for clients that send no such field.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wish {
    fresh: Option<String>,
}

/// Queues a job.
pub async fn submit(
    State(app): State<Arc<App>>,
    caller: Caller,
    wish: Result<Query<Wish>, QueryRejection>,
    request: Request,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    caller.must_not_be_a_web_page(request.headers())?;
    caller.must_be_known(&app).await?;
    must_have_quota(&app, &caller.owner).await?;
    // Held until the job is queued: the source is in memory for as long. Who waits for a place takes no memory yet.
    let _place = app.uploads.take(caller.owner, PLACE_PATIENCE).await.map_err(ApiError::too_many_uploads)?;
    let wish = wish.map(|Query(wish)| wish).unwrap_or_default();
    let submission = upload::read(request, app.upload_timeout).await?;
    let problem = app.problem(submission.leaderboard.clone()).await?;
    let benchmarks = chosen(&problem, &submission.leaderboard, submission.benchmark_index.as_deref())?;

    let wish = wish.fresh.as_deref().map(upload::switch).transpose()?;
    // Who says nothing gets a new measurement: a client that knows of no stored results submits again to measure again.
    let fresh = submission.fresh.or(wish);
    let reuse = match fresh {
        Some(true) => None,
        _ => app.problem_version(Arc::clone(&problem)).await.map(|problem_version| Reuse {
            problem_version,
            is_taken: fresh == Some(false),
            is_shared: app.share_results,
        }),
    };

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
        app.queue.submit_within(&job, &app.quotas, reuse.as_ref()).await
    };
    let admission = tokio::time::timeout(SUBMIT_TIMEOUT, admission)
        .await
        .map_err(|_| ApiError::DatabaseSilent)?
        .map_err(ApiError::DatabaseAway)?;
    let (queue_position, stored) = match admission {
        Admission::Queued { position, stored } => (position, stored),
        Admission::Cached => {
            tracing::info!(job = %job.id, owner = ?job.owner, leaderboard = job.leaderboard, "a stored result answers for a job");
            let _ = app.known.job(&app.queue, REMEMBER_TIMEOUT, job.id, job.owner).await;
            return Ok((
                StatusCode::OK,
                Json(Accepted {
                    job_id: job.id.to_string(),
                    status: JobState::Succeeded.as_str(),
                    queue_position: None,
                    cached: true,
                    same_as: None,
                }),
            ));
        }
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
    Ok((
        StatusCode::ACCEPTED,
        Json(Accepted {
            job_id: job.id.to_string(),
            status: JobState::Queued.as_str(),
            queue_position: Some(queue_position),
            cached: false,
            // Another user's job is nothing that this one could ask for.
            same_as: stored.filter(|stored| stored.is_own).map(|stored| stored.job.to_string()),
        }),
    ))
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
