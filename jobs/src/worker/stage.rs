//! The folder of one run: what goes into its containers and what comes out.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use ncu_runner::protocol::{self, ClockControl, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::artifacts::manifest::Limits;
use crate::collect::OutputDir;
use crate::problems::{FileDigest, Revision};
use crate::sandbox::{ContainerUser, Image};
use crate::{Error, Result};

const CAPTURE_INPUT: &str = "in";
const CAPTURE_OUTPUT: &str = "out";
const EXPORT_INPUT: &str = "export-in";
const EXPORT_OUTPUT: &str = "export-out";
const ORIGIN_FILE: &str = "origin.json";

/// Folders of one run, beneath that of its attempt. Only we can enter them; a container sees its own mounts.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// What a run was begun with. It is asked for once: a redeploy may change it while the capture goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// When.
    pub began_at: DateTime<Utc>,
    /// The image of its containers.
    pub image: Image,
    /// The checkout's revision.
    pub revision: Revision,
    /// The evaluator's files.
    pub problem_files: Vec<FileDigest>,
    /// What the profiler was told to do with the clocks.
    pub clock_control: ClockControl,
    /// What its container was allowed.
    pub limits: Limits,
}

impl RunFolder {
    /// Makes a fresh folder; what an earlier start of this attempt left there is removed first.
    pub fn create(path: PathBuf) -> Result<Self> {
        remove(&path)?;
        make_private(&path)?;
        Ok(Self { path })
    }

    /// The folder of a capture that an earlier holder of the attempt began. What it had made of the capture's output is removed
    /// and made anew.
    pub fn reopen(path: PathBuf) -> Result<Self> {
        for name in [EXPORT_INPUT, EXPORT_OUTPUT] {
            remove(&path.join(name))?;
        }
        let folder = Self { path };
        match fs::remove_file(folder.archive()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("removing an unfinished archive")(error))
            }
            _ => Ok(folder),
        }
    }

    /// Notes what the run was begun with.
    pub fn note_origin(&self, origin: &Origin) -> Result<()> {
        write_readable(&self.path, ORIGIN_FILE, &serde_json::to_vec_pretty(origin)?)
    }

    /// What the run was begun with.
    pub fn origin(&self) -> Result<Origin> {
        read(&self.path.join(ORIGIN_FILE))
    }

    /// What the capture was told.
    pub fn capture_request(&self) -> Result<Request> {
        read(&self.path.join(CAPTURE_INPUT).join(file_name(protocol::REQUEST_FILE)))
    }

    /// The folder that the capture was given to write.
    pub fn reopen_capture_output(&self) -> Result<OutputDir> {
        let path = self.path.join(CAPTURE_OUTPUT);
        OutputDir::open(&path).map_err(Error::io(format!("opening the folder {}", path.display())))
    }

    /// The input folder of a capture: the request and the submission.
    pub fn capture_input(&self, request: &Request, source: &str) -> Result<PathBuf> {
        let input = self.input(CAPTURE_INPUT, request)?;
        write_readable(&input, protocol::SUBMISSION_FILE, source.as_bytes())?;
        Ok(input)
    }

    /// The input folder of an export: the request.
    pub fn export_input(&self, request: &Request) -> Result<PathBuf> {
        self.input(EXPORT_INPUT, request)
    }

    /// The folder that the capture may write.
    pub fn capture_output(&self, user: ContainerUser) -> Result<OutputDir> {
        output(&self.path.join(CAPTURE_OUTPUT), user)
    }

    /// The folder that the export may write.
    pub fn export_output(&self, user: ContainerUser) -> Result<OutputDir> {
        output(&self.path.join(EXPORT_OUTPUT), user)
    }

    /// A folder of ours for the collected report, which the export reads.
    pub fn report(&self) -> Result<PathBuf> {
        let report = self.path.join("report");
        if !report.is_dir() {
            make_readable(&report)?;
        }
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
    let path = folder.join(file_name(container_path));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&path)
        .and_then(|mut file| file.write_all(content));
    written.map_err(Error::io(format!("writing {}", path.display())))
}

/// The name on this host of a file that the container has at that path.
fn file_name(container_path: &str) -> &OsStr {
    Path::new(container_path).file_name().unwrap_or_default()
}

/// Reads JSON that this service wrote.
fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let json = fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
    Ok(serde_json::from_slice(&json)?)
}
