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

use bollard::models::{ContainerStateStatusEnum, ContainerSummaryStateEnum};
use bollard::query_parameters::ListContainersOptionsBuilder;
use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use config::{ContainerLimits, ContainerUser, SandboxConfig};
pub use container::{Ended, How, could_not_kill};
pub use gpu::GpuAccess;
pub use mounts::HostMount;
pub use seccomp::Seccomp;
pub use spec::{ContainerSpec, Inputs, Labels, Role};

use crate::Result;
use crate::collect::OutputDir;
use container::Container;
use engine::{DEADLINES, Deadlines, Engine, has_status};
use spec::Marks;

/// The label of an image that says its `ncu` is the stand-in.
const SIMULATED_LABEL: &str = "ncu-service.simulated";

/// What a container may outlive its limit by before anybody may end it: whoever watches it is the one to do that.
const OVERDUE_AFTER: Duration = Duration::from_mins(1);

/// A connection to the engine, and what every container gets.
#[derive(Debug, Clone)]
pub struct Sandbox {
    engine: Engine,
    config: SandboxConfig,
}

/// The image that containers are made from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

/// A container of this service that an earlier run left, or that a worker of it is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The engine's id of it.
    pub container_id: String,
    /// Whose it is; `None` when its labels cannot be read, which no worker of this version makes.
    pub labels: Option<Labels>,
    /// What it does.
    pub role: Option<Role>,
    /// Whether it was started at any time.
    pub has_started: bool,
}

/// A container that is found where only one of ours should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The engine's id of it.
    pub container_id: String,
    /// Whose it is; `None` when it is none of any service of this kind.
    pub labels: Option<Labels>,
    /// Whether it is this service's, and not that of another one on the same host.
    pub is_ours: bool,
    /// Whether its program has ended. One that was made and not started may start yet.
    pub has_ended: bool,
    /// Whether it has run for longer than it may.
    pub is_overdue: bool,
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
    pub async fn run(&self, spec: &ContainerSpec<'_>, cancel: &CancellationToken) -> Result<Ended> {
        let (container, ended) = self.start(spec, cancel).await?;
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

    /// The same, and the container stays when it has ended, with what the engine knows of its end. Dropping the future leaves
    /// it running.
    pub async fn run_and_keep(&self, spec: &ContainerSpec<'_>, cancel: &CancellationToken) -> Result<Ended> {
        self.start(spec, cancel).await?.1
    }

    async fn start(
        &self,
        spec: &ContainerSpec<'_>,
        cancel: &CancellationToken,
    ) -> Result<(Container<'_>, Result<Ended>)> {
        let body = restrictions::container(&self.config, spec, self.engine.cpus());
        let container = Container::create(&self.engine, &spec.container_name(), body).await?;
        let ended = container.run_to_end(spec.output, self.config.limits.output(), spec.limit, cancel).await;
        Ok((container, ended))
    }

    /// Sees a container to its end that was started before, as if it had been started now: within the same limits, of which
    /// time has passed. It stays.
    pub async fn rejoin(
        &self,
        container_id: &str,
        output: &OutputDir,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Ended> {
        let container = Container::existing(&self.engine, container_id);
        container.rejoin(output, self.config.limits.output(), limit, cancel).await
    }

    /// Every container of this service (of this scope) on the engine, running ones included.
    pub async fn leftovers(&self) -> Result<Vec<Leftover>> {
        self.list(Vec::new()).await
    }

    /// The same of one attempt, by the token of its claim.
    pub async fn leftovers_of(&self, token: Uuid) -> Result<Vec<Leftover>> {
        self.list(vec![spec::token_filter(token)]).await
    }

    async fn list(&self, mut labels: Vec<String>) -> Result<Vec<Leftover>> {
        labels.push(spec::scope_filter(&self.config.scope));
        let filters = HashMap::from([("label", labels)]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.engine.call("list containers", self.engine.docker().list_containers(Some(options))).await?;
        Ok(found
            .into_iter()
            .filter_map(|summary| {
                let marks = Marks::from_map(&summary.labels.unwrap_or_default());
                Some(Leftover {
                    container_id: summary.id?,
                    labels: marks.labels,
                    role: marks.role,
                    has_started: summary.state != Some(ContainerSummaryStateEnum::CREATED),
                })
            })
            .collect())
    }

    /// A container by its name; `None` when there is none.
    pub async fn find(&self, name: &str) -> Result<Option<Found>> {
        let found = match Container::existing(&self.engine, name).inspect().await {
            Err(error) if has_status(&error, 404) => return Ok(None),
            found => found?,
        };
        let marks = Marks::from_map(&found.config.and_then(|config| config.labels).unwrap_or_default());
        let state = found.state.unwrap_or_default();
        // One that is being removed may run until that is done.
        let has_ended = matches!(state.status, Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD));
        let age = |time: Option<String>| (Utc::now() - time?.parse::<DateTime<Utc>>().ok()?).to_std().ok();
        let (ran, created) = (age(state.started_at), age(found.created));
        let is_overdue = match state.status {
            _ if state.running == Some(true) => is_overdue(ran, marks.limit),
            // Whoever made it and did not start it is gone.
            Some(ContainerStateStatusEnum::CREATED) => is_overdue(created, Some(OVERDUE_AFTER)),
            _ => false,
        };
        Ok(Some(Found {
            container_id: found.id.unwrap_or_else(|| name.to_owned()),
            labels: marks.labels,
            is_ours: marks.scope.as_deref() == Some(&self.config.scope),
            has_ended,
            is_overdue,
        }))
    }

    /// Kills and removes a container, by its id or by the name that its [`ContainerSpec`] gave it. One that is gone already is
    /// no error.
    pub async fn remove(&self, container: &str) -> Result<()> {
        self.engine.remove(container).await
    }
}

/// Whether a container is past its limit by so much that its watcher must be gone. One without a limit, or of no age, is not.
fn is_overdue(age: Option<Duration>, limit: Option<Duration>) -> bool {
    age.zip(limit).is_some_and(|(age, limit)| age > limit + OVERDUE_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_given_up_only_well_past_its_limit() {
        let secs = |secs| Some(Duration::from_secs(secs));
        assert!(!is_overdue(secs(160), secs(100)));
        assert!(is_overdue(secs(161), secs(100)));
        assert!(!is_overdue(secs(9999), None) && !is_overdue(None, secs(1)));
    }
}
