//! What an artifact store in a local folder needs besides: its uploads are files of their own until they are finished.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use crate::{Error, Result};

/// Folders below the store's own: `jobs/<id>/<attempt>/`, and one to spare.
const MAX_DEPTH: usize = 4;

/// Deletes the unfinished uploads that were last written before `time`. No listing of the store shows them.
pub(super) fn delete_unfinished(folder: &Path, time: SystemTime) -> Result<u64> {
    delete_in(folder, time, MAX_DEPTH)
}

fn delete_in(folder: &Path, time: SystemTime, depth: usize) -> Result<u64> {
    let about = |path: &Path| Error::io(format!("looking for unfinished uploads in {}", path.display()));
    let entries = match fs::read_dir(folder) {
        // Somebody else may prune, too.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(about(folder))?,
    };
    let mut deleted = 0;
    for entry in entries {
        let entry = entry.map_err(about(folder))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(about(folder))?);
        if kind.is_dir() && depth > 0 {
            deleted += delete_in(&path, time, depth - 1)?;
        } else if kind.is_file() && is_unfinished(&entry.file_name()) {
            let is_old = entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|written| written < time);
            if is_old && fs::remove_file(&path).is_ok() {
                tracing::info!(path = %path.display(), "deleted an upload that was never finished");
                deleted += 1;
            }
        }
    }
    Ok(deleted)
}

/// `object_store` writes to `<name>#<number>` and renames it in the end.
fn is_unfinished(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && name[..name.len() - digits].ends_with(b"#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_an_upload_in_progress_counts_as_unfinished() {
        for name in ["profile.0.zip#1", "a#37"] {
            assert!(is_unfinished(OsStr::new(name)), "{name}");
        }
        for name in ["profile.0.zip", "profile#1.zip", "a#", "7", "a1"] {
            assert!(!is_unfinished(OsStr::new(name)), "{name}");
        }
    }
}
