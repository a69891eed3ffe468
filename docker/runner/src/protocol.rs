//! The two JSON files that cross the container's border, and where everything is mounted.
//!
//! The worker writes [`REQUEST_FILE`] before the start. The runner writes [`OUTCOME_FILE`] last, after it has killed
//! every other process in the container, so a submission cannot change it afterwards. Even so the worker treats it as
//! hostile input: it is read through the collector, with a size cap.

use serde::{Deserialize, Serialize};

/// Read-only folder with the request and the submission.
pub const IN_DIR: &str = "/in";
/// The submitted source, inside [`IN_DIR`].
pub const SUBMISSION_FILE: &str = "/in/submission.py";
/// The [`Request`] as JSON, inside [`IN_DIR`].
pub const REQUEST_FILE: &str = "/in/request.json";
/// Read-only folder with the problems directory of reference-kernels.
pub const PROBLEMS_DIR: &str = "/problems";
/// Read-only folder with the report that an export reads.
pub const REPORT_DIR: &str = "/report";
/// The only writable mount.
pub const OUT_DIR: &str = "/out";
/// The [`Outcome`] as JSON, relative to [`OUT_DIR`].
pub const OUTCOME_FILE: &str = "outcome.json";
/// The report, relative to [`OUT_DIR`].
pub const REPORT_FILE: &str = "profile/profile.ncu-rep";
/// Name of the step that runs the evaluator with its launches noted.
pub const OVERVIEW_STEP: &str = "overview";
/// Name of the step that runs it under `ncu`.
pub const CAPTURE_STEP: &str = "capture";
/// What the evaluator wrote to `POPCORN_FD`, relative to [`OUT_DIR`].
pub const POPCORN_LOG_FILE: &str = "popcorn.log";
/// Every kernel that the overview saw, relative to [`OUT_DIR`]; missing when it saw none.
pub const LAUNCHES_FILE: &str = "launches.csv";
/// Standard output of the overview and the capture, relative to [`OUT_DIR`].
pub const STDOUT_FILE: &str = "stdout.txt";
/// Standard error of the overview and the capture, relative to [`OUT_DIR`].
pub const STDERR_FILE: &str = "stderr.txt";
/// The [`Progress`] as JSON, relative to [`OUT_DIR`]; replaced while the container runs, and hostile like all else there.
pub const PROGRESS_FILE: &str = "progress.json";
/// The text export, relative to [`OUT_DIR`] of the export container.
pub const DETAILS_TEXT_FILE: &str = "ncu-details.txt";
/// The CSV export, relative to [`OUT_DIR`] of the export container.
pub const DETAILS_CSV_FILE: &str = "ncu-details.csv";
/// The CSV export of every metric, relative to [`OUT_DIR`] of the export container.
pub const RAW_CSV_FILE: &str = "ncu-raw.csv";
/// Name of the step that makes [`RAW_CSV_FILE`].
pub const RAW_STEP: &str = "raw";
/// Where the evaluator's folder is assembled: on the container's tmpfs.
pub const WORK_DIR: &str = "/tmp/work";

/// Longest time that the runner gives a probe for versions, in seconds. A probe answers in a fraction of a second; a cold
/// disk may take longer.
pub const PROBE_SECS: u64 = 20;
/// How long killed processes may take to be gone, in seconds: one inside a driver call ends late.
pub const KILL_SECS: u64 = 20;
/// What the runner may take beyond the limits of its steps, in seconds: two probes and their ends, the ends of two steps,
/// and as much as one end for its start and for copying and writing files. Whoever ends the container earlier loses an
/// outcome that tells why.
pub const GRACE_SECS: u64 = 2 * (PROBE_SECS + KILL_SECS) + 2 * KILL_SECS + 20;

/// What one container has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Profile one shape.
    Capture(CaptureRequest),
    /// Turn a report into text and tables; needs no GPU.
    Export(ExportRequest),
}

/// Profile one shape of one problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// The files of the evaluator's folder.
    pub files: Vec<TaskFile>,
    /// Name of the evaluator in that folder, for example `eval.py`.
    pub main: String,
    /// The shape as the evaluator reads it: the one line of `cases.txt`.
    pub spec: String,
    /// `ncu` and its options, without those that choose launches and without the program it runs.
    pub ncu: Vec<String>,
    /// Which launches the report is to hold.
    pub selection: Selection,
    /// Calls of the submission before the one that is captured.
    pub warm_calls: u32,
    /// Whether to restrict the file system and TCP with Landlock.
    pub landlock: bool,
    /// Limit of the run outside the profiler, in seconds.
    pub warmup_timeout_secs: u64,
    /// Limit of the capture, in seconds.
    pub capture_timeout_secs: u64,
    /// How much of stdout, of stderr and of the evaluator's log is kept, in bytes each.
    pub max_stream_bytes: u64,
}

/// Which launches of the range a report holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// How they are chosen.
    pub mode: CaptureMode,
    /// How many there may be.
    pub max_launches: u32,
}

/// How the launches of a report are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureMode {
    /// The first launches that the filters in the command line match.
    Window,
    /// Each kernel's first launch.
    Distinct,
    /// The kernels that hold most of the time.
    Hot,
}

/// What `ncu` does with the GPU's clocks while it measures (`--clock-control`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockControl {
    /// Locks them to the base clock.
    Base,
    /// Leaves them to the GPU.
    None,
}

impl ClockControl {
    /// As `ncu` and clients spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::None => "none",
        }
    }
}

/// One file of the evaluator's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// Its plain name in the evaluator's folder.
    pub name: String,
    /// Path relative to [`PROBLEMS_DIR`]; `None` is the submission.
    pub source: Option<String>,
}

