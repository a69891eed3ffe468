//! The problems of a reference-kernels checkout: which leaderboards there are, and what profiling one takes.
//!
//! The service embeds no problem and no shape. It reads the operator's checkout through a [`Catalog`], opens nothing
//! outside it, and runs nothing of it.

mod catalog;
mod digest;
mod files;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod index;
mod profilable;
mod revision;
mod shape;
mod task;
#[cfg(test)]
mod tests;
mod yaml;

pub use catalog::Catalog;
pub use digest::{FileDigest, version};
pub use shape::Shape;

use std::time::Duration;

use ncu_runner::protocol::TaskFile;

/// A problem that can be profiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Folder relative to the problems directory, for example `linalg/qr_v2`.
    pub directory: String,
    /// The files of the evaluator's folder; sources are relative to the problems directory.
    pub files: Vec<TaskFile>,
    /// Name of the evaluator, for example `eval.py`.
    pub main: String,
    /// The benchmark shapes, in task.yml's order.
    pub benchmarks: Vec<Shape>,
    /// How long one evaluator run may take.
    pub benchmark_timeout: Duration,
}

/// Why a leaderboard cannot be profiled. Each displays as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    /// No leaderboard or folder of that name.
    #[error("There is no leaderboard {name:?}{}", did_you_mean(nearest))]
    Unknown {
        /// What was asked for, shortened where it is very long.
        name: String,
        /// Names that are close, nearest first, at most five.
        nearest: Vec<String>,
    },
    /// The leaderboard exists, but cannot be profiled.
    #[error("{0}")]
    NotProfilable(String),
    /// The leaderboard's files are broken; the operator's fault.
    #[error("The files of leaderboard {name:?} are broken on the profiling host: tell its operator.")]
    Broken {
        /// What was asked for.
        name: String,
        /// For the log.
        detail: String,
    },
}

/// The end of the sentence: `; did you mean a, b or c?`.
fn did_you_mean(nearest: &[String]) -> String {
    match nearest {
        [] => "; check its name.".to_owned(),
        [one] => format!("; did you mean {one}?"),
        [many @ .., last] => format!("; did you mean {} or {last}?", many.join(", ")),
    }
}

/// State of the checkout.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Revision {
    /// Commit of the checkout; `None` where the folder is no git checkout.
    pub commit: Option<String>,
    /// Whether tracked files differ from that commit.
    pub dirty: Option<bool>,
}
