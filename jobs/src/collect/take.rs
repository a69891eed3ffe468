//! Takes a file out of a hostile folder, into one of ours, without copying it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, fstat, openat, openat2, renameat, statat};

use super::CollectError;
use super::output::{OutputDir, RESOLVE, directory};

impl OutputDir {
    /// Moves a file of at most `max_bytes`, whose path relative to the folder the caller knows, into `target` (a folder
    /// of ours on the same file system), under its own name and readable for everyone who gets that far.
    pub fn move_file(&self, relative: &str, target: &Path, max_bytes: u64) -> Result<(), CollectError> {
        let file = self.open_file(relative, max_bytes)?;
        let (parent, name) = relative.rsplit_once('/').unwrap_or((".", relative));
        let parent = openat2(self.root(), parent, directory(), Mode::empty(), RESOLVE)?;
        let target = openat(CWD, target, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        renameat(&parent, name, &target, name)?;
        // The writer is gone, so the name is still the file's. Should that ever not hold, nothing is taken.
        let (opened, moved) = (fstat(file.as_fd())?, statat(&target, name, AtFlags::SYMLINK_NOFOLLOW)?);
        if (opened.st_dev, opened.st_ino) != (moved.st_dev, moved.st_ino) {
            return Err(CollectError::NotRegular);
        }
        fchmod(file.as_fd(), Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// An output folder, and beside it a folder of ours.
    fn folders() -> (tempfile::TempDir, OutputDir, std::path::PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let output = OutputDir::create(&parent.path().join("out"), user).unwrap();
        let target = parent.path().join("report");
        fs::create_dir(&target).unwrap();
        (parent, output, target)
    }

    #[test]
    fn a_file_is_moved_whole_and_made_readable() {
        let (_parent, output, target) = folders();
        fs::create_dir(output.path().join("profile")).unwrap();
        let source = output.path().join("profile/a.ncu-rep");
        fs::write(&source, "report").unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o600)).unwrap();

        output.move_file("profile/a.ncu-rep", &target, 100).unwrap();
        assert_eq!(fs::read(target.join("a.ncu-rep")).unwrap(), b"report");
        assert_eq!(fs::metadata(target.join("a.ncu-rep")).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(!source.exists());
    }

    #[test]
    fn neither_a_link_nor_a_folder_behind_a_link_is_moved() {
        let (parent, output, target) = folders();
        let secret = parent.path().join("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("a.ncu-rep"), "host").unwrap();
        symlink(&secret, output.path().join("profile")).unwrap();
        symlink(secret.join("a.ncu-rep"), output.path().join("b.ncu-rep")).unwrap();

        for relative in ["profile/a.ncu-rep", "b.ncu-rep", "../secret/a.ncu-rep"] {
            assert!(output.move_file(relative, &target, 100).is_err(), "{relative}");
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        assert_eq!(fs::read(secret.join("a.ncu-rep")).unwrap(), b"host");
    }

    #[test]
    fn a_file_that_is_too_large_stays() {
        let (_parent, output, target) = folders();
        fs::write(output.path().join("a"), [0; 101]).unwrap();
        assert!(matches!(output.move_file("a", &target, 100), Err(CollectError::TooLarge { limit: 100 })));
    }
}
