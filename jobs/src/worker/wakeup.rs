//! Waits for tickets, and claims the head of the queue for each.

use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt;
use apalis::prelude::{BackendExt, BoxDynError, Data, WorkerBuilder};
use apalis_postgres::{Config, PostgresStorage};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Worker, attempt};
use crate::ids::JobId;
use crate::queue::tickets::{QUEUE, Ticket};

/// Polling beside listening: a notification can be lost, and alone it was (17 s until the next one).
const POLL: Duration = Duration::from_secs(2);
/// Pause before the wake-up loop starts again after an outage.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two looks at whether an unfit worker is fit again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a ticket's handler needs.
#[derive(Clone)]
struct Desk {
    worker: Arc<Worker>,
    drain: CancellationToken,
}

impl Desk {
    /// Waits until this worker is fit for a job; `false` when it drains first.
    ///
    /// The ticket is held meanwhile: given back, it would come again at once. The reaper replaces it for the other workers.
    async fn may_claim(&self) -> bool {
        while !self.drain.is_cancelled() {
            if self.worker.readiness.refusal(&self.worker).await.is_none() {
                return true;
            }
            self.drain.run_until_cancelled(sleep(LOOK_AGAIN)).await;
        }
        false
    }
}

/// Serves tickets until the worker is told to leave. A job goes on without this.
pub async fn serve(worker: Arc<Worker>) {
    let drain = worker.leave.after_this_shape.clone();
    let desk = Desk { worker: Arc::clone(&worker), drain: drain.clone() };
    let mut round = 0_u32;
    while !drain.is_cancelled() {
        // A name per round: apalis refuses one whose registration is still fresh.
        let name = format!("{}-{round}", worker.name);
        round += 1;
        let backend = PostgresStorage::<Ticket>::new(worker.queue.pool())
            // One at a time: a buffered ticket would lock work that another worker could do.
            .with_config(Config::default().queue(QUEUE).batch_size(1))
            .with_pubsub()
            .poll_with_interval(POLL);
        let loop_ =
            WorkerBuilder::new(name).backend(backend).data(desk.clone()).concurrency(1).catch_panic().build(on_ticket);
        let stop = drain.clone();
        let ended = loop_
            .run_until(async move {
                stop.cancelled().await;
                Ok::<(), std::io::Error>(())
            })
            .await;
        if let Err(error) = ended {
            tracing::warn!(%error, "the wake-up loop ended; starting it again");
        }
        drain.run_until_cancelled(sleep(PAUSE)).await;
    }
}

/// Claims whatever is first in the queue: a ticket says that there is work, not which.
async fn on_ticket(_: Ticket, desk: Data<Desk>) -> Result<(), BoxDynError> {
    let desk = (*desk).clone();
    let taken = desk.drain.run_until_cancelled(Arc::clone(&desk.worker.seat).acquire_owned()).await;
    let Some(Ok(seat)) = taken else { return Ok(()) };
    if !desk.may_claim().await {
        return Ok(());
    }
    let claimed_at = Instant::now();
    let claim = match desk.worker.queue.claim(&desk.worker.name, desk.worker.config.lease).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return Ok(()),
        Err(error) => {
            // The reaper pushes a new ticket for a job that has none.
            tracing::warn!(%error, "the queue could not be asked");
            return Ok(());
        }
    };
    // In a task of its own: an outage of Postgres drops this handler's future, and the job must not go with it.
    let worker = Arc::clone(&desk.worker);
    let job = desk.worker.attempts.spawn(async move {
        let _busy = Busy::with(&worker, claim.id);
        Box::pin(attempt::run(&worker, claim, claimed_at, None, &worker.leave)).await;
        drop(seat);
    });
    if let Err(panic) = job.await {
        tracing::error!(%panic, "an attempt panicked; its job will be adopted");
    }
    Ok(())
}

/// Says which job is in progress, until dropped, however its attempt ends.
pub(super) struct Busy<'a>(&'a Worker);

impl<'a> Busy<'a> {
    pub(super) fn with(worker: &'a Worker, job: JobId) -> Self {
        worker.set_current_job(Some(job));
        Self(worker)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set_current_job(None);
    }
}
