//! The folder of one run: what goes into its containers and what comes out.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ncu_runner::protocol::{self, Request};
use uuid::Uuid;

use crate::collect::OutputDir;
use crate::sandbox::ContainerUser;
use crate::{Error, Result};

/// Folders of one run, beneath `<jobs dir>/<instance>/<token>/`. Only we can enter them; a container sees its own mounts.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes a fresh folder; what an earlier start of this attempt left there is removed first.
    pub fn create(path: PathBuf) -> Result<Self> {
        remove(&path)?;
        make_private(&path)?;
        Ok(Self { path })
    }

    /// The input folder of a capture: the request and the submission.
    pub fn capture_input(&self, request: &Request, source: &str) -> Result<PathBuf> {
        let input = self.input("in", request)?;
        write_readable(&input, protocol::SUBMISSION_FILE, source.as_bytes())?;
        Ok(input)
    }

    /// The input folder of an export: the request.
    pub fn export_input(&self, request: &Request) -> Result<PathBuf> {
        self.input("export-in", request)
    }

    /// The folder that the capture may write.
    pub fn capture_output(&self, user: ContainerUser) -> Result<OutputDir> {
        output(&self.path.join("out"), user)
    }

    /// The folder that the export may write.
    pub fn export_output(&self, user: ContainerUser) -> Result<OutputDir> {
        output(&self.path.join("export-out"), user)
    }

    /// A folder of ours for the collected report, which the export reads.
    pub fn report(&self) -> Result<PathBuf> {
        let report = self.path.join("report");
        make_readable(&report)?;
        Ok(report)
    }

    /// Where the archive is written.
    #[must_use]
    pub fn archive(&self) -> PathBuf {
        self.path.join("archive.zip")
    }

    fn input(&self, name: &str, request: &Request) -> Result<PathBuf> {
        let input = self.path.join(name);
        make_readable(&input)?;
        write_readable(&input, protocol::REQUEST_FILE, &serde_json::to_vec_pretty(request)?)?;
        Ok(input)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            // The sweep tries again; a full disk is the operator's to see.
            tracing::warn!(%error, folder = %self.path.display(), "a run's folder could not be removed");
        }
    }
}

/// Removes a folder of runs, hostile output included. One that is not there is no error.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match OutputDir::open(path) {
        Ok(folder) => folder.remove_all(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(Error::io(format!("removing {}", path.display())))
}

fn output(path: &Path, user: ContainerUser) -> Result<OutputDir> {
    OutputDir::create(path, (user.uid, user.gid)).map_err(Error::io(format!("making the folder {}", path.display())))
}

fn make_private(path: &Path) -> Result<()> {
    make(path, 0o700)
}

/// A folder whose content the container's user may read. Its parent keeps everybody else on this host out.
fn make_readable(path: &Path) -> Result<()> {
    make(path, 0o755)
}

fn make(path: &Path, mode: u32) -> Result<()> {
    let action = || format!("making the folder {}", path.display());
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(Error::io(action()))?;
    }
    DirBuilder::new().mode(mode).create(path).map_err(Error::io(action()))
}

/// Writes a file under the name that it has in the container.
fn write_readable(folder: &Path, container_path: &str, content: &[u8]) -> Result<()> {
    let name = Path::new(container_path).file_name().unwrap_or_default();
    let path = folder.join(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&path)
        .and_then(|mut file| file.write_all(content));
    written.map_err(Error::io(format!("writing {}", path.display())))
}

/// The folder of one attempt. Its name is the attempt's token, so a sweep can tell the dead from the living.
#[must_use]
pub fn attempt_folder(instance_dir: &Path, token: Uuid) -> PathBuf {
    instance_dir.join(token.as_simple().to_string())
}

/// Folders of attempts beneath the instance's folder.
pub fn attempt_folders(instance_dir: &Path) -> Result<Vec<PathBuf>> {
    let action = || format!("listing {}", instance_dir.display());
    match fs::read_dir(instance_dir) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path()).map_err(Error::io(action()))).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io(action())(error)),
    }
}
