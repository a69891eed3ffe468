//! One attempt at one job: its shapes in order, under a lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lease::{LeaseKeeper, Stop};
use super::persist::persist;
use super::shape;
use super::{Worker, blocking};
use crate::problems::{Problem, Revision};
use crate::queue::{Claim, RunLease, State};
use crate::{Error, Result};

/// How long a job waits after our n-th fault, so that a passing trouble can pass.
const FAULT_DELAY: Duration = Duration::from_secs(5);

/// How an attempt ended, when no fault ended it.
enum End {
    /// Every shape is over.
    Done,
    /// The worker stops; what is left is for the next one.
    Drained,
    /// The keeper of the lease ended it.
    Stopped(Stop),
}

/// Runs a claimed job to its end and records it. Never fails: what cannot be recorded is left to the reaper.
pub async fn run(worker: &Worker, claim: Claim, claimed_at: Instant, drain: &CancellationToken) {
    let keeper = LeaseKeeper::start(worker.queue.clone(), claim.id, claim.token, worker.config.lease, claimed_at);
    tracing::info!(job = %claim.id, attempt = claim.attempt, shapes = claim.pending.len(), leaderboard = claim.leaderboard, "job claimed");

    let end = shapes(worker, &claim, &keeper, drain).await;
    // An error that a lost lease caused is not a fault of its own.
    let end = match (end, keeper.stopped()) {
        (Err(_), Some(stop)) => Ok(End::Stopped(stop)),
        (end, _) => end,
    };
    let recorded = match end {
        Ok(End::Done) => persist("ending the job", || worker.queue.finish(claim.id, claim.token)).await.map(Some),
        Ok(End::Drained) => persist("releasing the job", || worker.queue.release(claim.id, claim.token))
            .await
            .map(|()| Some(State::Queued)),
        Ok(End::Stopped(Stop::CancelRequested)) => {
            persist("cancelling the job", || worker.queue.finish_cancelled(claim.id, claim.token))
                .await
                .map(|()| Some(State::Failed))
        }
        Ok(End::Stopped(Stop::LeaseLost)) => Ok(None),
        Err(fault) => {
            tracing::error!(job = %claim.id, attempt = claim.attempt, error = %fault, "the attempt failed by a fault of ours");
            worker.readiness.doubt().await;
            let (detail, message) = (fault.to_string(), fault.user_message());
            persist("recording a fault", || {
                worker.queue.fault(claim.id, claim.token, &detail, message, FAULT_DELAY * claim.attempt.unsigned_abs())
            })
            .await
            .map(Some)
        }
    };
    match recorded {
        Ok(Some(state)) => {
            tracing::info!(job = %claim.id, attempt = claim.attempt, state = state.as_str(), "attempt ended");
        }
        Ok(None) | Err(Error::LeaseLost) => {
            tracing::warn!(job = %claim.id, attempt = claim.attempt, "the job is another attempt's by now");
        }
        Err(error) => {
            tracing::error!(job = %claim.id, %error, "the attempt's end could not be recorded; the reaper will requeue the job");
        }
    }
}

async fn shapes(worker: &Worker, claim: &Claim, keeper: &LeaseKeeper, drain: &CancellationToken) -> Result<End> {
    let (problem, revision) = problem(worker, claim).await?;
    let mut fault = None;
    for (benchmark_index, shape) in &claim.pending {
        if let Some(stop) = keeper.stopped() {
            return Ok(End::Stopped(stop));
        }
        if drain.is_cancelled() {
            return Ok(End::Drained);
        }
        let run =
            RunLease { job: claim.id, token: claim.token, attempt: claim.attempt, benchmark_index: *benchmark_index };
        persist("starting a shape", || worker.queue.start_run(run)).await?;
        let end = match shape::profile(worker, claim, run, &problem, &revision, shape, keeper.stop()).await {
            Ok(Some(end)) => end,
            // Its container was ended for the keeper.
            Ok(None) => return Ok(End::Stopped(keeper.stopped().unwrap_or(Stop::LeaseLost))),
            // The trouble may be this shape's alone, so the others get their turn before the attempt counts as lost.
            Err(error @ Error::Capture(_)) => {
                tracing::warn!(job = %claim.id, benchmark = benchmark_index, %error, "a shape failed on our side");
                fault.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        tracing::info!(job = %claim.id, benchmark = benchmark_index, state = end.state.as_str(), error = end.error.as_ref().map(|(_, why)| why), "shape ended");
        // An archive whose run is refused here stays in the store: the write may have gone through before the connection
        // broke, so the object may be a published one.
        persist("ending a shape", || worker.queue.finish_run(run, &end)).await?;
    }
    fault.map_or(Ok(End::Done), Err)
}

/// The problem as the checkout has it now, with the checkout's revision. It was there when the job was queued, so its
/// absence is the operator's doing.
async fn problem(worker: &Worker, claim: &Claim) -> Result<(Arc<Problem>, Revision)> {
    let (catalog, folder) = (Arc::clone(&worker.catalog), claim.problem_dir.clone());
    blocking(move || {
        let problem = catalog.problem(&folder);
        let problem = problem.map_err(|error| Error::Internal(format!("problem {folder}: {error}")))?;
        Ok((problem, catalog.revision()))
    })
    .await
}
