//! Removal of a hostile tree: nothing is followed, and neither depth nor breadth costs memory or handles.
//!
//! Instead of walking down, it moves every inner folder up: a folder right below the root is emptied by deleting its
//! files and moving its folders to the root, and is then deleted. So the tree is never deeper than two levels where
//! the work is done, and no path is ever built.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chmod, fchmod, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::output::{OutputDir, open_dir};

impl OutputDir {
    /// Deletes the folder with everything in it. Nobody may write to it any more.
    pub fn remove_all(self) -> io::Result<()> {
        // The container's user may have closed it, against itself and so against us.
        let _ = fchmod(self.root(), Mode::RWXU);
        Flattening { root: self.root(), moved: 0 }.run()?;
        std::fs::remove_dir(self.path())
    }
}

struct Flattening<'a> {
    root: BorrowedFd<'a>,
    /// Folders moved to the root so far: their new names.
    moved: u64,
}

impl Flattening<'_> {
    fn run(&mut self) -> io::Result<()> {
        each_until_empty(self.root, |name, is_dir| {
            if is_dir {
                let folder = enter(self.root, name)?;
                each_until_empty(folder.as_fd(), |inner, is_dir| {
                    if is_dir { self.move_up(folder.as_fd(), inner) } else { unlink(folder.as_fd(), inner) }
                })?;
                Ok(unlinkat(self.root, name, AtFlags::REMOVEDIR)?)
            } else {
                unlink(self.root, name)
            }
        })
    }

    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        // A folder that its owner cannot write cannot be moved.
        drop(enter(parent, name)?);
        loop {
            self.moved += 1;
            match renameat(parent, name, self.root, format!("moved-{}", self.moved)) {
                // The tree has that name already. Each is met once at most, because the count only rises.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                other => return Ok(other?),
            }
        }
    }
}

/// Hands over the entries of a folder, each to be taken out of it, until none is left. Reading goes on while entries
/// come and go, so it may miss some: hence the further passes.
fn each_until_empty(folder: BorrowedFd<'_>, mut take: impl FnMut(&CStr, bool) -> io::Result<()>) -> io::Result<()> {
    loop {
        let mut is_empty = true;
        let mut entries = Dir::read_from(folder)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            is_empty = false;
            let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            take(name, FileType::from_raw_mode(stat.st_mode) == FileType::Directory)?;
        }
        if is_empty {
            return Ok(());
        }
    }
}

fn unlink(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    Ok(unlinkat(parent, name, AtFlags::empty())?)
}

/// Opens a folder for emptying, after giving its owner all rights to it.
fn enter(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let handle =
        openat(parent, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    // A handle of this kind can be had without any right to the folder, and this is the way to change modes by it.
    chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU)?;
    Ok(open_dir(handle.as_fd(), ".")?)
}