/// Make the exports of `/report/profile.ncu-rep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportRequest {
    /// `ncu` with the options that print the report as text.
    pub text: Vec<String>,
    /// `ncu` with the options that print the report as CSV.
    pub csv: Vec<String>,
    /// `ncu` with the options that print every metric as CSV.
    pub raw: Vec<String>,
    /// Whether to restrict the file system and TCP with Landlock.
    pub landlock: bool,
    /// Limit of each export, in seconds.
    pub timeout_secs: u64,
    /// Largest size of each export, in bytes; a longer one is a failure.
    pub max_bytes: u64,
}

/// What happened, in the runner's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// One line about the runner's own trouble (a file it could not copy, say); `None` when it did its work.
    pub error: Option<String>,
    /// One line about what the submission's first run has left behind, so that no capture could be begun (a full `/tmp`, say).
    #[serde(default)]
    pub spoiled: Option<String>,
    /// What Landlock really enforces on this kernel.
    pub landlock: LandlockState,
    /// Version line of `ncu --version`, where it could be had.
    pub ncu_version: Option<String>,
    /// Versions found in the image, by name (`python`, `torch`, `cuda`, `triton`, `gpu`, `driver`).
    pub versions: std::collections::BTreeMap<String, String>,
    /// The steps that were run, in order.
    pub steps: Vec<Step>,
    /// Where the overview was when its limit ended it; `None` when it ended by itself, or hung outside of the range. With
    /// [`Stuck::InRange`] there is no capture.
    pub stuck: Option<Stuck>,
    /// What the program launches in the range, seen before the capture; `None` when nothing was seen.
    pub overview: Option<Overview>,
    /// How the report's launches were chosen; `None` when it did not come to that.
    pub choice: Option<Choice>,
    /// Bytes seen and kept of each stream.
    pub streams: std::collections::BTreeMap<String, StreamStats>,
    /// How often the kernel killed a process for the container's memory limit.
    pub oom_kills: u64,
}

/// How far a capture has come. The submission could have written it itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The step that runs: [`OVERVIEW_STEP`] or [`CAPTURE_STEP`].
    pub step: String,
    /// Launches that `ncu` has profiled.
    pub launches_done: u32,
    /// How many the report may hold.
    pub launches_at_most: Option<u32>,
    /// The kernel that is profiled, or was last.
    pub kernel: Option<String>,
    /// How much of its passes is done.
    pub percent: Option<u8>,
    /// The last lines that were printed, cut.
    pub output: Vec<String>,
}

impl Progress {
    /// Most lines in [`Progress::output`].
    pub const MAX_OUTPUT_LINES: usize = 5;
}

/// How a program hangs in the range. The submission's own process tells, so it is no more than a claim about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stuck {
    /// Its process was in the range.
    InRange,
    /// Its process had entered the range and was gone, and the evaluator waited for an answer.
    Died,
}

/// What a program launches in the range, in short. [`LAUNCHES_FILE`] has it in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// Launches.
    pub launches: u64,
    /// Kernels, each name counted once.
    pub kernels: u64,
    /// Time of all launches together on the GPU, in nanoseconds.
    pub total_ns: u64,
    /// With which clocks all times of the overview were measured.
    pub clock_control: ClockControl,
    /// The kernels that hold most of the time, at most [`Overview::MAX_TOP`], the longest first.
    pub top: Vec<KernelTime>,
    /// Whether launches were lost or had no room of their own.
    pub is_partial: bool,
}

impl Overview {
    /// Most kernels in [`Overview::top`].
    pub const MAX_TOP: usize = 5;
    /// The overview runs without `ncu`, and nothing else locks a clock.
    pub const CLOCK_CONTROL: ClockControl = ClockControl::None;
}

/// All launches of one kernel in the range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelTime {
    /// Its name for a reader, demangled where that is possible; long ones are cut.
    pub kernel: String,
    /// Its launches.
    pub count: u64,
    /// Their time together on the GPU, in nanoseconds.
    pub total_ns: u64,
    /// Their part of the time of all launches, from 0 to 1.
    pub share: f64,
}

/// How a report's launches were chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The mode that was used.
    pub mode: CaptureMode,
    /// Why another mode was used than the one asked for, in one sentence.
    pub fallback: Option<String>,
    /// The part of the range's time that the chosen kernels hold, from 0 to 1, going by the overview; `None` without one,
    /// and with a filter of somebody's own.
    pub coverage: Option<f64>,
}

/// Whether the restrictions of Landlock are in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LandlockState {
    /// Switched off by the operator.
    #[default]
    Off,
    /// Everything asked for is enforced.
    Full,
    /// The kernel enforces a part (an older ABI).
    Partial,
    /// The kernel has no Landlock.
    Unavailable,
}

/// One program that the runner ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// `overview`, `capture`, `text`, `csv` or `raw`.
    pub name: String,
    /// The command line.
    pub argv: Vec<String>,
    /// Exit code; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the runner ended it at its limit, or 10 s after one of its processes was killed for memory.
    pub timed_out: bool,
    /// Wall time in seconds.
    pub seconds: f64,
}

/// How much of a stream was seen and kept. An export of more than [`ExportRequest::max_bytes`] is ended there and its
/// file left empty: its step ends by a signal without having timed out, and `bytes_kept` is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStats {
    /// Bytes that were written to it, the runner's own marker lines included.
    pub bytes_seen: u64,
    /// Bytes that are in the file, without the line that marks a cut and without what ncu prints ahead of an export.
    pub bytes_kept: u64,
    /// Where the capture's part of the file begins, in bytes from the file's start: all before it, a line that looks like a
    /// marker included, is of the time before the capture. Where the part's own beginning is cut out, it is the first byte
    /// after the line that marks the cut. `None` before a capture has begun, and for streams that hold nothing else.
    pub capture_offset: Option<u64>,
}
