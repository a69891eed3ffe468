//! Files and folders at names where a submission may have put something else first.

use std::ffi::CStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, Dir, Mode, OFlags, RenameFlags, open, openat, renameat_with};
use rustix::io::Errno;

use crate::trouble::{Result, Trouble};

/// Names that are tried before a displacement is given up.
const MAX_TRIES: u32 = 16;
/// Entries of a folder that are looked at.
const MAX_LISTED: usize = 1000;

/// Creates an empty file at `path`, whatever stood there before.
pub fn create_new(path: &Path) -> Result<File> {
    displace(path)?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .mode(0o644)
        .open(path)
        .map_err(|error| Trouble::at("creating", path, error))
}

/// Creates an empty folder at `path`, whatever stood there before.
pub fn fresh_dir(path: &Path) -> Result<()> {
    displace(path)?;
    DirBuilder::new().mode(0o755).create(path).map_err(|error| Trouble::at("creating", path, error))
}

/// The contents of the plain files of a folder that a submission could write, in the order of their names: links are not
/// followed, and what is larger than `max_bytes` is left out, as is what comes after `max_files`.
pub fn read_all(folder: &Path, max_files: usize, max_bytes: u64) -> Result<Vec<Vec<u8>>> {
    let about = |errno: Errno| Trouble::at("reading", folder, errno);
    let directory = match open(folder, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(directory) => directory,
        // Whoever could write it could also remove, replace or close it.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(Vec::new()),
        Err(errno) => return Err(about(errno)),
    };
    let mut names: Vec<_> = Dir::read_from(&directory)
        .map_err(about)?
        .take(MAX_LISTED)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_owned()))
        .collect();
    names.sort();
    let contents = names.iter().filter_map(|name| read_plain(&directory, name, max_bytes));
    Ok(contents.take(max_files).collect())
}

/// A plain file's content; `None` for anything else, for what is too large and for what cannot be read.
fn read_plain(directory: &OwnedFd, name: &CStr, max_bytes: u64) -> Option<Vec<u8>> {
    // Without NONBLOCK the opening of a FIFO would wait for a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut content = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= max_bytes).then_some(content)
}

/// Moves away what stands at `path`, if anything does. A rename takes the same short time for a symlink and for a tree
/// of a million files, and follows nothing.
fn displace(path: &Path) -> Result<()> {
    let mut last = Errno::EXIST;
    for _ in 0..MAX_TRIES {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let aside = path.with_file_name(format!(".displaced-{nanos}"));
        match renameat_with(CWD, path, CWD, &aside, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(errno) => last = errno,
        }
    }
    Err(Trouble::at("moving away", path, last))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn a_planted_symlink_is_displaced_and_its_target_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (target, name) = (dir.path().join("target"), dir.path().join("outcome.json"));
        fs::write(&target, "theirs").unwrap();
        symlink(&target, &name).unwrap();

        create_new(&name).unwrap().write_all(b"ours").unwrap();

        assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
        assert!(fs::symlink_metadata(&name).unwrap().is_file());
        assert_eq!(fs::read_to_string(&name).unwrap(), "ours");
    }

    #[test]
    fn a_planted_folder_gives_way_to_a_file_and_to_an_empty_folder() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("x");
        fs::create_dir_all(name.join("deep/er")).unwrap();
        create_new(&name).unwrap();
        assert!(name.is_file());

        fresh_dir(&name).unwrap();
        assert_eq!(fs::read_dir(&name).unwrap().count(), 0);
    }

    #[test]
    fn only_plain_files_of_a_bounded_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [("1", "one"), ("2", "12345"), ("3", "three")] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        fs::write(dir.path().join("4-large"), "123456").unwrap();
        fs::create_dir(dir.path().join("0-folder")).unwrap();
        symlink(dir.path().join("1"), dir.path().join("0-link")).unwrap();
        mknodat(CWD, dir.path().join("0-fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();

        assert_eq!(read_all(dir.path(), 9, 5).unwrap(), [&b"one"[..], b"12345", b"three"]);
        assert_eq!(read_all(dir.path(), 1, 5).unwrap(), [b"one"]);
        assert!(read_all(&dir.path().join("0-link"), 9, 5).unwrap().is_empty());
        assert!(read_all(&dir.path().join("missing"), 9, 5).unwrap().is_empty());
    }
}
