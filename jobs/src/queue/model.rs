//! What the queue's callers see of a job.

use std::time::Duration;

use chrono::{DateTime, Utc};
use ncu_runner::protocol::{ClockControl, KernelTime};
use serde_json::Value;
use uuid::Uuid;

use super::runs::RunLease;
use crate::capture::options::RequestOptions;
use crate::digest::Digest;
use crate::ids::{JobId, Owner};
use crate::problems::Shape;
use crate::telemetry::RemoteContext;

/// State of a job or of one of its runs; these five words are the wire's too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits for a worker.
    Queued,
    /// A worker holds its lease.
    Running,
    /// Every shape's archive is stored.
    Succeeded,
    /// At least one shape failed, or the job was cancelled.
    Failed,
    /// At least one shape ran into its time limit, and none failed otherwise.
    TimedOut,
}

impl State {
    /// As the database and clients spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
        }
    }
}

impl State {
    /// The state of a word from the database.
    pub(super) fn decode(word: String) -> Result<Self, sqlx::Error> {
        Self::try_from(word).map_err(|unknown| sqlx::Error::Decode(unknown.into()))
    }
}

/// Whose fault an error is, and of which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The submission failed: it did not import, compile or run.
    Submission,
    /// The evaluator found the answer wrong; the profile is there all the same.
    WrongAnswer,
    /// Nothing was captured.
    EmptyCapture,
    /// A limit of memory, output or processes was hit.
    Limit,
    /// The time limit was hit.
    Timeout,
    /// Somebody cancelled the job.
    Cancelled,
    /// Ours.
    ServiceFault,
}

impl ErrorKind {
    /// As the database and clients spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submission => "submission",
            Self::WrongAnswer => "wrong_answer",
            Self::EmptyCapture => "empty_capture",
            Self::Limit => "limit",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::ServiceFault => "service_fault",
        }
    }
}

/// How a run ended, as its worker records it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// Its final state.
    pub state: State,
    /// Exit code of the capture.
    pub exit_code: Option<i32>,
    /// The sentence for the user, with its kind.
    pub error: Option<(ErrorKind, String)>,
    /// The end of what the submission printed, where there is no archive; at most 4 KiB.
    pub output_tail: Option<String>,
    /// Made by the stand-in profiler.
    pub simulated: bool,
    /// With which clocks the report was made; `None` without a report.
    pub clock_control: Option<ClockControl>,
    /// The kernels that hold most of the time, the longest first; empty where nothing was seen.
    pub launches: Vec<KernelTime>,
    /// The part of the time that the captured kernels hold, from 0 to 1.
    pub coverage: Option<f64>,
    /// What the report says; `None` without one.
    pub digest: Option<Box<Digest>>,
    /// File name and place of the archive.
    pub artifact: Option<(String, StoredArtifact)>,
}

/// The database holds a word that is no state.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no state")]
pub struct UnknownState(String);

impl TryFrom<String> for State {
    type Error = UnknownState;

    fn try_from(word: String) -> Result<Self, UnknownState> {
        [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::TimedOut]
            .into_iter()
            .find(|state| state.as_str() == word)
            .ok_or(UnknownState(word))
    }
}

/// A job to queue. Everything in it has been checked.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Its id.
    pub id: JobId,
    /// Who may see it.
    pub owner: Owner,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// The problem's folder, relative to the problems directory.
    pub problem_dir: String,
    /// The submitted file's base name.
    pub file_name: String,
    /// The submitted source.
    pub source: String,
    /// The shapes to profile, with their index in task.yml.
    pub benchmarks: Vec<(u32, Shape)>,
    /// The request's capture options.
    pub options: RequestOptions,
    /// The trace that it belongs to, as a `traceparent`.
    pub trace_parent: Option<String>,
}

/// A job as a poll sees it.
#[derive(Debug, Clone)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// Place in the queue, from 1; `None` unless queued.
    pub queue_position: Option<i64>,
    /// Whether no job is claimed now.
    pub is_queue_paused: bool,
    /// Whether somebody wants it to end.
    pub cancel_requested: bool,
    /// Whether a stored result answered for it.
    pub is_cached: bool,
    /// When that result was measured.
    pub measured_at: Option<DateTime<Utc>>,
    /// Its newest event that is more than progress; 0 for a job that ended before there were events.
    pub version: i64,
    /// The sentence for the user.
    pub error: Option<String>,
    /// Whose fault, and which kind.
    pub error_kind: Option<String>,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// The problem's folder, relative to the problems directory.
    pub problem_dir: String,
    /// The request's capture options.
    pub options: RequestOptions,
    /// How often it was claimed.
    pub attempt: i32,
    /// When it was queued.
    pub created_at: DateTime<Utc>,
    /// When it was first claimed.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Its shapes, by index.
    pub runs: Vec<RunView>,
    /// While it runs, what was told last of how far it has come.
    pub progress: Option<serde_json::Map<String, serde_json::Value>>,
    /// Who held it, in order.
    pub attempts: Vec<AttemptView>,
}

