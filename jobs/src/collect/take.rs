//! Takes a file out of a hostile folder, into one of ours, without copying it.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, linkat, openat, openat2, unlinkat};

use super::output::{CollectedFile, OutputDir, RESOLVE, directory, open_regular};
use super::{CollectError, TakenDir};

impl OutputDir {
    /// Moves a file of at most `max_bytes`, whose path relative to the folder the caller knows, into `target` (a folder
    /// of ours on the same file system), under its own name and readable for everyone who gets that far. It is there whole
    /// and looked at, or it is not there.
    pub fn move_file(&self, relative: &str, target: &Path, max_bytes: u64) -> Result<(), CollectError> {
        let file = self.open_file(relative, max_bytes)?;
        let (parent, name) = relative.rsplit_once('/').unwrap_or((".", relative));
        let parent = openat2(self.root(), parent, directory(), Mode::empty(), RESOLVE)?;
        let target = openat(CWD, target, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        fchmod(file.as_fd(), Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)?;
        // By its handle and not by its name: what was looked at is what is taken, whatever has the name by now.
        linkat(CWD, format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()), &target, name, AtFlags::SYMLINK_FOLLOW)?;
        // It is ours already, and what the container called it goes with the container's folder at the latest.
        let _ = unlinkat(&parent, name, AtFlags::empty());
        Ok(())
    }
}

impl TakenDir<'_> {
    /// Whether a file of that name has been taken into the folder.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.join(name).symlink_metadata().is_ok_and(|found| found.is_file())
    }

    /// Opens a taken file of at most `max_bytes`.
    pub fn open_file(&self, name: &str, max_bytes: u64) -> Result<CollectedFile, CollectError> {
        let folder = openat(CWD, self.0, directory(), Mode::empty())?;
        // Of its links the second may still be in the container's folder, where nobody writes any more.
        open_regular(folder.as_fd(), name, max_bytes).map(|(file, _links)| file)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
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

        let taken = TakenDir(&target);
        assert!(taken.has("a.ncu-rep") && !taken.has("b.ncu-rep"));
        let mut report = String::new();
        taken.open_file("a.ncu-rep", 100).unwrap().read_to_string(&mut report).unwrap();
        assert_eq!(report, "report");
        assert!(matches!(taken.open_file("a.ncu-rep", 5), Err(CollectError::TooLarge { limit: 5 })));
    }

    #[test]
    fn what_has_the_place_of_a_taken_file_without_being_one_is_not_taken_for_it() {
        let (parent, _output, target) = folders();
        fs::write(parent.path().join("secret"), "host").unwrap();
        symlink("../secret", target.join("a.ncu-rep")).unwrap();
        fs::create_dir(target.join("b.ncu-rep")).unwrap();
        for name in ["a.ncu-rep", "b.ncu-rep"] {
            assert!(!TakenDir(&target).has(name), "{name}");
            assert!(matches!(TakenDir(&target).open_file(name, 100), Err(CollectError::NotRegular)), "{name}");
        }
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
