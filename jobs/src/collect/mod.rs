//! The collector: the only reader of what a container wrote, and all of it is hostile.
//!
//! It reads after the container is gone (but for an account of its progress, which nothing depends on), beneath a handle of the output folder that was opened before the run. It takes
//! names that the caller knows and lists nothing for anybody; it follows no link, crosses no mount and accepts only
//! regular files with one name. Bytes are counted while they are read.
//!
//! What is read later, like the report, is moved out first ([`OutputDir::move_file`]) and then read through [`TakenDir`].
//!
//! The calls block; an async caller runs them on a blocking thread.
//!
//! A worker that is not root can read only what its own user may: a container that runs as somebody else can write a
//! file of mode 0600, which is [`CollectError::Unreadable`] then. The sandbox's default users avoid that.

mod output;
#[cfg(test)]
mod properties;
mod remove;
mod take;
#[cfg(test)]
mod tests;
mod usage;

pub use output::{CollectedFile, OutputDir};
pub use usage::{Exceeded, Usage, UsageLimits};

use std::path::Path;

use rustix::io::Errno;

/// A folder of ours into which files of a container were moved: their bytes are hostile, their names are ours.
#[derive(Debug, Clone, Copy)]
pub struct TakenDir<'a>(pub &'a Path);

/// Why a file of a container's output was not taken. Only [`Self::Io`] is this host's fault.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// It is not there.
    #[error("the file is missing")]
    Missing,
    /// It is a link, a folder, a pipe, a socket or a device, or its path leads through one.
    #[error("not a regular file")]
    NotRegular,
    /// It has a second name, which may lie anywhere on this disk.
    #[error("the file has more than one name")]
    Linked,
    /// Its mode keeps this user out.
    #[error("the file is not readable")]
    Unreadable,
    /// It holds more bytes than the caller takes.
    #[error("the file is larger than {limit} bytes")]
    TooLarge {
        /// What the caller takes, in bytes.
        limit: u64,
    },
    /// This host could not read it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<Errno> for CollectError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            // A link, a path through a file, a socket, a device without a driver, a mount.
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV | Errno::XDEV => Self::NotRegular,
            Errno::ACCESS | Errno::PERM => Self::Unreadable,
            other => Self::Io(other.into()),
        }
    }
}
