//! Clears away what dead attempts left on this host: containers first, since one may hold the GPU, then folders.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Worker, blocking, stage};
use crate::Result;
use crate::ids::JobId;

/// One sweep. What is listed before the live attempts are asked for cannot belong to one that began in between.
pub async fn sweep(worker: Arc<Worker>) -> Result<()> {
    let containers = worker.sandbox.leftovers().await?;
    let folders = stage::job_folders(&worker.instance_dir)?;
    if containers.is_empty() && folders.is_empty() {
        return Ok(());
    }
    let live = worker.queue.live_attempts().await?;
    for container in containers {
        let owned = container.labels.is_some_and(|labels| live.contains(&(labels.job, labels.token)));
        if !owned {
            tracing::warn!(container = container.container_id, labels = ?container.labels, "removing a container of a dead attempt");
            worker.sandbox.remove(&container).await?;
        }
    }
    let jobs: HashSet<JobId> = live.iter().map(|&(job, _)| job).collect();
    for folder in folders {
        let job = folder.file_name().and_then(|name| name.to_str()?.parse().ok());
        if !job.is_some_and(|job| jobs.contains(&job)) {
            blocking(move || stage::remove(&folder)).await?;
        }
    }
    Ok(())
}
