//! Clears away what dead attempts left on this host: containers first, since one may hold the GPU, then folders. An attempt
//! that lost its worker is not dead yet: [`super::adopt`] takes it over.

use std::sync::Arc;

use super::hold::FoundFolder;
use super::{Worker, blocking, stage};
use crate::Result;

/// One sweep. What is listed before the live attempts are asked for cannot belong to one that began in between. What
/// cannot be removed is left to the next sweep, and holds nothing else up.
pub async fn sweep(worker: Arc<Worker>) -> Result<()> {
    let containers = worker.sandbox.leftovers().await?;
    let folders = {
        let instance_dir = worker.instance_dir.clone();
        blocking(move || FoundFolder::list(&instance_dir)).await?
    };
    if containers.is_empty() && folders.is_empty() {
        return Ok(());
    }
    let live = worker.queue.live().await?;
    for container in containers {
        let labels = container.labels;
        if labels.is_some_and(|labels| live.has_container(labels.token, labels.benchmark, labels.adoption)) {
            continue;
        }
        tracing::warn!(container = container.container_id, ?labels, "removing a container of a dead attempt");
        if let Err(error) = worker.sandbox.remove(&container.container_id).await {
            tracing::warn!(container = container.container_id, %error, "it could not be removed");
        }
    }
    for folder in folders {
        if folder.claim_token.is_some_and(|token| live.claim(token).is_some()) {
            continue;
        }
        if let Err(error) = blocking(move || stage::remove(&folder.path)).await {
            tracing::warn!(%error, "a folder of a dead attempt could not be removed");
        }
    }
    Ok(())
}
