//! The life of one container, each step explicit: create, start, wait, kill, inspect, remove.
//!
//! The engine outlives us and removes nothing by itself, so a crash between any two steps leaves a labelled container
//! that the next start finds.

use std::time::Duration;

use bollard::errors::Error as EngineError;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, KillContainerOptionsBuilder, LogsOptionsBuilder, WaitContainerOptionsBuilder,
};
use chrono::{DateTime, Utc};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::engine::{Engine, has_status};
use crate::collect::{CollectError, Exceeded, OutputDir, UsageLimits};
use crate::{Error, Result};

/// How much of a container's own output is kept, in bytes. It is the runner's; the submission's goes to files.
const LOG_TAIL_BYTES: usize = 16 << 10;
/// The same in lines, so that the engine need not send everything.
const LOG_TAIL_LINES: &str = "200";
/// How often the output folder is measured while a container runs. It may go past its limit by what it writes meanwhile.
const MEASURE_EVERY: Duration = Duration::from_millis(250);

/// What the engine was asked when a container would not die.
const KILL: &str = "kill container";

/// Whether an error says that a container did not die in time.
#[must_use]
pub fn could_not_kill(error: &Error) -> bool {
    matches!(error, Error::EngineTimeout { action: KILL, .. })
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By itself.
    Exited {
        /// Exit code of its process 1; 128 and the signal's number if one ended it.
        code: i64,
        /// Whether the kernel killed a process in it for its memory limit. The code can be 0 even so.
        oom_killed: bool,
    },
    /// It was killed at its time limit.
    TimedOut,
    /// Its output went past a limit, in bytes, in files or in depth of folders, or hides from being measured. It was killed
    /// if it still ran.
    OutputLimit,
    /// The disk of its output folder had too little space left, whoever took it. It was killed if it still ran.
    DiskFull,
    /// It was killed because the job was cancelled or the worker stops.
    Cancelled,
}

/// The end of a container that had started. Nothing in it runs any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it came about.
    pub how: How,
    /// When its program started, by the engine's clock.
    pub started_at: DateTime<Utc>,
    /// When it ended, by the engine's clock.
    pub ended_at: DateTime<Utc>,
    /// The last of what its process 1 printed, for the log: hostile text.
    pub log_tail: String,
}

impl Ended {
    /// Of a container that was cancelled before its program could start.
    pub(crate) fn before_it_started() -> Self {
        let now = Utc::now();
        Self { how: How::Cancelled, started_at: now, ended_at: now, log_tail: String::new() }
    }
}

/// A container that exists.
pub(super) struct Container<'a> {
    engine: &'a Engine,
    id: String,
}

impl<'a> Container<'a> {
    /// Makes it, without starting it.
    pub(super) async fn create(engine: &'a Engine, name: &str, body: ContainerCreateBody) -> Result<Self> {
        let created = match try_create(engine, name, body.clone()).await {
            // The name is this holder's alone: it is an earlier try of its own, whose answer was lost.
            Err(error) if has_status(&error, 409) => {
                engine.remove(name).await?;
                try_create(engine, name, body).await
            }
            other => other,
        };
        Ok(Self { engine, id: created? })
    }

    /// One that is there already.
    pub(super) fn existing(engine: &'a Engine, id: &str) -> Self {
        Self { engine, id: id.to_owned() }
    }

