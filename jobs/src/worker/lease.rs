//! Keeps the lease of one attempt, and ends the attempt when it cannot.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::Error;
use crate::ids::JobId;
use crate::queue::{Queue, Renewal};
use crate::telemetry::metrics;

/// Why an attempt must end early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Somebody asked to cancel the job.
    CancelRequested,
    /// The lease is another's, or could not be confirmed before it ran out.
    LeaseLost,
}

/// A lease under renewal. Dropping it ends the renewal.
#[derive(Debug)]
pub struct LeaseKeeper {
    cancelled: CancellationToken,
    lost: CancellationToken,
    task: JoinHandle<()>,
}

impl LeaseKeeper {
    /// Keeps a lease that was granted at `claimed_at`; renews it at once whenever `orders` says that there may be one to end it.
    #[must_use]
    pub fn start(
        queue: Queue,
        job: JobId,
        token: Uuid,
        lease: Duration,
        claimed_at: Instant,
        mut orders: watch::Receiver<u64>,
    ) -> Self {
        let (cancelled, lost) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn({
            let (cancelled, lost) = (cancelled.clone(), lost.clone());
            async move {
                let ended_by = keep(&queue, job, token, lease, claimed_at, &mut orders).await;
                tracing::warn!(%job, reason = ?ended_by, "the attempt must end");
                match ended_by {
                    Stop::CancelRequested => cancelled.cancel(),
                    Stop::LeaseLost => lost.cancel(),
                }
            }
        });
        Self { cancelled, lost, task }
    }

    /// Fires when somebody cancelled the job: its container must end, and its lease is still ours.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Returns when the lease is not ours any more: nothing may be touched from then on, the container neither, since it may
    /// have been adopted.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Why the attempt must end; `None` while it need not.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        if self.lost.is_cancelled() {
            Some(Stop::LeaseLost)
        } else {
            self.cancelled.is_cancelled().then_some(Stop::CancelRequested)
        }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews every third of the lease; in an outage it tries on until the lease has run out by our own clock. That clock
/// starts before each question, so we never believe in a lease longer than the database does.
async fn keep(
    queue: &Queue,
    job: JobId,
    token: Uuid,
    lease: Duration,
    claimed_at: Instant,
    orders: &mut watch::Receiver<u64>,
) -> Stop {
    let mut confirmed_at = claimed_at;
    let mut next = claimed_at + lease / 3;
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            Ok(()) = orders.changed() => {}
        }
        let asked_at = Instant::now();
        match timeout_at(confirmed_at + lease, queue.renew(job, token, lease)).await {
            Ok(Ok(Renewal::Renewed)) => {
                metrics().renewed("renewed");
                confirmed_at = asked_at;
                next = asked_at + lease / 3;
            }
            Ok(Ok(Renewal::CancelRequested)) => return Stop::CancelRequested,
            Ok(Err(Error::LeaseLost)) | Err(_) => {
                metrics().renewed("lost");
                return Stop::LeaseLost;
            }
            Ok(Err(error)) => {
                metrics().renewed("failed");
                tracing::warn!(%job, %error, "the lease could not be renewed; trying again");
                next = Instant::now() + lease / 15;
                if next >= confirmed_at + lease {
                    return Stop::LeaseLost;
                }
            }
        }
    }
}
