//! One attempt at one job: its shapes in order, under a lease.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::adopt::Inherited;
use super::hold::AttemptFolder;
use super::lease::{LeaseKeeper, Stop};
use super::persist::persist;
use super::{Worker, blocking, shape, stage, sweep};
use crate::problems::{Catalog, Problem, Revision};
use crate::queue::{Claim, PendingRun, State};
use crate::sandbox::{Leftover, Role};
use crate::telemetry::{self, metrics};
use crate::{Error, Result};

/// How long a job waits after our n-th fault, so that a passing trouble can pass.
const FAULT_DELAY: Duration = Duration::from_secs(5);
/// How long each question of a hand-over may take: the process is about to end.
const HAND_OVER_PATIENCE: Duration = Duration::from_millis(700);

/// When an attempt ends early for its worker's sake.
#[derive(Debug, Clone, Default)]
pub struct Leave {
    /// Once the shape in progress is over.
    pub after_this_shape: CancellationToken,
    /// At once, leaving its container to the next worker.
    pub hand_over: CancellationToken,
}

/// How an attempt ended, when no fault ended it.
enum End {
    /// Every shape is over.
    Done,
    /// The worker stops; what is left is for the next one.
    Drained,
    /// The worker stops in mid-shape.
    HandedOver,
    /// The keeper of the lease ended it.
    Stopped(Stop),
}

/// An attempt in progress.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub worker: &'a Worker,
    pub claim: &'a Claim,
    /// The problems, as they were when the attempt began.
    pub catalog: Arc<Catalog>,
    folder: AttemptFolder,
    /// The captures that an earlier holder started.
    captures: Vec<Leftover>,
}

/// Runs a job that was claimed or adopted to its end and records it. Never fails: what cannot be recorded is left to adopters
/// and to the reaper.
pub async fn run(worker: &Arc<Worker>, claim: Claim, claimed_at: Instant, inherited: Option<Inherited>, leave: &Leave) {
    if claim.attempt == 1 && inherited.is_none() {
        telemetry::queue_span(&claim.trace, claim.age);
        metrics().waited(claim.age);
    }
    let span = tracing::info_span!(
        "job",
        otel.kind = "consumer",
        trace_id = tracing::field::Empty,
        "ncu_service.job.id" = %claim.id,
        "ncu_service.leaderboard" = claim.leaderboard,
        "ncu_service.attempt" = claim.attempt,
        "ncu_service.adoption" = claim.adoption,
    );
    telemetry::note_trace(&span, &claim.trace);
    Box::pin(to_its_end(worker, claim, claimed_at, inherited, leave).instrument(span)).await;
}

async fn to_its_end(
    worker: &Arc<Worker>,
    claim: Claim,
    claimed_at: Instant,
    inherited: Option<Inherited>,
    leave: &Leave,
) {
    let keeper = LeaseKeeper::start(
        worker.queue.clone(),
        claim.id,
        claim.token,
        worker.config.lease,
        claimed_at,
        worker.cancels.watch(),
    );
    let holder = claim.holder();
    tracing::info!(job = %claim.id, holder, shapes = claim.pending.len(), leaderboard = claim.leaderboard, "job taken");

    let (attempt, end) = match Attempt::begin(worker, &claim, inherited).await {
        Ok(attempt) => {
            // To let go of an attempt is to drop it where it is, as a death of the process would: an adopter copes with that.
            let end = tokio::select! {
                end = attempt.shapes(&keeper, &leave.after_this_shape) => end,
                () = keeper.lost() => Ok(End::Stopped(Stop::LeaseLost)),
                () = leave.hand_over.cancelled() => Ok(End::HandedOver),
            };
            (Some(attempt), end)
        }
        Err(error) => (None, Err(error)),
    };
    // An error that a lost lease caused is not a fault of its own.
    let end = match (end, keeper.stopped()) {
        (Err(_), Some(stop)) => Ok(End::Stopped(stop)),
        (end, _) => end,
    };
    let recorded = match end {
        Ok(End::HandedOver) => {
            // A renewal would take it back.
            drop(keeper);
            if let Err(error) = hand_over(worker, &claim).await {
                tracing::warn!(job = %claim.id, holder, %error, "the job could not be handed over; it is adopted after its lease");
            }
            return;
        }
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
            tracing::error!(job = %claim.id, holder, error = %fault, "the attempt failed by a fault of ours");
            metrics().attempt_failed();
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
            tracing::info!(job = %claim.id, holder, state = state.as_str(), "attempt ended");
        }
        Ok(None) | Err(Error::LeaseLost) => {
            tracing::warn!(job = %claim.id, holder, "the lease is gone; what still runs is left to an adopter");
        }
        Err(error) => {
            tracing::error!(job = %claim.id, %error, "the attempt's end could not be recorded; the reaper will requeue the job");
        }
    }
    // From here on an adopter may have it.
    drop((keeper, attempt));
    if let Err(error) = sweep::sweep(Arc::clone(worker)).await {
        tracing::warn!(%error, "what the attempt left could not be removed; it is tried again");
    }
}

