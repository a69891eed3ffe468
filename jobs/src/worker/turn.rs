//! A container in its turn on the GPU: one capture a GPU on this host, on a GPU that is fit for it.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::collect::OutputDir;
use crate::gpu::{Gpus, Turn};
use crate::queue::Queue;
use crate::sandbox::{self, ContainerSpec, Ended, Found, Sandbox};
use crate::telemetry::phase;
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
    let waited = phase("gpu_wait", take_turn(gpus, sandbox, left_behind, stop)).await?;
    let Some(mut turn) = waited else { return Ok(Ended::before_it_started()) };
    let name = spec.container_name();
    turn.note(&name)?;
    let ran = sandbox.run_and_keep(spec, stop).await;
    end(gpus, sandbox, &name, Some(turn), ran).await
}

/// The turn on a GPU that is free and well; `None` when `stop` came first.
async fn take_turn(
    gpus: &Gpus,
    sandbox: &Sandbox,
    left_behind: LeftBehind<'_>,
    stop: &CancellationToken,
) -> Result<Option<Turn>> {
    let turn = loop {
        let Some(mut turn) = gpus.turn(stop).await? else { return Ok(None) };
        if let Some(quarantine) = gpus.quarantine()? {
            return Err(Error::Gpu(format!("{} is in quarantine: {}", quarantine.gpu, quarantine.reason)));
        }
        if is_free(gpus, sandbox, left_behind, &mut turn).await? {
            break turn;
        }
        // Its adopter wants the turn, too.
        drop(turn);
        if stop.run_until_cancelled(sleep(LOOK_AGAIN)).await.is_none() {
            return Ok(None);
        }
    };
    let Some(settled) = stop.run_until_cancelled(gpus.settle()).await else { return Ok(None) };
    settled?;
    Ok(Some(turn))
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
        ran = &mut watch => return end(gpus, sandbox, container_id, None, ran).await,
        turn = gpus.turn(stop) => turn,
    };
    let noted = async {
        let Some(mut turn) = turn? else { return Ok(None) };
        if sandbox.find(container_id).await?.is_none_or(|found| found.has_ended) {
            return Ok(None);
        }
        turn.note(container_id)?;
        Ok::<_, Error>(Some(turn))
    };
    // The capture runs all the same, and its first holder may well have the turn.
    let turn = noted.await.unwrap_or_else(|error| {
        tracing::warn!(container = container_id, %error, "the turn of a capture that runs could not be taken");
        None
    });
    let ran = watch.await;
    end(gpus, sandbox, container_id, turn, ran).await
}

/// Ends the turn after its container. After an error the container's name stays in the lock's file: whoever comes next looks
/// what became of it.
async fn end(gpus: &Gpus, sandbox: &Sandbox, container: &str, turn: Option<Turn>, ran: Result<Ended>) -> Result<Ended> {
    match &ran {
        Ok(_) => turn.map_or(Ok(()), Turn::finish)?,
        // It is past its limit or unwanted, so nobody misses it; perhaps it dies at the second try.
        Err(error) if sandbox::could_not_kill(error) => drop(remove(gpus, sandbox, container).await),
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
        remove(gpus, sandbox, &name).await?;
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

/// Removes a container that may hold the GPU. One that cannot be killed hangs in the driver: then the GPU is ill.
async fn remove(gpus: &Gpus, sandbox: &Sandbox, container: &str) -> Result<()> {
    let removed = sandbox.remove(container).await;
    // An engine that answers nothing at all says nothing about the GPU.
    if matches!(removed, Err(Error::EngineTimeout { .. })) && sandbox.ping().await.is_ok() {
        gpus.begin_quarantine(&format!("container {container} cannot be killed"))?;
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use uuid::Uuid;

    use super::*;
    use crate::gpu::GpuConfig;
    use crate::ids::JobId;
    use crate::sandbox::{GpuAccess, Inputs, Labels, fake_engine};

    /// Runs a container that outlives its limit, on an engine that is silent where it is told to; the error, and why the
    /// GPU is in quarantine.
    async fn outlived(silent: fake_engine::Silent) -> (String, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = |name: &str| folder.path().join(name);
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let output = OutputDir::create(&path("out"), (uid, gid)).unwrap();
        let socket = path("engine.sock");
        let engine = fake_engine::serve(&socket, silent);
        let sandbox = fake_engine::sandbox(&socket).await;
        let config = GpuConfig { lock_dir: path("locks"), nvidia_smi: "nvidia-smi".to_owned(), max_used_bytes: 1 };
        let gpus = Gpus::new(config, GpuAccess::None);
        let spec = ContainerSpec {
            labels: Labels { job: JobId::random(), benchmark: 0, attempt: 1, token: Uuid::new_v4(), adoption: 0 },
            inputs: Inputs::Capture { input: folder.path(), problems: folder.path() },
            output: &output,
            command: Vec::new(),
            limit: Duration::from_millis(10),
        };
        let go_on = CancellationToken::new();
        let error = run(&gpus, &sandbox, LeftBehind::Spare, &spec, &go_on).await.unwrap_err();
        let quarantine = gpus.quarantine().unwrap().map(|quarantine| quarantine.reason);
        if let Some(reason) = &quarantine {
            assert!(reason.contains(&spec.container_name()), "{reason}");
            let next = run(&gpus, &sandbox, LeftBehind::Spare, &spec, &go_on).await.unwrap_err();
            assert!(next.to_string().contains("is in quarantine"), "{next}");
        }
        let mut turn = gpus.turn(&go_on).await.unwrap().unwrap();
        assert_eq!(turn.left_behind().unwrap(), [spec.container_name()], "the next holder of the GPU must know of it");
        engine.abort();
        (error.to_string(), quarantine)
    }

    #[tokio::test]
    async fn a_container_that_cannot_be_killed_puts_its_gpu_into_quarantine() {
        // As an engine does whose container hangs in the driver: it goes on to answer everything else.
        let (error, quarantine) = outlived(|request| {
            request.ends_with("/kill") || request.ends_with("/wait") || request.starts_with("DELETE")
        })
        .await;
        assert_eq!(error, "engine, kill container: no answer within 2 s");
        assert!(quarantine.unwrap().ends_with("cannot be killed"));
    }

    #[tokio::test]
    async fn an_engine_that_answers_nothing_any_more_says_nothing_of_the_gpu() {
        let silent = |request: &str| {
            ["/kill", "/wait", "/_ping"].iter().any(|end| request.ends_with(end)) || request.starts_with("DELETE")
        };
        let (error, quarantine) = outlived(silent).await;
        assert_eq!(error, "engine, kill container: no answer within 2 s");
        assert_eq!(quarantine, None);
    }
}