/// A time in which a worker held a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptView {
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// How often the attempt had been taken over by then.
    pub adoption: i32,
    /// When the worker took it.
    pub started_at: DateTime<Utc>,
    /// When it was the worker's no more.
    pub ended_at: Option<DateTime<Utc>>,
    /// What became of it, in a word of the table.
    pub outcome: String,
}

/// One shape of a job as a poll sees it.
#[derive(Debug, Clone)]
pub struct RunView {
    /// Index of the shape in task.yml.
    pub benchmark_index: u32,
    /// The shape.
    pub benchmark: Shape,
    /// Its state.
    pub state: State,
    /// Exit code of the capture.
    pub exit_code: Option<i32>,
    /// The sentence for the user; a capture can succeed and have one (a wrong answer, say).
    pub error: Option<String>,
    /// Whose fault, and which kind.
    pub error_kind: Option<String>,
    /// The end of what the submission printed, where there is no archive.
    pub output_tail: Option<String>,
    /// Made by the stand-in profiler.
    pub simulated: bool,
    /// With which clocks the report was made; `None` where there is none, and for reports older than this field.
    pub clock_control: Option<String>,
    /// The kernels that hold most of the time, the longest first; empty where nothing was seen.
    pub launches: Vec<KernelTime>,
    /// The part of the time that the captured kernels hold, from 0 to 1.
    pub coverage: Option<f64>,
    /// The report's digest in short, as a client gets it; `None` where there is none, and for reports older than this field.
    pub summary: Option<Value>,
    /// When its capture began.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Its archive.
    pub artifact: Option<Artifact>,
}

/// An archive of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its file name.
    pub name: String,
    /// Where it is stored, or was.
    pub stored: StoredArtifact,
    /// Since when it is not handed out any more.
    pub expired_at: Option<DateTime<Utc>>,
}

/// Where an archive is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredArtifact {
    /// Path in the artifact store.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

impl StoredArtifact {
    /// An archive out of the columns of its run.
    pub(super) fn decode(path: String, bytes: i64, sha256: Vec<u8>) -> Result<Self, sqlx::Error> {
        let sha256 = sha256.try_into().map_err(|_| sqlx::Error::Decode("a SHA-256 has 32 bytes".into()))?;
        Ok(Self { path, bytes: bytes.cast_unsigned(), sha256 })
    }
}

/// A claimed job: what an attempt needs.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The job.
    pub id: JobId,
    /// The holder's token, which every write carries.
    pub token: Uuid,
    /// The claim's token, which containers and folders carry; an adoption does not change it.
    pub claim_token: Uuid,
    /// Number of this attempt, from 1.
    pub attempt: i32,
    /// How often this attempt was taken over from another worker.
    pub adoption: i32,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// The problem's folder.
    pub problem_dir: String,
    /// The submitted file's base name.
    pub file_name: String,
    /// The submitted source.
    pub source: String,
    /// The request's capture options.
    pub options: RequestOptions,
    /// The trace that the job belongs to.
    pub trace: RemoteContext,
    /// Time from the job's submission to now, by the database's clock.
    pub age: Duration,
    /// The shapes that are not done yet, by index.
    pub pending: Vec<PendingRun>,
}

impl Claim {
    /// What a write about one of its shapes carries.
    #[must_use]
    pub fn lease_of(&self, benchmark_index: u32) -> RunLease {
        let Self { id, token, attempt, adoption, .. } = *self;
        RunLease { job: id, token, attempt, adoption, benchmark_index }
    }

    /// `<attempt>.<adoption>`: the name of what this holder of the attempt makes, and no other.
    #[must_use]
    pub fn holder(&self) -> String {
        format!("{}.{}", self.attempt, self.adoption)
    }
}

/// A shape that is not done yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingRun {
    /// Index of the shape in task.yml.
    pub benchmark_index: u32,
    /// The shape.
    pub shape: Shape,
    /// The adoption in which its capture was started, where that is under way.
    pub started_by: Option<i32>,
}
