//! `GET /jobs/{id}`: how a job is doing, in the words that clients' tools parse.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use jobs::capture::options::RequestOptions;
use jobs::forecast::Standing;
use jobs::ids::JobId;
use jobs::problems::Shape;
use jobs::queue::{self, AttemptView, ErrorKind, JobView, KernelTime, Overview, RunView};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::forecasts::Times;
use crate::known::Seen;
use crate::observe::Waited;

/// Longest wait for a change; more is taken for this much.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Whether and for what a poll waits.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// Seconds.
    wait: Option<String>,
    /// The version that the client knows.
    after: Option<String>,
}

/// Answers a poll: at once, or when there is a change and at the latest after the wait that is asked for.
pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
    waiting: Result<Query<Waiting>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = path.map_err(|_| ApiError::NoSuchJob)?;
    let id: JobId = id.parse().map_err(|_| ApiError::NoSuchJob)?;
    let unusable = || {
        ApiError::Unusable("wait must be a number of seconds, and after the version of a body of this job.".to_owned())
    };
    let Query(waiting) = waiting.map_err(|_| unusable())?;
    let wait = waiting.wait.map(|secs| secs.parse::<u64>()).transpose().map_err(|_| unusable())?;
    let after = waiting.after.map(|version| version.parse::<i64>()).transpose().map_err(|_| unusable())?;

    let mut seen =
        app.known.job(&app.queue, app.database_patience, id, caller.owner).await?.ok_or(ApiError::NoSuchJob)?;
    caller.must_not_be_refused(&app).await?;
    let began = Instant::now();
    if let Some(secs) = wait.filter(|&secs| secs > 0) {
        let after = after.unwrap_or(seen.job.version);
        seen = changed(&app, &caller, seen, after, began + Duration::from_secs(secs).min(MAX_WAIT)).await?;
    }
    let waited = Waited(began.elapsed());
    let standing = if seen.job.ended_at.is_none() { app.forecasts.of(id).await } else { None };
    let mut response = Json(Body::of(&seen, standing)).into_response();
    response.extensions_mut().insert(waited);
    Ok(response)
}

/// Waits until the job has changed since that version, has ended, or the time is over. Where too many wait already, nobody is
/// kept: a poll must not fail.
async fn changed(app: &App, caller: &Caller, seen: Seen, after: i64, until: Instant) -> Result<Seen, ApiError> {
    let is_news = |seen: &Seen| seen.job.ended_at.is_some() || seen.job.version > after;
    let id = seen.job.id;
    if is_news(&seen) {
        return Ok(seen);
    }
    let Ok(_place) = app.waiters.take(caller.owner, Duration::ZERO).await else { return Ok(seen) };
    let mut changes = app.changes.watch(id);
    loop {
        // Watched before it is read, so that nothing falls in between.
        let states = changes.borrow_and_update().states;
        let seen =
            app.known.job(&app.queue, app.database_patience, id, caller.owner).await?.ok_or(ApiError::NoSuchJob)?;
        if is_news(&seen) {
            return Ok(seen);
        }
        let next = async {
            tokio::select! {
                _ = changes.wait_for(|change| change.states != states) => true,
                () = app.changes.closed() => false,
            }
        };
        if !timeout_at(until, next).await.unwrap_or(false) {
            return Ok(seen);
        }
    }
}

/// A job on the wire. The fields up to `artifacts` are parsed by tools that exist; the others are ours.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field on the wire")]
pub struct Body {
    id: String,
    status: &'static str,
    queue_position: Option<i64>,
    error: Option<String>,
    leaderboard: String,
    problem_dir: String,
    created_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    requested_benchmarks: Vec<RequestedBenchmark>,
    runs: Vec<Run>,
    artifacts: Vec<Artifact>,

    error_kind: Option<String>,
    attempt: i32,
    options: RequestOptions,
    simulated: bool,
    /// Whether a stored result answered for it, and when that was measured.
    cached: bool,
    measured_at: Option<String>,
    /// Whether it ended because somebody cancelled it.
    cancelled: bool,
    /// Whether somebody wants it to end.
    cancel_requested: bool,
    /// Grows with each change of a state; what a client that waits for the next change sends back.
    version: i64,
    #[serde(flatten)]
    times: Times,
    /// How far it has come, as the event of that kind tells it; null unless it runs.
    progress: Option<serde_json::Map<String, serde_json::Value>>,
    /// A sentence for a user who waits; null when there is nothing to say.
    notice: Option<&'static str>,
    /// Who held the job, in order: a redeploy or a fault of ours shows here.
    attempts: Vec<Holder>,
    /// When all this was so: in an outage of the database it may be a while ago.
    observed_at: String,
}

#[derive(Debug, Serialize)]
struct RequestedBenchmark {
    index: u32,
    config: Shape,
}

#[derive(Debug, Serialize)]
struct Run {
    benchmark_index: u32,
    benchmark: Shape,
    status: &'static str,
    exit_code: Option<i32>,
    error: Option<String>,
    artifact_name: Option<String>,

