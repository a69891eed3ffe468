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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use uuid::Uuid;

    use super::*;
    use crate::collect::OutputDir;
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
            labels: Labels { job: JobId::random(), benchmark: 0, attempt: 1, token: Uuid::new_v4() },
            inputs: Inputs::Capture { input: folder.path(), problems: folder.path() },
            output: &output,
            command: Vec::new(),
        };
        let go_on = CancellationToken::new();
        let limit = Duration::from_millis(10);
        let error = run(&gpus, &sandbox, &spec, limit, &go_on).await.unwrap_err();
        let quarantine = gpus.quarantine().unwrap().map(|quarantine| quarantine.reason);
        if let Some(reason) = &quarantine {
            assert!(reason.contains(&spec.container_name()), "{reason}");
            let next = run(&gpus, &sandbox, &spec, limit, &go_on).await.unwrap_err();
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
