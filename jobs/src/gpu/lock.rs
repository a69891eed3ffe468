//! One capture a GPU: a file per GPU that is locked while a capture's container runs, by whichever worker of this host.
//!
//! The kernel drops a lock with the process that held it, however that ended; the container that it ran lives on. So the
//! holder writes the container's name into the file, and who finds a name there sees to that container first.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::devices::Gpu;
use crate::{Error, Result};

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
    /// It asks again and again, since a thread that waits in the kernel could not be called back. Nobody is first by right,
    /// but a holder has an export to make before it comes again.
    pub(super) async fn take(folder: &Path, gpus: &[Gpu], stop: &CancellationToken) -> Result<Option<Self>> {
        let mut files = Vec::with_capacity(gpus.len());
        for gpu in gpus {
            let file = open(folder, &gpu.address)?;
            loop {
                match file.try_lock() {
                    Ok(()) => break,
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(error)) => {
                        return Err(Error::io(format!("locking GPU {}", gpu.address))(error));
                    }
                }
                if stop.run_until_cancelled(sleep(pause())).await.is_none() {
                    return Ok(None);
                }
            }
            files.push(file);
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

fn open(folder: &Path, name: &str) -> Result<File> {
    make_folder(folder)?;
    let path = folder.join(format!("{name}.lock"));
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
