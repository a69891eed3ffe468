//! What is taken away after its time: archives by age and by their size in all, then the rows of jobs and workers.
//!
//! One worker at a time prunes. A round can break off anywhere: what it left undone, the next one finds.

mod config;

use std::time::Duration;

use chrono::Utc;

pub use config::RetentionConfig;

use crate::artifacts::{ArtifactStore, PROBES};
use crate::ids::JobId;
use crate::queue::Queue;
use crate::{Error, Result};

/// How old an object must be before it counts as left behind: its run may still be about to name it.
const ORPHAN_AGE: Duration = Duration::from_hours(24);
/// Objects that are looked up at once.
const LOOKED_UP: usize = 500;

/// What one round took away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Archives that expired.
    pub expired: u64,
    /// Archives deleted from the store.
    pub deleted: u64,
    /// Objects deleted that no run refers to.
    pub orphans: u64,
    /// Uploads deleted that were never finished.
    pub unfinished: u64,
    /// Jobs.
    pub jobs: u64,
    /// Rows of workers.
    pub workers: u64,
    /// Rows of the operators' log.
    pub admin_log: u64,
}

/// One round. `None` while another worker is at it.
pub async fn prune(queue: &Queue, store: &ArtifactStore, config: &RetentionConfig) -> Result<Option<Pruned>> {
    let Some(turn) = queue.prune_turn().await? else { return Ok(None) };
    let pruned = round(queue, store, config).await;
    turn.release().await?;
    pruned.map(Some)
}

async fn round(queue: &Queue, store: &ArtifactStore, config: &RetentionConfig) -> Result<Pruned> {
    let mut pruned = Pruned {
        expired: queue.expire_artifacts_older_than(config.artifacts).await?
            + queue.expire_artifacts_beyond(config.artifacts_bytes, config.promise).await?,
        ..Pruned::default()
    };
    queue.release_shared_artifacts().await?;
    // One that cannot be deleted holds up no other; its job stays known, and the next round tries again.
    let mut failed = None;
    let mut after = None;
    loop {
        let expired = queue.expired_artifacts(after).await?;
        let Some(last) = expired.last() else { break };
        after = Some((last.job, last.benchmark_index));
        for artifact in expired {
            match store.delete(&artifact.path).await {
                Ok(()) => {
                    queue.artifact_deleted(&artifact).await?;
                    pruned.deleted += 1;
                }
                Err(error) => {
                    tracing::warn!(path = artifact.path, %error, "an expired archive could not be deleted");
                    failed.get_or_insert(error);
                }
            }
        }
    }
    pruned.orphans = orphans(queue, store).await?;
    pruned.unfinished = store.delete_unfinished(Utc::now() - ORPHAN_AGE).await?;
    loop {
        let deleted = queue.delete_jobs_older_than(config.jobs).await?;
        pruned.jobs += deleted;
        if deleted == 0 {
            break;
        }
    }
    pruned.workers = queue.delete_workers_older_than(config.jobs).await?;
    pruned.admin_log = queue.delete_admin_log_older_than(config.jobs).await?;
    failed.map_or(Ok(pruned), Err)
}

/// Deletes what attempts stored whose result was refused, and what probes of the store left.
async fn orphans(queue: &Queue, store: &ArtifactStore) -> Result<u64> {
    let objects = store.older_than(Utc::now() - ORPHAN_AGE).await?;
    let (probes, objects): (Vec<_>, Vec<_>) = objects.into_iter().partition(|path| path.starts_with(PROBES));
    let mut deleted = 0;
    for probe in probes {
        store.delete(&probe).await?;
        deleted += 1;
    }
    let of_jobs: Vec<(JobId, String)> = objects.into_iter().filter_map(|path| Some((job_of(&path)?, path))).collect();
    for some in of_jobs.chunks(LOOKED_UP) {
        for path in queue.unreferenced(some).await? {
            tracing::info!(path, "deleting an archive that no run refers to");
            store.delete(&path).await?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// The job in `jobs/<id>/<attempt>/<name>`.
fn job_of(path: &str) -> Option<JobId> {
    path.strip_prefix("jobs/")?.split('/').next()?.parse().ok()
}

/// The chore of a worker.
pub(crate) async fn chore(queue: &Queue, store: &ArtifactStore, config: &RetentionConfig) -> Result<(), Error> {
    if let Some(pruned) = prune(queue, store, config).await?
        && pruned != Pruned::default()
    {
        tracing::info!(?pruned, "pruned");
    }
    Ok(())
}
