//! The connection to the engine. Every call has a deadline, because an engine whose GPU fell off the bus answers none.

use std::future::Future;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::query_parameters::RemoveContainerOptionsBuilder;

use crate::{Error, Result};

/// How long the engine may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    /// Of a call that only reads or writes its state.
    pub call: Duration,
    /// Of a call that starts, kills or removes a container: a busy disk or a large core of GPU memory takes time.
    pub container: Duration,
}

/// Those of real engines.
pub(super) const DEADLINES: Deadlines = Deadlines { call: Duration::from_secs(20), container: Duration::from_mins(1) };
/// Time between two looks at a container that is being removed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The engine.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    docker: Docker,
    cpus: u32,
    deadlines: Deadlines,
}

impl Engine {
    /// Connects, to `DOCKER_HOST` or the usual socket unless a host is named, and agrees on an API version.
    pub(super) async fn connect(host: Option<&str>, deadlines: Deadlines) -> Result<Self> {
        let docker = match host {
            Some(host) => Docker::connect_with_host(host),
            None => Docker::connect_with_defaults(),
        }
        .map_err(Error::engine("connect"))?
        // The client's own timeout stays behind ours, so that one kind of error tells of both.
        .with_timeout(deadlines.container * 2);
        let docker = deadline("negotiate the API version", deadlines.call, docker.negotiate_version()).await?;
        let info = deadline("read the engine's facts", deadlines.call, docker.info()).await?;
        let cpus = info.ncpu.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0).unwrap_or(u32::MAX);
        Ok(Self { docker, cpus, deadlines })
    }

    /// The client, for a call that is handed to [`Self::call`].
    pub(super) fn docker(&self) -> &Docker {
        &self.docker
    }

    /// Processors of the engine's host: it refuses a container that asks for more.
    pub(super) fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Makes one call within the deadline of plain calls.
    pub(super) fn call<T>(
        &self,
        action: &'static str,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> impl Future<Output = Result<T>> {
        deadline(action, self.deadlines.call, call)
    }

    /// Makes one call within the deadline of calls that start, kill or remove a container.
    pub(super) fn slow_call<T>(
        &self,
        action: &'static str,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> impl Future<Output = Result<T>> {
        deadline(action, self.deadlines.container, call)
    }

    /// How long a container that was killed may take to end.
    pub(super) fn patience(&self) -> Duration {
        self.deadlines.container
    }

    /// Kills and removes a container with its anonymous volumes. One that is gone already is no error.
    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.slow_call("remove container", self.docker.remove_container(id, Some(options))).await {
            Err(error) if has_status(&error, 404) => Ok(()),
            // Somebody else is at it, and answers for it; it is gone when that is done.
            Err(error) if has_status(&error, 409) => self.removal(id).await,
            other => other,
        }
    }

    /// Waits until a container is gone that is being removed.
    async fn removal(&self, id: &str) -> Result<()> {
        let gone = async {
            loop {
                match self.docker.inspect_container(id, None).await {
                    Err(error) if is_status(&error, 404) => return Ok(()),
                    found => drop(found?),
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        self.slow_call("remove container", gone).await
    }
}

/// Makes one call within a deadline.
async fn deadline<T>(
    action: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, EngineError>>,
) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(Error::engine(action)),
        Err(_) => Err(Error::EngineTimeout { action, deadline_secs: limit.as_secs() }),
    }
}

/// Whether the engine answered with this HTTP status.
pub(super) fn has_status(error: &Error, status: u16) -> bool {
    matches!(error, Error::Engine { source, .. } if is_status(source, status))
}

fn is_status(error: &EngineError, status: u16) -> bool {
    matches!(error, EngineError::DockerResponseServerError { status_code, .. } if *status_code == status)
}