    /// Starts it and sees it to its end, whoever brings that about.
    pub(super) async fn run_to_end(
        &self,
        output: &OutputDir,
        output_limits: UsageLimits,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Ended> {
        if cancel.is_cancelled() {
            return Ok(Ended::before_it_started());
        }
        self.start().await?;
        self.watch(output, output_limits, limit, limit, cancel).await
    }

    /// Sees one to its end that was started earlier, by whomever, or that has ended since.
    pub(super) async fn rejoin(
        &self,
        output: &OutputDir,
        output_limits: UsageLimits,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Ended> {
        let state = self.inspect().await?.state.unwrap_or_default();
        if state.running == Some(false) {
            return self.end(past(output, output_limits).await, limit).await;
        }
        let ran = Utc::now() - time("started_at", state.started_at.as_deref())?;
        // A clock that was set back gives nobody more than the limit.
        let left = limit.saturating_sub(ran.to_std().unwrap_or_default());
        self.watch(output, output_limits, limit, left, cancel).await
    }

    /// Waits for the end, and brings it about where it must: `left` is what is left of `limit`.
    async fn watch(
        &self,
        output: &OutputDir,
        output_limits: UsageLimits,
        limit: Duration,
        left: Duration,
        cancel: &CancellationToken,
    ) -> Result<Ended> {
        let killed_as = tokio::select! {
            exit = self.exit() => {
                exit?;
                past(output, output_limits).await
            }
            () = tokio::time::sleep(left) => Some(How::TimedOut),
            () = cancel.cancelled() => Some(How::Cancelled),
            how = goes_past(output, output_limits) => Some(how),
        };
        if killed_as.is_some() {
            self.kill().await?;
        }
        self.end(killed_as, limit).await
    }

    /// Its end, as the engine has it and as this watcher or an earlier one brought it about.
    async fn end(&self, how: Option<How>, limit: Duration) -> Result<Ended> {
        let state = self.inspect().await?.state.unwrap_or_default();
        let started_at = time("started_at", state.started_at.as_deref())?;
        // The engine notes a start only after it; a short program has ended by then.
        let ended_at = time("finished_at", state.finished_at.as_deref())?.max(started_at);
        let exited = How::Exited { code: state.exit_code.unwrap_or(-1), oom_killed: state.oom_killed.unwrap_or(false) };
        // An earlier watcher may have killed it at its limit and died before it could tell.
        let ran_out = (ended_at - started_at).to_std().is_ok_and(|ran| ran >= limit);
        Ok(Ended {
            how: how.unwrap_or(if ran_out { How::TimedOut } else { exited }),
            started_at,
            ended_at,
            log_tail: self.log_tail().await?,
        })
    }

    /// Removes it, running or not.
    pub(super) async fn remove(self) -> Result<()> {
        self.engine.remove(&self.id).await
    }

    async fn start(&self) -> Result<()> {
        self.engine.slow_call("start container", self.engine.docker().start_container(&self.id, None)).await
    }

    /// Waits until it is not running. One that ended before the question is answered at once, so no end is missed.
    async fn exit(&self) -> Result<()> {
        let options = WaitContainerOptionsBuilder::default().condition("not-running").build();
        let mut answers = std::pin::pin!(self.engine.docker().wait_container(&self.id, Some(options)));
        match answers.next().await {
            // The client makes an error of every exit code but 0.
            Some(Ok(_) | Err(EngineError::DockerContainerWaitError { .. })) => Ok(()),
            Some(Err(source)) => Err(Error::Engine { action: "wait for container", source }),
            // An engine that stops closes the stream without a word.
            None => Err(Error::Engine {
                action: "wait for container",
                source: EngineError::DockerStreamError { error: "the engine went away".to_owned() },
            }),
        }
    }

    /// Kills it and waits for the end. A process that hangs in the driver cannot be killed: hence the deadlines.
    async fn kill(&self) -> Result<()> {
        let options = KillContainerOptionsBuilder::default().signal("SIGKILL").build();
        match self.engine.call(KILL, self.engine.docker().kill_container(&self.id, Some(options))).await {
            // It ended by itself in this moment.
            Err(error) if has_status(&error, 409) => {}
            other => other?,
        }
        let patience = self.engine.patience();
        let late = Error::EngineTimeout { action: KILL, deadline_secs: patience.as_secs() };
        tokio::time::timeout(patience, self.exit()).await.unwrap_or(Err(late))
    }

    pub(super) async fn inspect(&self) -> Result<ContainerInspectResponse> {
        self.engine.call("inspect container", self.engine.docker().inspect_container(&self.id, None)).await
    }

    /// The end of what it printed. It does not follow: a stream that stays open would hold us.
    async fn log_tail(&self) -> Result<String> {
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail(LOG_TAIL_LINES).build();
        let read = async {
            let mut lines = std::pin::pin!(self.engine.docker().logs(&self.id, Some(options)));
            let mut tail = Vec::new();
            while let Some(line) = lines.next().await {
                tail.extend_from_slice(line?.as_ref());
                tail.drain(..tail.len().saturating_sub(LOG_TAIL_BYTES));
            }
            Ok(String::from_utf8_lossy(&tail).into_owned())
        };
        self.engine.call("read container log", read).await
    }
}

async fn try_create(engine: &Engine, name: &str, body: ContainerCreateBody) -> Result<String> {
    let options = CreateContainerOptionsBuilder::default().name(name).build();
    let created = engine.slow_call("create container", engine.docker().create_container(Some(options), body));
    created.await.map(|created| created.id)
}

/// Returns when the output folder is past a limit, and else never.
async fn goes_past(output: &OutputDir, limits: UsageLimits) -> How {
    loop {
        tokio::time::sleep(MEASURE_EVERY).await;
        if let Some(how) = past(output, limits).await {
            return how;
        }
    }
}

/// The limit that it is past. A folder that the container closed to us counts as past. Another look that fails counts as none:
/// the folder may change under it, and the next look is near.
async fn past(output: &OutputDir, limits: UsageLimits) -> Option<How> {
    let folder = output.clone();
    let measured = tokio::task::spawn_blocking(move || folder.usage(limits)).await;
    match measured.ok()? {
        Ok(usage) => usage.exceeded.map(|limit| match limit {
            Exceeded::Space => How::DiskFull,
            Exceeded::Entries | Exceeded::Depth | Exceeded::Bytes => How::OutputLimit,
        }),
        Err(error) => matches!(error, CollectError::Unreadable).then_some(How::OutputLimit),
    }
}

fn time(field: &'static str, text: Option<&str>) -> Result<DateTime<Utc>> {
    text.and_then(|text| DateTime::parse_from_rfc3339(text).ok()).map(|time| time.to_utc()).ok_or_else(|| {
        Error::Engine {
            action: "inspect container",
            source: EngineError::DockerStreamError { error: format!("{field} is no time: {text:?}") },
        }
    })
}
