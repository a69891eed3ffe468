//! Files and folders at names where a submission may have put something else first.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::trouble::{Result, Trouble};

/// Names that are tried before a displacement is given up.
const MAX_TRIES: u32 = 16;

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
}
