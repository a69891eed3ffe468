//! The shapes of an attempt, in order, and three of them at once: while one is captured, the one before it is exported, zipped
//! and stored, and the container of the next one is made. So the GPU waits for a start and not for the rest.
//!
//! All of it is one future: whoever drops the attempt drops every part where it is, and what that leaves is found by an
//! adopter or a sweep. At most one tail and one prepared container exist beside a capture.

use std::pin::{Pin, pin};

use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use super::attempt::{Attempt, End};
use super::lease::{LeaseKeeper, Stop};
use super::persist::persist;
use super::shape::{self, Front, ShapeRun, Start};
use crate::problems::{Problem, Revision};
use crate::queue::PendingRun;
use crate::telemetry::{metrics, phase};
use crate::{Error, Result};

/// A shape that is ready for the GPU.
type Ready<'a> = (ShapeRun<'a>, Start);
/// What is left to do for a shape that is done with the GPU.
type Tail<'a> = Pin<Box<dyn Future<Output = Result<Tailed>> + Send + 'a>>;

/// How a shape's tail ended.
enum Tailed {
    /// The shape's end is recorded.
    Recorded,
    /// By a fault of ours that may be this shape's alone.
    Failed(Error),
    /// For the attempt's sake.
    Stopped,
}

/// Runs the shapes that are not done yet.
pub(super) async fn run(
    attempt: &Attempt<'_>,
    keeper: &LeaseKeeper,
    after_this_shape: &CancellationToken,
) -> Result<End> {
    let (problem, revision) = attempt.problem().await?;
    Box::pin(Pipeline { attempt, problem: &problem, revision: &revision, keeper, after_this_shape }.run()).await
}

#[derive(Clone, Copy)]
struct Pipeline<'a> {
    attempt: &'a Attempt<'a>,
    problem: &'a Problem,
    revision: &'a Revision,
    keeper: &'a LeaseKeeper,
    after_this_shape: &'a CancellationToken,
}

impl<'a> Pipeline<'a> {
    async fn run(self) -> Result<End> {
        let pending = &self.attempt.claim.pending;
        let (mut fault, mut is_drained) = (None, false);
        let (mut prepared, mut behind): (Option<Ready<'a>>, Option<Tail<'a>>) = (None, None);
        for (place, run) in pending.iter().enumerate() {
            if self.keeper.stopped().is_some() {
                break;
            }
            // A capture that is under way ends even so.
            if self.attempt.capture_of(run).is_none() && self.after_this_shape.is_cancelled() {
                is_drained = true;
                continue;
            }
            let span = tracing::info_span!("shape", "ncu_service.benchmark.index" = run.benchmark_index);
            let stage = self.stage(run, prepared.take(), pending.get(place + 1), span.clone());
            let ((front, next), tailed) = Box::pin(beside(stage, behind.take())).await?;
            prepared = next;
            match tailed {
                None | Some(Tailed::Recorded) => {}
                Some(Tailed::Failed(error)) => drop(fault.get_or_insert(error)),
                Some(Tailed::Stopped) => return Ok(self.stopped()),
            }
            match front {
                Ok(Some((run, front))) => behind = Some(Box::pin(self.tail(run, front).instrument(span))),
                // Its container was ended for the keeper.
                Ok(None) => return Ok(self.stopped()),
                Err(error) => drop(fault.get_or_insert(self.of_one_shape(run.benchmark_index, error)?)),
            }
        }
        if let Some(last) = behind {
            match last.await? {
                Tailed::Recorded => {}
                Tailed::Failed(error) => drop(fault.get_or_insert(error)),
                Tailed::Stopped => return Ok(self.stopped()),
            }
        }
        match (self.keeper.stopped(), fault) {
            (Some(stop), _) => Ok(End::Stopped(stop)),
            (None, Some(fault)) => Err(fault),
            (None, None) => Ok(if is_drained { End::Drained } else { End::Done }),
        }
    }

    fn stopped(self) -> End {
        End::Stopped(self.keeper.stopped().unwrap_or(Stop::LeaseLost))
    }

