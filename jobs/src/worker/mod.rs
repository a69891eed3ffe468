//! The worker: takes one job at a time from the queue and profiles its shapes.
//!
//! A ticket wakes [`wakeup`], which claims the head of the queue and hands it to [`attempt`], as [`adopt`] does with a job that
//! lost its worker; beside them, [`sweep`] clears away what died, and the heartbeat says that this worker lives. [`readiness`] keeps it from taking jobs that its host
//! could only fail.

mod adopt;
mod attempt;
mod bundle;
mod cancels;
mod capture;
mod complaint;
mod config;
mod digest;
mod export;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod hold;
mod judge;
mod lease;
mod orders;
mod persist;
mod progress;
mod provenance;
mod readiness;
mod setup;
mod shape;
pub(crate) mod stage;
mod sweep;
mod tail;
pub(crate) mod turn;
mod wakeup;

pub use attempt::Leave;
pub use config::{ShapeLimits, WorkerConfig};

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::artifacts::ArtifactStore;
use crate::gpu::Gpus;
use crate::ids::JobId;
use crate::problems::Catalog;
use crate::queue::{Queue, Reaped, WorkerState};
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::{Error, Result, retention};
use cancels::Cancels;
use readiness::{Readiness, Refusal};

/// Time between two heartbeats in the `workers` table.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Time between two looks for attempts that lost their worker. While there is none, a look is a listing of a folder.
const ADOPT: Duration = Duration::from_secs(1);
/// Time between two rounds of the reaper. It bounds how long a job with a lost ticket waits.
const REAP: Duration = Duration::from_secs(5);
/// A longer silence of the database counts as an outage to the reaper.
const CONTACT_BREAK: Duration = Duration::from_secs(3 * REAP.as_secs());
/// Time between two sweeps of containers and folders.
const SWEEP: Duration = Duration::from_secs(30);
/// Time between two rounds of retention.
const PRUNE: Duration = Duration::from_hours(1);
/// Pause before the engine is asked again at start.
const ENGINE_AGAIN: Duration = Duration::from_secs(5);

/// Everything that an attempt needs. One per process.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    /// Unique for each start: apalis takes a registration of the same name for a worker that still runs.
    name: String,
    host: String,
    queue: Queue,
    store: ArtifactStore,
    sandbox: Sandbox,
    gpus: Gpus,
    readiness: Readiness,
    catalog: Arc<Catalog>,
    /// Folder for runs in progress of this service's jobs.
    instance_dir: PathBuf,
    /// When to end.
    leave: Leave,
    /// One job at a time in this process, even when the wake-up loop was rebuilt around a running one.
    seat: Arc<Semaphore>,
    /// The attempts in progress.
    attempts: TaskTracker,
    /// Requests to end the job in progress.
    cancels: Cancels,
    /// The job in progress.
    current: Mutex<Option<JobId>>,
    /// Since when the database has answered the reaper, and when it did so last.
    contact: Mutex<Option<(Instant, Instant)>>,
}

