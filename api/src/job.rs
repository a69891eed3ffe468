//! `GET /jobs/{id}`: how a job is doing, in the words that clients' tools parse.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use chrono::{DateTime, SecondsFormat, Utc};
use jobs::capture::options::RequestOptions;
use jobs::problems::Shape;
use jobs::queue::{self, AttemptView, JobView, KernelTime, Overview, RunView};
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::known::Seen;

/// Answers a poll.
pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Body>, ApiError> {
    let Path(id) = path.map_err(|_| ApiError::NoSuchJob)?;
    let id = id.parse().map_err(|_| ApiError::NoSuchJob)?;
    let seen = app.known.job(&app.queue, app.database_patience, id, caller.owner).await?.ok_or(ApiError::NoSuchJob)?;
    caller.must_not_be_refused(&app).await?;
    Ok(Json(Body::from(&seen)))
}

/// A job on the wire. The fields up to `artifacts` are parsed by tools that exist; the others are ours.
#[derive(Debug, Serialize)]
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

impl From<&Seen> for Body {
    fn from(seen: &Seen) -> Self {
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
fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, false)
}