    /// A shape's time on the GPU, and once it has begun the making of the next one's container.
    async fn stage(
        self,
        run: &'a PendingRun,
        prepared: Option<Ready<'a>>,
        next: Option<&'a PendingRun>,
        span: Span,
    ) -> (Result<Option<(ShapeRun<'a>, Front)>>, Option<Ready<'a>>) {
        let ready = match prepared {
            Some(ready) => Ok(ready),
            None => self.ready(run).instrument(span.clone()).await,
        };
        let (shape_run, start) = match ready {
            Ok(ready) => ready,
            Err(error) => return (Err(error), None),
        };
        let is_over = CancellationToken::new();
        let on_gpu = async {
            let front = Box::pin(shape_run.front(start).instrument(span)).await;
            is_over.cancel();
            front
        };
        let ahead = async {
            tokio::select! {
                biased;
                () = shape_run.progress.started() => self.prepare(next?).await,
                () = is_over.cancelled() => None,
            }
        };
        let (front, next) = tokio::join!(on_gpu, ahead);
        (front.map(|front| Some((shape_run, front?))), next)
    }

    /// Makes a shape ready that was not prepared.
    async fn ready(self, run: &'a PendingRun) -> Result<Ready<'a>> {
        let stop = self.keeper.cancelled();
        match self.attempt.capture_of(run) {
            Some(capture) => shape::reopen(self.attempt, self.problem, run, capture, stop).await,
            None => shape::prepare(self.attempt, self.problem, self.revision, run, stop).await,
        }
    }

    /// Makes the next shape ready while another has the GPU. Nothing depends on it: what fails is tried again when it counts.
    async fn prepare(self, next: &'a PendingRun) -> Option<Ready<'a>> {
        let is_wanted = self.attempt.capture_of(next).is_none()
            && self.keeper.stopped().is_none()
            && !self.after_this_shape.is_cancelled();
        if !is_wanted {
            return None;
        }
        phase("prepare", self.ready(next))
            .await
            .inspect_err(|error| {
                tracing::warn!(job = %self.attempt.claim.id, benchmark = next.benchmark_index, %error, "a shape could not be prepared ahead");
            })
            .ok()
    }

    /// What a shape needs after the GPU, up to its recorded end.
    async fn tail(self, shape_run: ShapeRun<'a>, front: Front) -> Result<Tailed> {
        let (attempt, lease) = (self.attempt, shape_run.lease);
        let end = match Box::pin(shape_run.tail(front)).await {
            Ok(Some(end)) => end,
            Ok(None) => return Ok(Tailed::Stopped),
            Err(error) => return self.of_one_shape(lease.benchmark_index, error).map(Tailed::Failed),
        };
        tracing::info!(job = %attempt.claim.id, benchmark = lease.benchmark_index, state = end.state.as_str(), error = end.error.as_ref().map(|(_, why)| why), "shape ended");
        // An archive whose run is refused here stays in the store: the write may have gone through before the connection
        // broke, so the object may be a published one.
        persist("ending a shape", || attempt.worker.queue.finish_run(lease, &end)).await?;
        metrics().shape_ended(end.state.as_str(), end.error.as_ref().map(|(kind, _)| kind.as_str()));
        // Not before: until the end is recorded, an adopter needs what there is, and it may have it already.
        attempt.clear(lease.benchmark_index).await;
        Ok(Tailed::Recorded)
    }

    /// A fault that may be one shape's alone, so that the others get their turn before the attempt counts as lost. What the
    /// shape left stays: nothing has shown that the lease is still ours. Any other error ends the attempt.
    fn of_one_shape(self, benchmark_index: u32, error: Error) -> Result<Error> {
        if !matches!(error, Error::Capture(_)) {
            return Err(error);
        }
        tracing::warn!(job = %self.attempt.claim.id, benchmark = benchmark_index, %error, "a shape failed on our side");
        Ok(error)
    }
}

/// Does a shape's stage beside the tail of the one before it. An error of the tail ends both at once, as the attempt is lost with
/// it. What becomes of the stage waits for the tail, so that shapes are recorded in order, and a fault of the one costs the
/// other nothing that is done already.
async fn beside<T>(stage: impl Future<Output = T>, tail: Option<Tail<'_>>) -> Result<(T, Option<Tailed>)> {
    let mut stage = pin!(stage);
    let Some(mut tail) = tail else { return Ok((stage.await, None)) };
    tokio::select! {
        staged = &mut stage => Ok((staged, Some(tail.await?))),
        tailed = &mut tail => {
            let tailed = tailed?;
            Ok((stage.await, Some(tailed)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn an_error_of_a_tail_does_not_wait_for_the_capture_beside_it() {
        let ended = beside(pending::<()>(), Some(Box::pin(ready(Err(Error::LeaseLost))))).await;
        assert!(matches!(ended, Err(Error::LeaseLost)));
    }

    #[tokio::test]
    async fn what_becomes_of_a_stage_waits_for_the_tail_beside_it() {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let slow: Tail<'static> = Box::pin(async move {
            gone.await.unwrap();
            Ok(Tailed::Recorded)
        });
        let mut both = pin!(beside(ready(7), Some(slow)));
        assert!(futures_util::poll!(&mut both).is_pending());
        go.send(()).unwrap();
        assert!(matches!(both.await, Ok((7, Some(Tailed::Recorded)))));
    }
}