/// Leaves a job to the next worker: to one of this host where a capture has been started, and to any otherwise.
async fn hand_over(worker: &Worker, claim: &Claim) -> Result<()> {
    let containers = timeout(HAND_OVER_PATIENCE, worker.sandbox.leftovers_of(claim.claim_token)).await;
    // An engine that does not answer may well run it.
    let has_capture = match containers {
        Ok(Ok(found)) => found.iter().any(|one| one.role == Some(Role::Capture) && one.has_started),
        _ => true,
    };
    let recorded = async {
        if has_capture {
            worker.queue.hand_over(claim.id, claim.token).await
        } else {
            worker.queue.release(claim.id, claim.token).await
        }
    };
    let late = || Error::Internal("the database did not answer in time".to_owned());
    timeout(HAND_OVER_PATIENCE, recorded).await.unwrap_or_else(|_| Err(late()))?;
    tracing::info!(job = %claim.id, holder = claim.holder(), container_stays = has_capture, "job handed over");
    Ok(())
}

impl<'a> Attempt<'a> {
    /// Makes the attempt's folder, or takes over that of its last holder, whose unfinished work is removed.
    async fn begin(worker: &'a Worker, claim: &'a Claim, inherited: Option<Inherited>) -> Result<Self> {
        let (instance_dir, token, adoption) = (worker.instance_dir.clone(), claim.claim_token, claim.adoption);
        let problems = Arc::clone(&worker.catalog);
        let Some(Inherited { folder, containers }) = inherited else {
            let begin = move || {
                let folder = AttemptFolder::create(&instance_dir, token)?;
                let catalog = pin(&problems, &folder)?;
                Ok((folder, catalog))
            };
            let (folder, catalog) = blocking(begin).await?;
            return Ok(Self { worker, claim, catalog, folder, captures: Vec::new() });
        };
        let take_over = move || {
            let folder = folder.take_over(&instance_dir, token, adoption)?;
            let catalog = match folder.problems() {
                Some(root) => Arc::new(Catalog::new(root)),
                None => problems.pinned().map_err(Error::io("looking for the problems directory"))?,
            };
            Ok((folder, catalog))
        };
        let (folder, catalog) = blocking(take_over).await?;
        let (captures, others): (Vec<_>, Vec<_>) =
            containers.into_iter().partition(|container| claim.pending.iter().any(|run| holds_capture(container, run)));
        for container in others {
            // It is in nobody's way: the next holder's have other names.
            if let Err(error) = worker.sandbox.remove(&container.container_id).await {
                tracing::warn!(container = container.container_id, %error, "an unfinished container could not be removed");
            }
        }
        Ok(Self { worker, claim, catalog, folder, captures })
    }

