//! The output folder and the files taken out of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, fchown, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;

use super::CollectError;

/// Below the handle, through no link, on the same file system.
pub(super) const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// A folder that one container writes, held by a handle from before it started.
#[derive(Debug, Clone)]
pub struct OutputDir {
    path: PathBuf,
    root: Arc<OwnedFd>,
}

impl OutputDir {
    /// Makes the folder, writable by the container's user and group. Its parent must be this user's and closed to all
    /// others, so that nobody else on this host reaches what the container's user can write.
    pub fn create(path: &Path, (uid, gid): (u32, u32)) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an output folder needs a parent"));
        };
        let parent = openat(CWD, parent, directory(), Mode::empty())?;
        let stat = fstat(&parent)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the output folder's parent is not private"));
        }
        mkdirat(&parent, name, Mode::RWXU)?;
        let root = open_dir(parent.as_fd(), name)?;
        fchown(&root, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        Ok(Self { path: path.to_owned(), root: Arc::new(root) })
    }

    /// Opens a folder that an earlier run made, to remove it or to read what its container wrote.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = openat(CWD, path, directory(), Mode::empty())?;
        Ok(Self { path: path.to_owned(), root: Arc::new(root) })
    }

    /// Where it is, for the engine.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file of at most `max_bytes`, whose path relative to the folder the caller knows.
    pub fn open_file(&self, relative: &str, max_bytes: u64) -> Result<CollectedFile, CollectError> {
        match open_regular(self.root(), relative, max_bytes)? {
            (file, 1) => Ok(file),
            _ => Err(CollectError::Linked),
        }
    }

    /// Reads a file of at most `max_bytes` into memory.
    pub fn read_small(&self, relative: &str, max_bytes: u64) -> Result<Vec<u8>, CollectError> {
        let mut content = Vec::new();
        let mut file = self.open_file(relative, max_bytes)?;
        file.read_to_end(&mut content).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => CollectError::TooLarge { limit: max_bytes },
            _ => CollectError::Io(error),
        })?;
        Ok(content)
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// A file of a container's output. Reading past the caller's limit is an error of kind
/// [`FileTooLarge`](io::ErrorKind::FileTooLarge), whatever size the file claimed.
#[derive(Debug)]
pub struct CollectedFile {
    file: File,
    size_bytes: u64,
    read: u64,
    max_bytes: u64,
}

impl CollectedFile {
    /// Its size in bytes when it was opened.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl AsFd for CollectedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Read for CollectedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read = self.read.saturating_add(count as u64);
        if self.read > self.max_bytes { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(count) }
    }
}

/// Opens a regular file below a folder, whatever else may stand there; with how many names it has.
pub(super) fn open_regular(
    folder: BorrowedFd<'_>,
    relative: &str,
    max_bytes: u64,
) -> Result<(CollectedFile, u64), CollectError> {
    // O_NONBLOCK: a pipe without a writer would hold us.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(folder, relative, flags, Mode::empty(), RESOLVE)?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(CollectError::NotRegular);
    }
    let size_bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size_bytes > max_bytes {
        return Err(CollectError::TooLarge { limit: max_bytes });
    }
    Ok((CollectedFile { file: file.into(), size_bytes, read: 0, max_bytes }, stat.st_nlink))
}

pub(super) fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens a folder right below another, and not what a link of that name leads to.
pub(super) fn open_dir<P: rustix::path::Arg>(parent: BorrowedFd<'_>, name: P) -> Result<OwnedFd, Errno> {
    openat2(parent, name, directory(), Mode::empty(), RESOLVE)
}
