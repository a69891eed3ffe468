//! One capture a GPU: a file per GPU that is locked while a capture's container runs, by whichever worker of this host. A second
//! file is the place at the head of those who wait, so that a worker whose next container is ready does not take every turn.
//!
//! The kernel drops a lock with the process that held it, however that ended; the container that it ran lives on. So the
//! holder writes the container's name into the file, and who finds a name there sees to that container first.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::devices::Gpu;
use crate::{Error, Result};

/// Time between two tries of the one at the head: the GPU idles meanwhile.
const HEAD_PAUSE: Duration = Duration::from_millis(4);
/// Time between two tries of the others. The head may be frozen, and then the GPU must not wait for it.
const PAST_HEAD: Duration = Duration::from_secs(1);

/// Longest name of a container that is read back, in bytes.
const MAX_NAME_BYTES: u64 = 256;

/// A turn on one or more GPUs. Dropping it ends the turn, and leaves the container's name to the next holder.
#[derive(Debug)]
pub struct Turn {
    files: Vec<File>,
}

impl Turn {
    /// Waits for every GPU in turn; `None` when `stop` fires first.
    ///
    /// It asks again and again, since a thread that waits in the kernel could not be called back. Whoever is at the head goes
    /// next; behind it nobody is first by right.
    pub(super) async fn take(folder: &Path, gpus: &[Gpu], stop: &CancellationToken) -> Result<Option<Self>> {
        let mut files = Vec::with_capacity(gpus.len());
        for gpu in gpus {
            let locked = lock_in_order(folder, gpu);
            let Some(file) = stop.run_until_cancelled(locked).await else { return Ok(None) };
            files.push(file?);
        }
        Ok(Some(Self { files }))
    }

    /// Names of the containers that earlier holders did not see to their end.
    pub fn left_behind(&mut self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for file in &mut self.files {
            let mut text = Vec::new();
            let read = file.rewind().and_then(|()| file.take(MAX_NAME_BYTES).read_to_end(&mut text));
            read.map_err(Error::io("reading a GPU's lock file"))?;
            let name = String::from_utf8_lossy(&text);
            let name = name.trim();
            if !name.is_empty() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Notes the container that runs next, before it is there.
    pub fn note(&mut self, container: &str) -> Result<()> {
        self.write(container)
    }

    /// Ends the turn after a container that is gone.
    pub fn finish(mut self) -> Result<()> {
        self.write("")
    }

    fn write(&mut self, name: &str) -> Result<()> {
        for file in &mut self.files {
            let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(name.as_bytes()));
            written.map_err(Error::io("writing a GPU's lock file"))?;
        }
        Ok(())
    }
}

/// Makes the folder of locks, closed to other users: who can write there can stop every capture.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(Error::io(format!("making the folder of GPU locks {} (NCU_SERVICE_GPU_LOCK_DIR)", folder.display())))
}

/// Locks a GPU after those who have waited for longer.
async fn lock_in_order(folder: &Path, gpu: &Gpu) -> Result<File> {
    let (file, head) =
        (open(folder, &format!("{}.lock", gpu.address))?, open(folder, &format!("{}.next", gpu.address))?);
    let mut tried_at = Instant::now();
    // The place at the head is free again as soon as its file is closed.
    while !try_lock(&head, gpu)? {
        if tried_at.elapsed() >= PAST_HEAD {
            if try_lock(&file, gpu)? {
                return Ok(file);
            }
            tried_at = Instant::now();
        }
        sleep(pause()).await;
    }
    while !try_lock(&file, gpu)? {
        sleep(HEAD_PAUSE).await;
    }
    Ok(file)
}

fn try_lock(file: &File, gpu: &Gpu) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(Error::io(format!("locking GPU {}", gpu.address))(error)),
    }
}

fn open(folder: &Path, name: &str) -> Result<File> {
    make_folder(folder)?;
    let path = folder.join(name);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(Error::io(format!("opening {}", path.display())))
}

/// 40 to 60 ms: two that wait do not fall into step.
fn pause() -> Duration {
    Duration::from_millis(40 + u64::from(uuid::Uuid::new_v4().as_bytes()[0] % 21))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use futures_util::poll;

    use super::*;

    fn gpus() -> Vec<Gpu> {
        vec![Gpu::at("none")]
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let locks = parent.path().join("locks");
        (parent, locks)
    }

    #[tokio::test]
    async fn one_that_waits_goes_before_one_that_comes_again() {
        let ((_parent, locks), gpus, stop) = (folder(), gpus(), CancellationToken::new());
        let mut held = Turn::take(&locks, &gpus, &stop).await.unwrap().unwrap();
        for _ in 0..5 {
            let mut waits = std::pin::pin!(Turn::take(&locks, &gpus, &stop));
            assert!(poll!(&mut waits).is_pending(), "it is at the head from here on");
            held.finish().unwrap();
            let mut again = std::pin::pin!(Turn::take(&locks, &gpus, &stop));
            assert!(poll!(&mut again).is_pending());
            let next = waits.await.unwrap().unwrap();
            assert!(poll!(&mut again).is_pending(), "one at a time");
            held = next;
        }
    }

    #[tokio::test]
    async fn a_head_that_is_frozen_holds_nobody_up_for_good() {
        let ((_parent, locks), gpus, stop) = (folder(), gpus(), CancellationToken::new());
        let head = open(&locks, "none.next").unwrap();
        head.lock().unwrap();
        assert!(Turn::take(&locks, &gpus, &stop).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn one_that_gives_up_leaves_its_place() {
        let ((_parent, locks), gpus, stop) = (folder(), gpus(), CancellationToken::new());
        let held = Turn::take(&locks, &gpus, &stop).await.unwrap().unwrap();
        {
            let mut waits = std::pin::pin!(Turn::take(&locks, &gpus, &stop));
            assert!(poll!(&mut waits).is_pending());
        }
        drop(held);
        assert!(try_lock(&open(&locks, "none.next").unwrap(), &gpus[0]).unwrap());
        let stopped = CancellationToken::new();
        stopped.cancel();
        let _held = Turn::take(&locks, &gpus, &stop).await;
        assert!(Turn::take(&locks, &gpus, &stopped).await.unwrap().is_none());
    }
}
