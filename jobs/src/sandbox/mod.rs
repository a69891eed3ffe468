//! The sandbox: one shape, one fresh container, and nothing left of it afterwards.
//!
//! This room talks to the container engine and to nothing else; it knows neither SQL nor HTTP. What a container may do
//! stands in one list, [`restrictions`]. What a container wrote is hostile and is read by [`crate::collect`] only.
//!
//! A container that could not be made to run is an [`Error`](crate::Error): that is never the user's fault. Everything
//! that a started container does, its end by our hand included, is an [`Ended`].

mod config;
mod container;
mod engine;
#[cfg(test)]
pub(crate) mod fake_engine;
mod gpu;
mod mounts;
mod restrictions;
mod seccomp;
mod spec;

use std::collections::HashMap;
use std::time::Duration;

use bollard::query_parameters::ListContainersOptionsBuilder;
use tokio_util::sync::CancellationToken;

pub use config::{ContainerLimits, ContainerUser, SandboxConfig};
pub use container::{Ended, How};
pub use gpu::GpuAccess;
pub use mounts::HostMount;
pub use seccomp::Seccomp;
pub use spec::{ContainerSpec, Inputs, Labels};

use crate::Result;
use container::Container;
use engine::{DEADLINES, Deadlines, Engine};

/// The label of an image that says its `ncu` is the stand-in.
const SIMULATED_LABEL: &str = "ncu-service.simulated";

/// A connection to the engine, and what every container gets.
#[derive(Debug, Clone)]
pub struct Sandbox {
    engine: Engine,
    config: SandboxConfig,
}

/// The image that containers are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The engine's id of it, `sha256:…`.
    pub id: String,
    /// Its digest in a registry; `None` for an image that was built here.
    pub digest: Option<String>,
    /// Whether its `ncu` is the stand-in, so that everything made with it must say so.
    pub simulated: bool,
}

/// Versions of what runs containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineVersions {
    /// The engine's own.
    pub engine: String,
    /// Of its API.
    pub api: String,
    /// Of runc, where the engine names it.
    pub runc: Option<String>,
}

/// A container of this service that an earlier run left, or that another worker of it is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The engine's id of it.
    pub container_id: String,
    /// Whose it is; `None` when its labels cannot be read, which no worker of this version makes.
    pub labels: Option<Labels>,
}

impl Sandbox {
    /// Connects to the engine and agrees on a version of its API. Fails when the engine cannot be reached.
    pub async fn connect(config: SandboxConfig) -> Result<Self> {
        Self::connect_within(config, DEADLINES).await
    }

    async fn connect_within(config: SandboxConfig, deadlines: Deadlines) -> Result<Self> {
        let engine = Engine::connect(config.docker_host.as_deref(), deadlines).await?;
        Ok(Self { engine, config })
    }

    /// What every container gets.
    #[must_use]
    pub fn config(&self) -> &SandboxConfig {
        &self.config
    }

    /// Asks whether the engine is there.
    pub async fn ping(&self) -> Result<()> {
        self.engine.call("ping", self.engine.docker().ping()).await.map(drop)
    }

    /// What the engine says of itself and of what is beneath it.
    pub async fn versions(&self) -> Result<EngineVersions> {
        let found = self.engine.call("ask for versions", self.engine.docker().version()).await?;
        let runc = found.components.unwrap_or_default().into_iter().find(|component| component.name == "runc");
        Ok(EngineVersions {
            engine: found.version.unwrap_or_default(),
            api: found.api_version.unwrap_or_default(),
            runc: runc.map(|runc| runc.version),
        })
    }

    /// The image that the next container will be made from. A missing one is an error.
    pub async fn image(&self) -> Result<Image> {
        let found = self.engine.call("inspect image", self.engine.docker().inspect_image(&self.config.image)).await?;
        let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
        Ok(Image {
            id: found.id.unwrap_or_default(),
            digest: found.repo_digests.unwrap_or_default().into_iter().next(),
            simulated: labels.get(SIMULATED_LABEL).is_some_and(|value| value == "true"),
        })
    }

    /// Runs one container to its end: its own, its time limit, its output limit, or a cancel. Whichever it is, the
    /// container is gone when this returns `Ok`. After an error a container may be left; [`Self::leftovers`] finds it.
    ///
    /// `limit` counts from the start of the container's program.
    pub async fn run(&self, spec: &ContainerSpec<'_>, limit: Duration, cancel: &CancellationToken) -> Result<Ended> {
        let body = restrictions::container(&self.config, spec, self.engine.cpus());
        let container = Container::create(&self.engine, &spec.container_name(), body).await?;
        let ended = container.run_to_end(spec.output, self.config.limits.output(), limit, cancel).await;
        // The output is read next: while its writer might live, no result may be returned.
        let removed = container.remove().await;
        match (ended, removed) {
            (Ok(ended), Ok(())) => Ok(ended),
            (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
            (Err(error), Err(removal)) => {
                tracing::warn!(error = %removal, "a container whose run failed could not be removed either");
                Err(error)
            }
        }
    }

    /// Every container of this service (of this scope) on the engine, running ones included.
    pub async fn leftovers(&self) -> Result<Vec<Leftover>> {
        let filters = HashMap::from([("label", vec![spec::scope_filter(&self.config.scope)])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.engine.call("list containers", self.engine.docker().list_containers(Some(options))).await?;
        Ok(found
            .into_iter()
            .filter_map(|summary| {
                let labels = Labels::from_map(&summary.labels.unwrap_or_default());
                Some(Leftover { container_id: summary.id?, labels })
            })
            .collect())
    }

    /// Kills and removes a leftover. One that is gone already is no error.
    pub async fn remove(&self, leftover: &Leftover) -> Result<()> {
        self.engine.remove(&leftover.container_id).await
    }

    /// Kills and removes a container by the name that its [`ContainerSpec`] gave it. One that is gone already is no error.
    pub async fn remove_by_name(&self, name: &str) -> Result<()> {
        self.engine.remove(name).await
    }
}