    error_kind: Option<String>,
    /// The end of what the submission printed; null where it succeeded or printed nothing.
    output_tail: Option<String>,
    simulated: bool,
    /// With which clocks the report's durations were measured.
    clock_control: Option<String>,
    /// The kernels that hold most of the time, the longest first.
    launches: Vec<Launches>,
    /// The part of the time that the captured kernels hold, from 0 to 1.
    coverage: Option<f64>,
    /// What the report says, in short.
    summary: Option<Value>,
    started_at: Option<String>,
    ended_at: Option<String>,
    /// Since when its archive is not handed out any more.
    artifact_expired_at: Option<String>,
}

/// All launches of one kernel, as the overview before the report saw them.
#[derive(Debug, Serialize)]
struct Launches {
    #[serde(flatten)]
    kernel: KernelTime,
    /// With which clocks its time was measured, which are seldom the report's.
    clock_control: &'static str,
}

/// A time in which a worker held the job.
#[derive(Debug, Serialize)]
struct Holder {
    attempt: i32,
    /// How often the attempt had been taken over from another worker by then.
    adoption: i32,
    outcome: String,
    started_at: String,
    ended_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct Artifact {
    name: String,
    url: String,
    benchmark_index: u32,
    benchmark: Shape,

    bytes: u64,
}

impl Body {
    /// A job as it was seen, and where it stands.
    #[must_use]
    pub fn of(seen: &Seen, standing: Option<Standing>) -> Self {
        let job = &seen.job;
        let id = job.id.to_string();
        let requested_benchmarks = job
            .runs
            .iter()
            .map(|run| RequestedBenchmark { index: run.benchmark_index, config: run.benchmark.clone() })
            .collect();
        let artifacts = job.runs.iter().filter_map(|run| Artifact::of(&id, run)).collect();
        Self {
            status: job.state.as_str(),
            queue_position: job.queue_position,
            error: job.error.clone(),
            leaderboard: job.leaderboard.clone(),
            problem_dir: job.problem_dir.clone(),
            created_at: timestamp(job.created_at),
            started_at: job.started_at.map(timestamp),
            ended_at: job.ended_at.map(timestamp),
            requested_benchmarks,
            artifacts,
            cancelled: job.error_kind.as_deref() == Some(ErrorKind::Cancelled.as_str()),
            cached: job.is_cached,
            measured_at: job.measured_at.map(timestamp),
            cancel_requested: job.cancel_requested,
            version: job.version,
            times: standing.map(Times::from).unwrap_or_default(),
            progress: job.progress.clone(),
            error_kind: job.error_kind.clone(),
            attempt: job.attempt,
            options: job.options.clone(),
            notice: notice(job),
            simulated: job.runs.iter().any(|run| run.simulated),
            runs: job.runs.iter().map(Run::from).collect(),
            attempts: job.attempts.iter().map(Holder::from).collect(),
            observed_at: timestamp(seen.at),
            id,
        }
    }

    /// Whether it ended because somebody cancelled it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl From<&RunView> for Run {
    fn from(run: &RunView) -> Self {
        Self {
            benchmark_index: run.benchmark_index,
            benchmark: run.benchmark.clone(),
            status: run.state.as_str(),
            exit_code: run.exit_code,
            error: run.error.clone(),
            artifact_name: run.artifact.as_ref().map(|artifact| artifact.name.clone()),
            error_kind: run.error_kind.clone(),
            output_tail: run.output_tail.clone(),
            simulated: run.simulated,
            clock_control: run.clock_control.clone(),
            launches: run.launches.iter().cloned().map(Launches::from).collect(),
            coverage: run.coverage,
            summary: run.summary.clone(),
            started_at: run.started_at.map(timestamp),
            ended_at: run.ended_at.map(timestamp),
            artifact_expired_at: run.artifact.as_ref().and_then(|artifact| artifact.expired_at).map(timestamp),
        }
    }
}

impl From<KernelTime> for Launches {
    fn from(kernel: KernelTime) -> Self {
        Self { kernel, clock_control: Overview::CLOCK_CONTROL.as_str() }
    }
}

impl From<&AttemptView> for Holder {
    fn from(attempt: &AttemptView) -> Self {
        Self {
            attempt: attempt.attempt,
            adoption: attempt.adoption,
            outcome: attempt.outcome.clone(),
            started_at: timestamp(attempt.started_at),
            ended_at: attempt.ended_at.map(timestamp),
        }
    }
}

impl Artifact {
    fn of(job_id: &str, run: &RunView) -> Option<Self> {
        let artifact = run.artifact.as_ref().filter(|artifact| artifact.expired_at.is_none())?;
        Some(Self {
            url: format!("/jobs/{job_id}/artifacts/{}", artifact.name),
            name: artifact.name.clone(),
            benchmark_index: run.benchmark_index,
            benchmark: run.benchmark.clone(),
            bytes: artifact.stored.bytes,
        })
    }
}

/// What a waiting job waits for, where that is not its turn.
fn notice(job: &JobView) -> Option<&'static str> {
    (job.is_queue_paused && job.state == queue::State::Queued)
        .then_some("The queue is paused by its operator: the job keeps its place and starts when it is resumed.")
}

/// ISO 8601 with `+00:00`, which older Pythons parse and a `Z` they do not.
#[must_use]
pub fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, false)
}
