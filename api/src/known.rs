//! The last state of each job that this process has seen, for polls and downloads that meet an outage of the database.
//!
//! A client ends its user's run at the first answer that is no success, so an old state, marked with its age, is better
//! than the truth about the outage.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hashlink::LruCache;
use jobs::ids::{JobId, Owner};
use jobs::queue::{Artifact, JobView, Queue};

use crate::error::ApiError;
use crate::retry::patiently;

/// Jobs that are remembered: the ones asked for last. Each takes some ten kilobytes.
const MAX_JOBS: usize = 4096;
/// How long a poll waits for the database where an older state is at hand.
const PATIENCE: Duration = Duration::from_secs(3);

/// A job as it was at some time.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its state then.
    pub job: Arc<JobView>,
    /// When that was.
    pub at: DateTime<Utc>,
}

/// The memory. An entry answers only to the owner it was read for.
#[derive(Debug)]
pub struct LastKnown(Mutex<LruCache<(JobId, Owner), Seen>>);

impl Default for LastKnown {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_JOBS)))
    }
}

impl LastKnown {
    /// The job as the database has it; where that does not answer in time, as it was when this process last saw it. `None`
    /// where this owner has no such job.
    pub async fn job(
        &self,
        queue: &Queue,
        patience: Duration,
        id: JobId,
        owner: Owner,
    ) -> Result<Option<Seen>, ApiError> {
        let known = self.get(id, owner);
        let patience = if known.is_some() { patience.min(PATIENCE) } else { patience };
        match patiently(patience, || queue.view(id, Some(owner))).await {
            Ok(Some(job)) => {
                let seen = Seen { job: Arc::new(job), at: Utc::now() };
                self.entries().insert((id, owner), seen.clone());
                Ok(Some(seen))
            }
            Ok(None) => {
                self.entries().remove(&(id, owner));
                Ok(None)
            }
            Err(fault) => {
                let seen = known.ok_or(fault)?;
                tracing::warn!(job = %id, observed_at = %seen.at, "the database is away: the last known state is told");
                Ok(Some(seen))
            }
        }
    }

    /// An archive, asked for likewise.
    pub async fn artifact(
        &self,
        queue: &Queue,
        patience: Duration,
        id: JobId,
        owner: Owner,
        name: &str,
    ) -> Result<Option<Artifact>, ApiError> {
        let known = self.get(id, owner).and_then(|seen| artifact(&seen.job, name));
        let patience = if known.is_some() { patience.min(PATIENCE) } else { patience };
        patiently(patience, || queue.artifact(id, &owner, name)).await.or_else(|fault| known.map(Some).ok_or(fault))
    }

    fn get(&self, id: JobId, owner: Owner) -> Option<Seen> {
        self.entries().get(&(id, owner)).cloned()
    }

    /// A panic while the lock was held leaves at worst an entry less.
    fn entries(&self) -> MutexGuard<'_, LruCache<(JobId, Owner), Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn artifact(job: &JobView, name: &str) -> Option<Artifact> {
    let mut artifacts = job.runs.iter().filter_map(|run| run.artifact.as_ref());
    artifacts.find(|artifact| artifact.name == name).cloned()
}
