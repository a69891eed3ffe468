//! Where things are: the container's mounts, or the same tree beneath a folder for tests on a bare host.

use std::path::{Path, PathBuf};

use ncu_runner::protocol;
use rustix::fs::{Mode, chmod};

use crate::trouble::{Result, Trouble};

/// The places that the runner reads and writes.
#[derive(Debug, Clone)]
pub struct Layout {
    /// [`protocol::REQUEST_FILE`].
    pub request: PathBuf,
    /// [`protocol::SUBMISSION_FILE`].
    pub submission: PathBuf,
    /// [`protocol::PROBLEMS_DIR`].
    pub problems: PathBuf,
    /// [`protocol::OUT_DIR`].
    pub out: PathBuf,
    /// The folder for everything that is thrown away.
    pub tmp: PathBuf,
    /// [`protocol::WORK_DIR`].
    pub work: PathBuf,
    /// Where the launch tracer writes.
    pub launches: PathBuf,
}

impl Layout {
    /// The layout whose root is `root`: `/` in a container.
    pub fn beneath(root: &Path) -> Self {
        let place = |absolute: &str| root.join(absolute.trim_start_matches('/'));
        Self {
            request: place(protocol::REQUEST_FILE),
            submission: place(protocol::SUBMISSION_FILE),
            problems: place(protocol::PROBLEMS_DIR),
            out: place(protocol::OUT_DIR),
            tmp: place("/tmp"),
            work: place(protocol::WORK_DIR),
            launches: place("/tmp/launches"),
        }
    }

    /// Gives this user all rights to `out` again: a submission runs as the same user, and can close it against itself.
    pub fn reopen_out(&self) -> Result<()> {
        chmod(&self.out, Mode::RWXU).map_err(|error| Trouble::at("opening", &self.out, error))
    }
}
