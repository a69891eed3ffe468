//! This host's folders.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Finding;
use crate::Error;
use crate::problems::{Catalog, ProblemError};
use crate::telemetry::metrics;
use crate::worker::{WorkerConfig, blocking};

const PROBLEMS: &str = "problems folder";
const DISK: &str = "disk";

/// Broken leaderboards that are named before the rest is only counted.
const MAX_NAMED: usize = 5;

/// What the checkout of reference-kernels offers.
pub(super) async fn problems(catalog: Arc<Catalog>) -> Finding {
    let looked = blocking(move || Ok(problems_of(&catalog))).await;
    looked.unwrap_or_else(|error| Finding::failed(PROBLEMS, error.to_string(), "see the worker's log"))
}

fn problems_of(catalog: &Catalog) -> Finding {
    let root = catalog.root().display();
    let boards = catalog.leaderboards();
    if boards.is_empty() {
        return Finding::failed(
            PROBLEMS,
            format!("{root} lists no leaderboard"),
            "let NCU_SERVICE_REFERENCE_PROBLEMS_DIR name the problems folder of a reference-kernels checkout",
        );
    }
    let verdicts: Vec<_> = boards.keys().map(|name| (name, catalog.problem(name))).collect();
    let profilable = verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).count();
    let broken: Vec<&str> = verdicts
        .iter()
        .filter(|(_, verdict)| matches!(verdict, Err(ProblemError::Broken { .. })))
        .map(|(name, _)| name.as_str())
        .collect();
    let revision = catalog.revision();
    let commit = revision.commit.as_deref().map_or("no git checkout", |commit| commit.get(..12).unwrap_or(commit));
    let dirty = if revision.dirty == Some(true) { ", changed since" } else { "" };
    let found = format!("{profilable} of {} leaderboards can be profiled; {commit}{dirty}", boards.len());
    if profilable == 0 {
        return Finding::failed(
            PROBLEMS,
            found,
            format!("see that the problems beneath {root} are whole and readable"),
        );
    }
    if broken.is_empty() {
        return Finding::ok(PROBLEMS, found);
    }
    let named = broken.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if broken.len() > MAX_NAMED { " and others" } else { "" };
    Finding::warning(
        PROBLEMS,
        found,
        format!("the files of {named}{more} are broken: see the log, and mend the checkout"),
    )
}

/// Whether runs can be staged. That the engine sees the same folder, the tiny capture shows.
pub(super) fn jobs_dir(config: &WorkerConfig) -> Finding {
    writable("jobs folder", &config.jobs_dir, "NCU_SERVICE_JOBS_DIR")
}

/// Whether turns on the GPU can be taken.
pub(super) fn lock_dir(config: &WorkerConfig) -> Finding {
    writable("GPU locks", &config.gpu.lock_dir, "NCU_SERVICE_GPU_LOCK_DIR")
}

fn writable(what: &'static str, folder: &Path, setting: &str) -> Finding {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    match made.and_then(|()| tempfile::NamedTempFile::new_in(folder)) {
        Ok(_) => Finding::ok(what, folder.display().to_string()),
        Err(error) => Finding::failed(
            what,
            format!("{}: {error}", folder.display()),
            format!("let this user write there; {setting} names another folder"),
        ),
    }
}

/// Free space of the jobs folder and of a local artifact store.
pub(super) fn disk(config: &WorkerConfig) -> Vec<Finding> {
    let store = (config.artifacts_url.scheme() == "file").then(|| config.artifacts_url.to_file_path().ok()).flatten();
    [Some(config.jobs_dir.clone()), store]
        .into_iter()
        .flatten()
        .map(|folder| match free_bytes(&folder) {
            Ok(free) => {
                metrics().disk_has(free, &folder.display().to_string());
                let found = format!("{:.1} GiB free for {}", gibibytes(free), folder.display());
                if free >= config.min_free_bytes {
                    Finding::ok(DISK, found)
                } else {
                    let wanted = gibibytes(config.min_free_bytes);
                    let advice = format!("make room: {wanted:.1} GiB are wanted (NCU_SERVICE_MIN_FREE)");
                    Finding::failed(DISK, found, advice)
                }
            }
            Err(error) => Finding::failed(DISK, error.to_string(), "let this user look at the folder"),
        })
        .collect()
}

/// Free space where a folder is, or will be.
fn free_bytes(folder: &Path) -> Result<u64, Error> {
    let existing: PathBuf = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned();
    let stat = rustix::fs::statvfs(&existing)
        .map_err(|errno| Error::io(format!("measuring {}", existing.display()))(errno.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[allow(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
