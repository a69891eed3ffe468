//! A container in its turn on the GPU: one capture a GPU on this host, on a GPU that is fit for it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::gpu::Gpus;
use crate::sandbox::{ContainerSpec, Ended, Sandbox};
use crate::{Error, Result};

/// Waits for the GPU, makes sure of it, and runs a container that gets it. The turn lasts as long as the container: the
/// export and the rest need no GPU.
pub(crate) async fn run(
    gpus: &Gpus,
    sandbox: &Sandbox,
    spec: &ContainerSpec<'_>,
    limit: Duration,
    stop: &CancellationToken,
) -> Result<Ended> {
    let Some(mut turn) = gpus.turn(stop).await? else { return Ok(Ended::before_it_started()) };
    if let Some(quarantine) = gpus.quarantine()? {
        return Err(Error::Gpu(format!("{} is in quarantine: {}", quarantine.gpu, quarantine.reason)));
    }
    // Its holder is dead, or could not end it: nobody waits for its result.
    for name in turn.left_behind()? {
        tracing::warn!(container = name, "removing a container whose turn on the GPU ended without it");
        remove(gpus, sandbox, &name).await?;
    }
    let Some(settled) = stop.run_until_cancelled(gpus.settle()).await else { return Ok(Ended::before_it_started()) };
    settled?;

    let name = spec.container_name();
    turn.note(&name)?;
    match sandbox.run(spec, limit, stop).await {
        Ok(ended) => {
            turn.finish()?;
            Ok(ended)
        }
        Err(error) => {
            // The name stays in the lock's file unless the container is known to be gone.
            if remove(gpus, sandbox, &name).await.is_ok() {
                turn.finish()?;
            }
            Err(error)
        }
    }
}

/// Removes a container that may hold the GPU. One that cannot be killed hangs in the driver: then the GPU is ill.
async fn remove(gpus: &Gpus, sandbox: &Sandbox, name: &str) -> Result<()> {
    let removed = sandbox.remove_by_name(name).await;
    // An engine that answers nothing at all says nothing about the GPU.
    if matches!(removed, Err(Error::EngineTimeout { .. })) && sandbox.ping().await.is_ok() {
        gpus.begin_quarantine(&format!("container {name} cannot be killed"))?;
    }
    removed
}
