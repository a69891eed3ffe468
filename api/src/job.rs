//! `GET /jobs/{id}`: how a job is doing, in the words that clients' tools parse.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use chrono::{DateTime, SecondsFormat, Utc};
use jobs::capture::options::RequestOptions;
use jobs::problems::Shape;
use jobs::queue::{JobView, KernelTime, Overview, RunView};
use serde::Serialize;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::retry::patiently;

/// Answers a poll.
pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Body>, ApiError> {
    let Path(id) = path.map_err(|_| ApiError::NoSuchJob)?;
    let id = id.parse().map_err(|_| ApiError::NoSuchJob)?;
    let job = patiently(app.database_patience, || app.queue.view(id, Some(caller.owner)))
        .await?
        .ok_or(ApiError::NoSuchJob)?;
    caller.must_not_be_refused(&app).await?;
    Ok(Json(Body::from(job)))
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
    started_at: Option<String>,
    ended_at: Option<String>,
}

/// All launches of one kernel, as the overview before the report saw them.
#[derive(Debug, Serialize)]
struct Launches {
    #[serde(flatten)]
    kernel: KernelTime,
    /// With which clocks its time was measured, which are seldom the report's.
    clock_control: &'static str,
}

#[derive(Debug, Serialize)]
struct Artifact {
    name: String,
    url: String,
    benchmark_index: u32,
    benchmark: Shape,

    bytes: Option<i64>,
}

impl From<JobView> for Body {
    fn from(job: JobView) -> Self {
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
            error: job.error,
            leaderboard: job.leaderboard,
            problem_dir: job.problem_dir,
            created_at: timestamp(job.created_at),
            started_at: job.started_at.map(timestamp),
            ended_at: job.ended_at.map(timestamp),
            requested_benchmarks,
            artifacts,
            error_kind: job.error_kind,
            attempt: job.attempt,
            options: job.options,
            simulated: job.runs.iter().any(|run| run.simulated),
            runs: job.runs.into_iter().map(Run::from).collect(),
            id,
        }
    }
}

impl From<RunView> for Run {
    fn from(run: RunView) -> Self {
        Self {
            benchmark_index: run.benchmark_index,
            benchmark: run.benchmark,
            status: run.state.as_str(),
            exit_code: run.exit_code,
            error: run.error,
            artifact_name: run.artifact_name,
            error_kind: run.error_kind,
            output_tail: run.output_tail,
            simulated: run.simulated,
            clock_control: run.clock_control,
            launches: run.launches.into_iter().map(Launches::from).collect(),
            coverage: run.coverage,
            started_at: run.started_at.map(timestamp),
            ended_at: run.ended_at.map(timestamp),
        }
    }
}

impl From<KernelTime> for Launches {
    fn from(kernel: KernelTime) -> Self {
        Self { kernel, clock_control: Overview::CLOCK_CONTROL.as_str() }
    }
}

impl Artifact {
    fn of(job_id: &str, run: &RunView) -> Option<Self> {
        let name = run.artifact_name.clone()?;
        Some(Self {
            url: format!("/jobs/{job_id}/artifacts/{name}"),
            name,
            benchmark_index: run.benchmark_index,
            benchmark: run.benchmark.clone(),
            bytes: run.artifact_bytes,
        })
    }
}

/// ISO 8601 with `+00:00`, which older Pythons parse and a `Z` they do not.
fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, false)
}