impl Worker {
    /// Connects to everything a worker needs, waiting for a database and an engine that are not there yet.
    pub async fn start(config: WorkerConfig, leave: Leave) -> Result<Self> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("{host}-{}", uuid::Uuid::new_v4().as_simple());
        let queue = Queue::connect_lazy(&config.database, "ncu-worker")?;
        persist::persist("migrating the database", || queue.migrate()).await?;
        let instance =
            persist::persist("asking who this service is", || queue.instance()).await?.as_simple().to_string();
        let store = ArtifactStore::open(&config.artifacts_url)?;
        let mut sandbox_config = config.sandbox.clone();
        sandbox_config.scope.clone_from(&instance);
        let sandbox = engine(&sandbox_config, &queue, &name, &host, &leave).await;
        tracing::info!(worker = name, image = config.sandbox.image, gpus = ?config.sandbox.gpus, "worker starts");
        Ok(Self {
            gpus: Gpus::new(config.gpu.clone(), config.sandbox.gpus.clone()),
            readiness: Readiness::default(),
            catalog: Arc::new(Catalog::new(config.problems_dir.clone())),
            instance_dir: config.jobs_dir.join(instance),
            config,
            name,
            host,
            queue,
            store,
            sandbox,
            leave,
            seat: Arc::new(Semaphore::new(1)),
            attempts: TaskTracker::new(),
            cancels: Cancels::default(),
            current: Mutex::new(None),
            contact: Mutex::new(None),
        })
    }

    /// Works until it is told to leave, and returns when no attempt is in progress any more.
    pub async fn run(self) -> Result<()> {
        let worker = Arc::new(self);
        let leave = worker.leave.after_this_shape.clone();
        // Before the first heartbeat, so that it tells the truth.
        leave.run_until_cancelled(worker.readiness.refusal(&worker)).await;
        leave.run_until_cancelled(worker.note_gpus()).await;
        // Before anything is claimed or reaped, so that a restarted worker goes on with its job.
        if let Some(Err(error)) = leave.run_until_cancelled(adopt::adopt(Arc::clone(&worker))).await {
            tracing::warn!(%error, "the first look for attempts that lost their worker failed");
        }
        let chores = CancellationToken::new();
        let tasks = [
            tokio::spawn(every(HEARTBEAT, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || worker.clone().beat()
            })),
            tokio::spawn(every(ADOPT, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || adopt::adopt(worker.clone())
            })),
            tokio::spawn(every(REAP, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || worker.clone().reap()
            })),
            tokio::spawn(every(SWEEP, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || sweep::sweep(worker.clone())
            })),
            tokio::spawn(every(SWEEP, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || setup::publish(worker.clone())
            })),
            tokio::spawn(every(PRUNE, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || worker.clone().prune()
            })),
            tokio::spawn(every(orders::LOOK, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || orders::obey(worker.clone())
            })),
            // Apart from the others, since a round may take long.
            tokio::spawn(every(orders::LOOK, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || orders::prune(worker.clone())
            })),
            tokio::spawn(every(readiness::CHECK_EVERY, chores.clone(), {
                let worker = Arc::clone(&worker);
                move || readiness::check(worker.clone())
            })),
        ];
        let hearing = tokio::spawn({
            let worker = Arc::clone(&worker);
            async move { worker.cancels.hear(&worker.queue).await }
        });
        wakeup::serve(Arc::clone(&worker)).await;
        worker.attempts.close();
        worker.attempts.wait().await;
        chores.cancel();
        hearing.abort();
        for task in tasks {
            // A chore that panicked has said so in the log.
            let _ = task.await;
        }
        // A worker that ends while the database is away is noticed by its heartbeat.
        let last_words = worker.queue.heartbeat(&worker.name, &worker.host, WorkerState::Stopped, None, None);
        let _ = tokio::time::timeout(Duration::from_secs(2), last_words).await;
        tracing::info!(worker = worker.name, "worker ends");
        Ok(())
    }

    /// Says on the page which GPUs this worker has. Only that is at stake, so a failure is told and no more.
    async fn note_gpus(&self) {
        let names: Vec<String> = self.gpus.identities().await.into_iter().filter_map(|gpu| gpu.name).collect();
        if names.is_empty() {
            return;
        }
        if let Err(error) = self.queue.note_gpus(&self.name, &self.host, &names.join(", ")).await {
            tracing::warn!(%error, "the page cannot tell which GPUs this worker has");
        }
    }

    async fn beat(self: Arc<Self>) -> Result<()> {
        let (job, refusal) = (self.current_job(), self.readiness.known_refusal(&self.gpus));
        let state = match (job, &refusal) {
            _ if self.leave.after_this_shape.is_cancelled() => WorkerState::Draining,
            (Some(_), _) => WorkerState::Busy,
            (None, Some(refusal)) => refusal.state(),
            (None, None) => WorkerState::Idle,
        };
        let note = refusal.as_ref().map(Refusal::why);
        self.queue.heartbeat(&self.name, &self.host, state, job, note).await
    }

    async fn reap(self: Arc<Self>) -> Result<()> {
        // Whoever gets the first connection after an outage must not take from the others what they are about to adopt.
        let asked = self.queue.now().await;
        let contact = self.contact(asked.is_ok());
        asked?;
        let patience = (contact >= self.config.adoption).then_some(self.config.adoption);
        let reaped = self.queue.reap(patience).await?;
        if reaped != Reaped::default() {
            tracing::info!(
                requeued = reaped.requeued,
                failed = reaped.failed,
                tickets = reaped.tickets,
                "queue repaired"
            );
        }
        Ok(())
    }

    /// For how long the database has answered without a break, as far as the reaper has asked it.
    fn contact(&self, answered: bool) -> Duration {
        let mut contact = self.contact.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = contact.filter(|(_, last)| now - *last < CONTACT_BREAK).map_or(now, |(since, _)| since);
        *contact = answered.then_some((since, now));
        now - since
    }

    async fn prune(self: Arc<Self>) -> Result<()> {
        retention::chore(&self.queue, &self.store, &self.config.retention).await
    }

    fn current_job(&self) -> Option<JobId> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_current_job(&self, job: Option<JobId>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = job;
    }
}

/// Connects to the engine, and waits for one that is not there; meanwhile the heartbeat says what is missing.
async fn engine(config: &SandboxConfig, queue: &Queue, worker: &str, host: &str, leave: &Leave) -> Sandbox {
    let mut told = String::new();
    loop {
        let why = match Sandbox::connect(config.clone()).await {
            Ok(sandbox) => return sandbox,
            Err(error) => error.to_string(),
        };
        if why != told {
            tracing::error!(error = why, "the container engine cannot be reached; trying again until it can");
            told = why;
        }
        if let Err(error) = queue.heartbeat(worker, host, WorkerState::Unready, None, Some(&told)).await {
            tracing::warn!(%error, "the heartbeat failed");
        }
        if queue.orders(worker).await.is_ok_and(|orders| orders.drain) {
            leave.after_this_shape.cancel();
        }
        sleep(ENGINE_AGAIN).await;
    }
}

/// Repeats a chore until `stop` fires. A chore that fails is tried again at its next turn.
async fn every<F: Future<Output = Result<()>>>(
    period: Duration,
    stop: CancellationToken,
    mut chore: impl FnMut() -> F,
) {
    let mut timer = interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(timer.tick()).await.is_some() {
        match stop.run_until_cancelled(chore()).await {
            Some(Err(error)) => {
                tracing::warn!(%error, "a chore failed; it is tried again");
                stop.run_until_cancelled(sleep(Duration::from_secs(1))).await;
            }
            Some(Ok(())) => {}
            None => return,
        }
    }
}

/// Runs blocking work on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|panic| Error::Internal(format!("a blocking task ended: {panic}")))?
}