    async fn shapes(&self, keeper: &LeaseKeeper, after_this_shape: &CancellationToken) -> Result<End> {
        let (problem, revision) = self.problem().await?;
        let mut fault = None;
        for pending in &self.claim.pending {
            if let Some(stop) = keeper.stopped() {
                return Ok(End::Stopped(stop));
            }
            let capture = self.captures.iter().find(|container| holds_capture(container, pending));
            if capture.is_none() && after_this_shape.is_cancelled() {
                return fault.map_or(Ok(End::Drained), Err);
            }
            let benchmark_index = pending.benchmark_index;
            let run = self.claim.lease_of(benchmark_index);
            if capture.is_none() {
                persist("starting a shape", || self.worker.queue.start_run(run)).await?;
            }
            let span = tracing::info_span!("shape", "ncu_service.benchmark.index" = benchmark_index);
            let profile = shape::profile(self, &problem, &revision, pending, capture, keeper.cancelled());
            let end = match Box::pin(profile.instrument(span)).await {
                Ok(Some(end)) => end,
                // Its container was ended for the keeper.
                Ok(None) => return Ok(End::Stopped(keeper.stopped().unwrap_or(Stop::LeaseLost))),
                // The trouble may be this shape's alone, so the others get their turn before the attempt counts as lost.
                Err(error @ Error::Capture(_)) => {
                    tracing::warn!(job = %self.claim.id, benchmark = benchmark_index, %error, "a shape failed on our side");
                    fault.get_or_insert(error);
                    // What it left stays: nothing has shown that the lease is still ours.
                    continue;
                }
                Err(error) => return Err(error),
            };
            tracing::info!(job = %self.claim.id, benchmark = benchmark_index, state = end.state.as_str(), error = end.error.as_ref().map(|(_, why)| why), "shape ended");
            // An archive whose run is refused here stays in the store: the write may have gone through before the connection
            // broke, so the object may be a published one.
            persist("ending a shape", || self.worker.queue.finish_run(run, &end)).await?;
            metrics().shape_ended(end.state.as_str(), end.error.as_ref().map(|(kind, _)| kind.as_str()));
            // Not before: until the end is recorded, an adopter needs what there is, and it may have it already.
            self.clear(benchmark_index).await;
        }
        fault.map_or(Ok(End::Done), Err)
    }

    /// Where a shape's files lie.
    pub(super) fn run_folder(&self, benchmark_index: u32) -> PathBuf {
        self.folder.of_run(benchmark_index)
    }

    /// Removes what a shape needs no more. What cannot be removed now is swept later.
    async fn clear(&self, benchmark_index: u32) {
        let containers = async {
            for container in self.worker.sandbox.leftovers_of(self.claim.claim_token).await? {
                if container.labels.is_some_and(|labels| labels.benchmark == benchmark_index) {
                    self.worker.sandbox.remove(&container.container_id).await?;
                }
            }
            Ok(())
        };
        let folder = self.run_folder(benchmark_index);
        // What a submission left may be hundreds of thousands of files.
        let cleared: Result<()> = match containers.await {
            Ok(()) => blocking(move || stage::remove(&folder)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = cleared {
            tracing::warn!(job = %self.claim.id, benchmark = benchmark_index, %error, "a shape's container or folder could not be removed");
        }
    }

    /// The problem as the attempt found it at its beginning, with the checkout's revision. It was there when the job was queued,
    /// so its absence is the operator's doing.
    async fn problem(&self) -> Result<(Arc<Problem>, Revision)> {
        let (catalog, folder) = (Arc::clone(&self.catalog), self.claim.problem_dir.clone());
        blocking(move || {
            let problem = catalog.problem(&folder);
            let problem = problem.map_err(|error| Error::Internal(format!("problem {folder}: {error}")))?;
            Ok((problem, catalog.revision()))
        })
        .await
    }
}

/// The problems of a fresh attempt: all its shapes read the same ones, whatever the operator puts in their place meanwhile.
fn pin(problems: &Arc<Catalog>, folder: &AttemptFolder) -> Result<Arc<Catalog>> {
    let catalog = problems.pinned().map_err(Error::io("looking for the problems directory"))?;
    folder.note_problems(catalog.root())?;
    Ok(catalog)
}

/// Whether a container holds the capture that the shape relies on, done or under way.
fn holds_capture(container: &Leftover, run: &PendingRun) -> bool {
    container.role == Some(Role::Capture)
        && container.has_started
        && container
            .labels
            .is_some_and(|labels| labels.benchmark == run.benchmark_index && Some(labels.adoption) == run.started_by)
}
