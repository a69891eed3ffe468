//! The folder of an attempt on this host, and the lock that says whether its holder lives.
//!
//! A folder is `<jobs dir>/<instance>/<claim token>.<adoption>`. An adopter renames it, so that a holder that comes back finds
//! nothing where it left its files; what runs in a container keeps its mounts.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::{Error, Result};

/// Locked by the holder for as long as it lives: the kernel drops the lock with the process.
const LOCK_FILE: &str = "held";
/// What a lock file is called until it is locked.
const NEW_LOCK_FILE: &str = "held.new";

/// A symbolic link to the problems that the attempt reads.
const PROBLEMS_LINK: &str = "problems";

/// The folder of an attempt that this process holds.
#[derive(Debug)]
pub struct AttemptFolder {
    path: PathBuf,
    _lock: File,
}

impl AttemptFolder {
    /// Makes the folder of a fresh claim.
    pub fn create(instance_dir: &Path, claim_token: Uuid) -> Result<Self> {
        let path = path_of(instance_dir, claim_token, 0);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(Error::io(format!("making the folder {}", path.display())))?;
        Ok(Self { _lock: lock(&path)?, path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a shape's files lie.
    #[must_use]
    pub fn of_run(&self, benchmark_index: u32) -> PathBuf {
        self.path.join(benchmark_index.to_string())
    }

    /// Notes the folder of the problems that the attempt reads, for whoever adopts it.
    pub fn note_problems(&self, root: &Path) -> Result<()> {
        symlink(root, self.path.join(PROBLEMS_LINK)).map_err(Error::io("noting the problems of an attempt"))
    }

    /// The folder that an earlier holder noted, if it is still there.
    #[must_use]
    pub fn problems(&self) -> Option<PathBuf> {
        fs::read_link(self.path.join(PROBLEMS_LINK)).ok().filter(|root| root.is_dir())
    }
}

/// A folder of an attempt, whoever holds it.
#[derive(Debug)]
pub struct FoundFolder {
    /// Where it is.
    pub path: PathBuf,
    /// The attempt's claim; `None` where the name says nothing.
    pub claim_token: Option<Uuid>,
    /// Its holder's lock, once that is dead.
    lock: Option<File>,
}

impl FoundFolder {
    /// The folders beneath the instance's folder; none while that is not there.
    pub fn list(instance_dir: &Path) -> Result<Vec<Self>> {
        let action = || format!("listing {}", instance_dir.display());
        let entries = match fs::read_dir(instance_dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(action())(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(Error::io(action()))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let claim_token = name.and_then(|name| Uuid::try_parse(name.split_once('.')?.0).ok());
            found.push(Self { path, claim_token, lock: None });
        }
        Ok(found)
    }

    /// Whether its holder is dead. If so, the lock is this process's from here on, and nobody else finds it dead.
    pub fn is_abandoned(&mut self) -> bool {
        // Without a lock there is nothing to go by but the lease.
        let Ok(file) = File::open(self.path.join(LOCK_FILE)) else { return false };
        if file.try_lock().is_err() {
            return false;
        }
        self.lock = Some(file);
        true
    }

    /// Makes it the folder of the attempt's next holder.
    pub fn take_over(self, instance_dir: &Path, claim_token: Uuid, adoption: i32) -> Result<AttemptFolder> {
        let path = path_of(instance_dir, claim_token, adoption);
        fs::rename(&self.path, &path).map_err(Error::io(format!("taking over {}", self.path.display())))?;
        // A holder that was frozen keeps a lock on a file that has no name any more.
        let lock = self.lock.map_or_else(|| lock(&path), Ok)?;
        Ok(AttemptFolder { path, _lock: lock })
    }
}

fn path_of(instance_dir: &Path, claim_token: Uuid, adoption: i32) -> PathBuf {
    instance_dir.join(format!("{}.{adoption}", claim_token.as_simple()))
}

/// The file is locked before it has its name, so nobody finds it unlocked while its maker lives.
fn lock(folder: &Path) -> Result<File> {
    let new = folder.join(NEW_LOCK_FILE);
    let action = || format!("locking {}", folder.display());
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let file = file.map_err(Error::io(action()))?;
    file.try_lock().map_err(|error| Error::io(action())(error.into()))?;
    fs::rename(&new, folder.join(LOCK_FILE)).map_err(Error::io(action()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(instance_dir: &Path) -> FoundFolder {
        let mut found = FoundFolder::list(instance_dir).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn a_holder_that_lives_is_not_taken_for_dead_and_a_dead_one_is_found_so_once() {
        let instance = tempfile::tempdir().unwrap();
        assert!(FoundFolder::list(&instance.path().join("missing")).unwrap().is_empty());
        let claim = Uuid::new_v4();
        let held = AttemptFolder::create(instance.path(), claim).unwrap();
        assert!(!only(instance.path()).is_abandoned());
        drop(held);
        let mut found = only(instance.path());
        assert_eq!(found.claim_token, Some(claim));
        assert!(found.is_abandoned());
        assert!(!only(instance.path()).is_abandoned(), "another adopter has it");
        let taken = found.take_over(instance.path(), claim, 1).unwrap();
        assert!(!only(instance.path()).is_abandoned(), "the adopter lives");
        drop(taken);
        assert!(only(instance.path()).is_abandoned());
    }

    #[test]
    fn an_adopter_finds_the_problems_that_the_attempt_was_begun_with_while_they_are_there() {
        let (instance, problems) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let claim = Uuid::new_v4();
        let held = AttemptFolder::create(instance.path(), claim).unwrap();
        assert_eq!(held.problems(), None);
        held.note_problems(problems.path()).unwrap();
        drop(held);
        let taken = only(instance.path()).take_over(instance.path(), claim, 1).unwrap();
        assert_eq!(taken.problems().as_deref(), Some(problems.path()));
        problems.close().unwrap();
        assert_eq!(taken.problems(), None);
    }

    #[test]
    fn what_a_frozen_holder_does_in_its_folder_meets_nothing_of_the_adopters() {
        let instance = tempfile::tempdir().unwrap();
        let claim = Uuid::new_v4();
        let frozen = AttemptFolder::create(instance.path(), claim).unwrap();
        fs::create_dir(frozen.of_run(0)).unwrap();
        let taken = only(instance.path()).take_over(instance.path(), claim, 1).unwrap();
        assert!(taken.of_run(0).exists());
        assert!(!frozen.of_run(0).exists());
        drop(frozen);
        assert!(!only(instance.path()).is_abandoned(), "the adopter has a lock of its own");
    }
}
