//! The catalog: looks a leaderboard up, and reads files again only when they have changed.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::index::{Index, MAX_NAME_BYTES};
use super::revision::RevisionCache;
use super::task::{Reading, Refusal};
use super::{Problem, ProblemError, Revision};

/// The problems directory, read anew whenever its files have changed.
///
/// Each call blocks on the file system: a listing and a `stat` of some twenty files, and after a change a reading of
/// those (small) files too. [`Catalog::revision`] runs `git` at most every few seconds. An asynchronous caller with
/// much else on its thread uses `spawn_blocking`. Callers on several threads wait for one another.
#[derive(Debug)]
pub struct Catalog {
    root: PathBuf,
    known: Mutex<Known>,
    revision: RevisionCache,
}

/// What has been read so far.
#[derive(Debug, Default)]
struct Known {
    index: Option<Arc<Index>>,
    /// By folder. Only folders that the index lists get here, so it stays small.
    readings: HashMap<String, Reading>,
}

impl Catalog {
    /// The catalog of a problems directory. Nothing is read yet.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { revision: RevisionCache::new(root.clone()), root, known: Mutex::default() }
    }

    /// The problems directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The catalog of the folder that the problems directory is now. Where a symbolic link leads there, this one stays with
    /// that folder when the link is turned to another.
    pub fn pinned(self: &Arc<Self>) -> io::Result<Arc<Self>> {
        let now = self.root.canonicalize()?;
        Ok(if now == self.root { Arc::clone(self) } else { Arc::new(Self::new(now)) })
    }

    /// The problem behind a leaderboard's name, or behind a folder that a leaderboard has.
    ///
    /// [`ProblemError`] tells a wrong name, a problem that cannot be profiled, and broken files apart.
    pub fn problem(&self, name: &str) -> Result<Arc<Problem>, ProblemError> {
        let mut known = self.lock();
        let broken = |detail| ProblemError::Broken { name: shortened(name), detail };
        let index = known.index(&self.root).map_err(broken)?;
        let Some(directory) = index.directory(name) else {
            return Err(ProblemError::Unknown { name: shortened(name), nearest: index.nearest(name) });
        };
        known.verdict(&self.root, directory).map_err(|refusal| match refusal {
            Refusal::NotProfilable(reason) => {
                ProblemError::NotProfilable(format!("Leaderboard {name:?} cannot be profiled: {reason}."))
            }
            Refusal::Broken(detail) => broken(detail),
        })
    }

    /// All leaderboards and their folders, whether or not they can be profiled; empty where the problems directory
    /// cannot be listed, which is logged.
    #[must_use]
    pub fn leaderboards(&self) -> BTreeMap<String, String> {
        match self.lock().index(&self.root) {
            Ok(index) => index.directories.clone(),
            Err(error) => {
                tracing::error!(error, "the problems directory cannot be listed");
                BTreeMap::new()
            }
        }
    }

    /// The checkout's revision, as it was at most five seconds ago.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision.get()
    }

    /// A panic while the lock was held leaves at worst an old reading, whose stamps still tell that it is one.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn index(&mut self, root: &Path) -> Result<Arc<Index>, String> {
        if let Some(index) = self.index.as_ref().filter(|index| index.is_current(root)) {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(Index::read(root)?);
        self.readings.retain(|directory, _| index.directory(directory).is_some());
        self.index = Some(Arc::clone(&index));
        Ok(index)
    }

    fn verdict(&mut self, root: &Path, directory: &str) -> Result<Arc<Problem>, Refusal> {
        if let Some(reading) = self.readings.get(directory).filter(|reading| reading.stamps.are_current()) {
            return reading.verdict.clone();
        }
        let reading = Reading::of(root, directory);
        let verdict = reading.verdict.clone();
        self.readings.insert(directory.to_owned(), reading);
        verdict
    }
}

/// A caller's text as it is given back: long enough to recognise.
fn shortened(name: &str) -> String {
    if name.chars().count() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    name.chars().take(MAX_NAME_BYTES).chain(['…']).collect()
}
