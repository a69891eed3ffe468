//! A container in its turn on the GPU: one capture a GPU on this host, on a GPU that is fit for it.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::collect::OutputDir;
use crate::gpu::{Gpus, Turn};
use crate::queue::Queue;
use crate::sandbox::{self, ContainerSpec, Ended, Found, Sandbox};
use crate::{Error, Result};

/// Time between two looks at a container whose holder is gone, but whose result somebody may want.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What to do with a container that was left on the GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeftBehind<'a> {
    /// Wait for it while the queue knows a job that wants its result, and remove it otherwise.
    Ask(&'a Queue),
    /// Wait for it: there is nobody to ask.
    Spare,
}

/// Waits for the GPU, makes sure of it, and runs a container that gets it. The turn lasts as long as the container runs: the
/// export and the rest need no GPU. The container stays when it has ended.
pub(crate) async fn run(
    gpus: &Gpus,
    sandbox: &Sandbox,
    left_behind: LeftBehind<'_>,
    spec: &ContainerSpec<'_>,
    stop: &CancellationToken,
) -> Result<Ended> {
    let mut turn = loop {
        let Some(mut turn) = gpus.turn(stop).await? else { return Ok(Ended::before_it_started()) };
        if let Some(quarantine) = gpus.quarantine()? {
            return Err(Error::Gpu(format!("{} is in quarantine: {}", quarantine.gpu, quarantine.reason)));
        }
        if is_free(gpus, sandbox, left_behind, &mut turn).await? {
            break turn;
        }
        // Its adopter wants the turn, too.
        drop(turn);
        if stop.run_until_cancelled(sleep(LOOK_AGAIN)).await.is_none() {
            return Ok(Ended::before_it_started());
        }
    };
    let Some(settled) = stop.run_until_cancelled(gpus.settle()).await else { return Ok(Ended::before_it_started()) };
    settled?;

    turn.note(&spec.container_name())?;
    let ran = sandbox.run_and_keep(spec, stop).await;
    end(gpus, sandbox, Some(turn), ran).await
}

/// Sees a container to its end that has the GPU already, and takes the turn for it as soon as that is to be had: its first
/// holder may be frozen with it.
pub(crate) async fn rejoin(
    gpus: &Gpus,
    sandbox: &Sandbox,
    container_id: &str,
    output: &OutputDir,
    limit: Duration,
    stop: &CancellationToken,
) -> Result<Ended> {
    let mut watch = std::pin::pin!(sandbox.rejoin(container_id, output, limit, stop));
    let turn = tokio::select! {
        // One that has ended needs no turn, and another's capture may be in it.
        biased;
        ran = &mut watch => return end(gpus, sandbox, None, ran).await,
        turn = gpus.turn(stop) => turn?,
    };
    let turn = match turn {
        Some(mut turn) if sandbox.find(container_id).await?.is_some_and(|found| !found.has_ended) => {
            turn.note(container_id)?;
            Some(turn)
        }
        _ => None,
    };
    let ran = watch.await;
    end(gpus, sandbox, turn, ran).await
}

/// Ends the turn after its container. After an error the container's name stays in the lock's file: whoever comes next looks
/// what became of it.
async fn end(gpus: &Gpus, sandbox: &Sandbox, turn: Option<Turn>, ran: Result<Ended>) -> Result<Ended> {
    match &ran {
        Ok(_) => turn.map_or(Ok(()), Turn::finish)?,
        Err(error) if sandbox::could_not_kill(error) => quarantine(gpus, sandbox, "its container").await?,
        Err(_) => {}
    }
    ran
}

/// Whether nothing of an earlier turn may still be on the GPU. What nobody wants is removed.
async fn is_free(gpus: &Gpus, sandbox: &Sandbox, left_behind: LeftBehind<'_>, turn: &mut Turn) -> Result<bool> {
    let mut is_free = true;
    for name in turn.left_behind()? {
        let Some(found) = sandbox.find(&name).await? else { continue };
        if found.has_ended {
            continue;
        }
        if is_wanted(&found, left_behind).await {
            tracing::debug!(container = name, "waiting for a container whose turn on the GPU ended without it");
            is_free = false;
            continue;
        }
        tracing::warn!(container = name, "removing a container whose turn on the GPU ended without it");
        let removed = sandbox.remove(&name).await;
        if matches!(removed, Err(Error::EngineTimeout { .. })) {
            quarantine(gpus, sandbox, &name).await?;
        }
        removed?;
    }
    Ok(is_free)
}

async fn is_wanted(found: &Found, left_behind: LeftBehind<'_>) -> bool {
    let Some(labels) = found.labels.filter(|_| !found.is_overdue) else { return false };
    match left_behind {
        // Another service's queue is not to be had here; its worker or the container's own limits end it.
        LeftBehind::Spare => true,
        LeftBehind::Ask(_) if !found.is_ours => true,
        LeftBehind::Ask(queue) => match queue.live().await {
            Ok(live) => live.has_container(labels.token, labels.benchmark, labels.adoption),
            Err(error) => {
                tracing::warn!(%error, "nobody can say whether a container on the GPU is still wanted");
                true
            }
        },
    }
}

/// A container that cannot be killed hangs in the driver: then the GPU is ill.
async fn quarantine(gpus: &Gpus, sandbox: &Sandbox, container: &str) -> Result<()> {
    // An engine that answers nothing at all says nothing about the GPU.
    if sandbox.ping().await.is_ok() {
        gpus.begin_quarantine(&format!("container {container} cannot be killed"))?;
    }
    Ok(())
}
