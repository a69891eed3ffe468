//! The problems of a reference-kernels checkout.

mod shape;

pub use shape::Shape;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
    #[error("There is no leaderboard {name:?}.")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Names that are close, nearest first.
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

/// State of the checkout.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Revision {
    /// Commit of the checkout; `None` where the folder is no git checkout.
    pub commit: Option<String>,
    /// Whether tracked files differ from that commit.
    pub dirty: Option<bool>,
}

/// The problems directory, read anew whenever its files have changed.
#[derive(Debug)]
pub struct Catalog {
    root: PathBuf,
}

impl Catalog {
    /// The catalog of a problems directory.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The problems directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The problem behind a leaderboard's name or a folder.
    pub fn problem(&self, _name: &str) -> Result<Arc<Problem>, ProblemError> {
        Err(ProblemError::NotProfilable(String::new()))
    }

    /// All leaderboards and their folders.
    #[must_use]
    pub fn leaderboards(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// The checkout's revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision::default()
    }
}
