//! `manifest.json`: what was profiled, with which versions, options and source revision.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use ncu_runner::protocol::{Choice, ClockControl, LandlockState, Overview, Step, StreamStats};
use serde::{Deserialize, Serialize};

use crate::capture::options::RequestOptions;
use crate::gpu::GpuIdentity;
use crate::problems::{FileDigest, Revision, Shape};
use crate::report::ClockRange;

/// Version of the manifest's layout; a reader refuses one that it does not know.
const SCHEMA: u32 = 1;

/// What was profiled, and how.
#[derive(Debug, Serialize)]
pub struct Manifest<'a> {
    /// Version of this layout.
    pub schema: u32,
    /// Name and version of this service.
    pub service: &'static str,
    /// Whether the stand-in profiler made the report: its numbers are then no measurement.
    pub simulated: bool,
    /// The job.
    pub job_id: String,
    /// Number of the attempt.
    pub attempt: i32,
    /// The leaderboard as the client named it.
    pub leaderboard: &'a str,
    /// The problem's folder in reference-kernels.
    pub problem_dir: &'a str,
    /// Revision of reference-kernels.
    pub reference_kernels: &'a Revision,
    /// Index of the shape in task.yml.
    pub benchmark_index: u32,
    /// The shape.
    pub benchmark: &'a Shape,
    /// The files of the evaluator's folder but for the submission, as they were before the capture.
    pub problem_files: &'a [FileDigest],
    /// The line that the evaluator read.
    pub spec: &'a str,
    /// The submission.
    pub submission: Submission<'a>,
    /// The request's own capture options.
    pub options: &'a RequestOptions,
    /// With which clocks the report's durations were measured; `overview` has its own.
    pub clock_control: ClockControl,
    /// Calls of the submission before the one that was captured.
    pub warm_calls: u32,
    /// The image that ran it.
    pub image: Image<'a>,
    /// The GPUs that it got; empty where nobody could tell.
    pub gpus: &'a [GpuIdentity],
    /// The clocks that the profiler measured.
    pub measured_clocks: MeasuredClocks,
    /// Version line of `ncu`.
    pub ncu_version: Option<&'a str>,
    /// Versions found in the image.
    pub versions: &'a BTreeMap<String, String>,
    /// What Landlock enforced in the container.
    pub landlock: LandlockState,
    /// The programs that ran, with exit codes and wall times in seconds.
    pub steps: &'a [Step],
    /// Bytes seen and kept of each stream.
    pub streams: &'a BTreeMap<String, StreamStats>,
    /// When the capture's container ran.
    pub container: ContainerTimes,
    /// What each phase took that is not a step in the container, in order.
    pub phases: &'a [Phase],
    /// How much the container was allowed.
    pub limits: &'a Limits,
    /// Which of these limits, and of those on what is kept, were met.
    pub limits_hit: &'a [&'static str],
    /// Launches in the report.
    pub captured_launches: u32,
    /// How they were chosen, and how much of the time their kernels hold.
    pub capture: Option<&'a Choice>,
    /// What the program launches in all; `launches.csv` has it in full.
    pub overview: Option<&'a Overview>,
    /// The evaluator's verdict where it was not "correct".
    pub evaluator_error: Option<&'a str>,
    /// How far all this can be trusted.
    pub note: &'static str,
}

/// The submitted file.
#[derive(Debug, Serialize)]
pub struct Submission<'a> {
    /// Its base name.
    pub file_name: &'a str,
    /// Its size in bytes.
    pub bytes: usize,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// An image.
#[derive(Debug, Serialize)]
pub struct Image<'a> {
    /// The engine's id of it.
    pub id: &'a str,
    /// Its digest in a registry; `None` for an image that was built on the host.
    pub digest: Option<&'a str>,
}

/// Clocks over all launches of a report. The multiprocessors' depends on the clock control.
#[derive(Debug, Serialize)]
pub struct MeasuredClocks {
    /// Of the multiprocessors.
    pub sm: Option<ClockRange>,
    /// Of the memory.
    pub memory: Option<ClockRange>,
}

/// A part of a run's time.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Its wall time, in seconds.
    pub seconds: f64,
}

/// Limits of a capture's container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory, its `/tmp` and `/dev/shm` included.
    pub memory_bytes: u64,
    /// Processors.
    pub cpus: u32,
    /// Processes and threads.
    pub pids: u32,
    /// `/tmp`.
    pub tmp_bytes: u64,
    /// `/dev/shm`.
    pub shm_bytes: u64,
    /// What it may write to `/out`.
    pub output_bytes: u64,
    /// Kept of each stream.
    pub stream_bytes: u64,
    /// Time of the overview.
    pub overview_seconds: u64,
    /// Time of the capture.
    pub capture_seconds: u64,
}

/// When a container ran.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ContainerTimes {
    /// Its start, as the engine saw it.
    pub started_at: DateTime<Utc>,
    /// Its end, as the engine saw it.
    pub ended_at: DateTime<Utc>,
}

impl Manifest<'_> {
    /// The current layout's version.
    pub const SCHEMA: u32 = SCHEMA;
    /// Name and version of this service.
    pub const SERVICE: &'static str = concat!("ncu-service ", env!("CARGO_PKG_VERSION"));
    /// How far a profile can be trusted.
    pub const NOTE: &'static str = "The submission ran in the container that was measured: the report, the logs and the \
        evaluator's verdict say what was seen there and prove nothing. This file was written outside of it.";
}
