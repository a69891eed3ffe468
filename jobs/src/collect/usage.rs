//! How much an output folder holds, found without ever doing more work than the limits allow.

use rustix::fs::{AtFlags, Dir, FileType, fstatvfs, statat};
use rustix::io::Errno;

use super::CollectError;
use super::output::{OutputDir, open_dir};

/// What an output folder may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageLimits {
    /// Files and folders, of any kind.
    pub entries: u64,
    /// Folders within folders, from 1 for a folder right in the output folder.
    pub depth: usize,
    /// Bytes of all files together, holes included.
    pub bytes: u64,
    /// Bytes that must stay free on the folder's file system. A file without a name counts nowhere else.
    pub free_bytes: u64,
}

/// What an output folder holds, as far as it was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Files and folders seen.
    pub entries: u64,
    /// Bytes of the files seen.
    pub bytes: u64,
    /// The limit at which the look ended early.
    pub exceeded: Option<Exceeded>,
}

/// The limit that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// Too many files and folders.
    Entries,
    /// Folders too deep.
    Depth,
    /// Too many bytes.
    Bytes,
    /// Too little space left on the file system, whoever took it.
    Space,
}

impl OutputDir {
    /// Measures the folder and stops at the first limit that is passed. It may change meanwhile. A folder that is closed
    /// to this user, so that it could hide anything, is [`CollectError::Unreadable`].
    pub fn usage(&self, limits: UsageLimits) -> Result<Usage, CollectError> {
        let mut usage = Usage::default();
        let disk = fstatvfs(self.root())?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < limits.free_bytes {
            usage.exceeded = Some(Exceeded::Space);
            return Ok(usage);
        }
        // One handle for each level, so at most as many as the limit allows.
        let mut levels = vec![Dir::read_from(self.root())?];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.read() else {
                levels.pop();
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let parent = level.fd()?;
            let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            usage.entries += 1;
            if !is_dir {
                usage.bytes = usage.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(u64::MAX));
            }
            usage.exceeded = limits.exceeded_by(usage);
            if usage.exceeded.is_some() {
                break;
            }
            if is_dir {
                match open_dir(parent, name) {
                    Ok(_) if levels.len() > limits.depth => {
                        usage.exceeded = Some(Exceeded::Depth);
                        break;
                    }
                    Ok(child) => levels.push(Dir::new(child)?),
                    // Gone or replaced since it was seen.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(usage)
    }
}

impl UsageLimits {
    fn exceeded_by(self, usage: Usage) -> Option<Exceeded> {
        if usage.entries > self.entries {
            Some(Exceeded::Entries)
        } else if usage.bytes > self.bytes {
            Some(Exceeded::Bytes)
        } else {
            None
        }
    }
}
