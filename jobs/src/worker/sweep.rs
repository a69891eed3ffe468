//! Clears away what dead attempts left on this host: containers first, since one may hold the GPU, then folders.

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

use super::{Worker, blocking, stage};
use crate::Result;

/// One sweep. What is listed before the live attempts are asked for cannot belong to one that began in between. What
/// cannot be removed is left to the next sweep, and holds nothing else up.
pub async fn sweep(worker: Arc<Worker>) -> Result<()> {
    let containers = worker.sandbox.leftovers().await?;
    let folders = {
        let instance_dir = worker.instance_dir.clone();
        blocking(move || stage::attempt_folders(&instance_dir)).await?
    };
    if containers.is_empty() && folders.is_empty() {
        return Ok(());
    }
    let live = worker.queue.live_attempts().await?;
    for container in containers {
        if container.labels.is_some_and(|labels| live.contains(&(labels.job, labels.token))) {
            continue;
        }
        tracing::warn!(container = container.container_id, labels = ?container.labels, "removing a container of a dead attempt");
        if let Err(error) = worker.sandbox.remove(&container).await {
            tracing::warn!(container = container.container_id, %error, "it could not be removed");
        }
    }
    let tokens: HashSet<Uuid> = live.iter().map(|&(_, token)| token).collect();
    for folder in folders {
        let token = folder.file_name().and_then(|name| Uuid::try_parse(name.to_str()?).ok());
        if token.is_some_and(|token| tokens.contains(&token)) {
            continue;
        }
        if let Err(error) = blocking(move || stage::remove(&folder)).await {
            tracing::warn!(%error, "a folder of a dead attempt could not be removed");
        }
    }
    Ok(())
}
