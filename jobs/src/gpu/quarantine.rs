//! A GPU that is ill is left alone until a person says otherwise: a file beside its lock says why.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{SecondsFormat, Utc};

use super::devices::Gpu;
use super::lock::make_folder;
use crate::{Error, Result};

/// A GPU in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The GPU's address.
    pub gpu: String,
    /// Time and reason, or whatever a person wrote there.
    pub reason: String,
    /// The file whose absence lifts it.
    pub file: PathBuf,
}

/// The first of these GPUs that is in quarantine.
pub(super) fn find(folder: &Path, gpus: &[Gpu]) -> Result<Option<Quarantine>> {
    for gpu in gpus {
        let file = file_of(folder, gpu);
        match fs::read(&file) {
            Ok(text) => {
                let reason = String::from_utf8_lossy(&text).trim().to_owned();
                return Ok(Some(Quarantine { gpu: gpu.address.clone(), reason, file }));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(format!("reading {}", file.display()))(error)),
        }
    }
    Ok(None)
}

/// Puts GPUs into quarantine.
pub(super) fn begin(folder: &Path, gpus: &[Gpu], reason: &str) -> Result<()> {
    make_folder(folder)?;
    for gpu in gpus {
        let file = file_of(folder, gpu);
        let text = format!("{} {reason}\n", Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true));
        fs::write(&file, text).map_err(Error::io(format!("writing {}", file.display())))?;
        tracing::error!(gpu = gpu.address, reason, file = %file.display(), "GPU put into quarantine; ncu-worker unquarantine lifts it");
    }
    Ok(())
}

/// Lifts the quarantine of these GPUs; says which there was.
pub(super) fn lift(folder: &Path, gpus: &[Gpu]) -> Result<Vec<Quarantine>> {
    let mut lifted = Vec::new();
    while let Some(quarantine) = find(folder, gpus)? {
        let file = &quarantine.file;
        fs::remove_file(file).map_err(Error::io(format!("removing {}", file.display())))?;
        lifted.push(quarantine);
    }
    Ok(lifted)
}

fn file_of(folder: &Path, gpu: &Gpu) -> PathBuf {
    folder.join(format!("{}.quarantine", gpu.address))
}
