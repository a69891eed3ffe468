//! Takes over attempts of this host that lost their worker: their captures run on, and are waited for as if they had been
//! started here. `docs/queue.md` explains the rules.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempt;
use super::hold::FoundFolder;
use super::wakeup::Busy;
use super::{Worker, blocking};
use crate::Result;
use crate::queue::{Adoption, Claim, Held};
use crate::sandbox::Leftover;
use crate::telemetry::metrics;

/// What the last holder of an attempt left.
#[derive(Debug)]
pub struct Inherited {
    pub folder: FoundFolder,
    pub containers: Vec<Leftover>,
}

/// One round: adopts every attempt that has its folder here, and whose holder is dead, has handed it over or let its lease run
/// out.
pub async fn adopt(worker: Arc<Worker>) -> Result<()> {
    if worker.leave.after_this_shape.is_cancelled() {
        return Ok(());
    }
    let instance_dir = worker.instance_dir.clone();
    let folders = blocking(move || FoundFolder::list(&instance_dir)).await?;
    if folders.is_empty() {
        return Ok(());
    }
    // Asked after the folders were listed: a folder whose job is over by now is left to the sweep.
    let live = worker.queue.live().await?;
    for mut folder in folders {
        let Some(held) = folder.claim_token.and_then(|token| live.claim(token)).copied() else { continue };
        let is_dead = folder.is_abandoned();
        if (is_dead || held.is_expired)
            && let Err(error) = adopt_one(&worker, held, is_dead, folder).await
        {
            tracing::warn!(job = %held.job, %error, "an attempt could not be adopted; it is tried again");
        }
    }
    Ok(())
}

async fn adopt_one(worker: &Arc<Worker>, held: Held, is_dead: bool, folder: FoundFolder) -> Result<()> {
    let Some(token) = folder.claim_token else { return Ok(()) };
    // An engine that does not answer could not be waited on either.
    let containers = worker.sandbox.leftovers_of(token).await?;
    let claimed_at = Instant::now();
    match worker.queue.adopt(held, is_dead, &worker.name, worker.config.lease).await? {
        Adoption::Refused => {}
        Adoption::Ended(state) => {
            tracing::warn!(job = %held.job, state = state.as_str(), "a job that lost its worker ended instead of being adopted");
        }
        Adoption::Adopted(claim) => {
            metrics().adopted();
            tracing::info!(job = %claim.id, holder = claim.holder(), containers = containers.len(), "adopting a job that lost its worker");
            spawn(worker, *claim, claimed_at, Inherited { folder, containers });
        }
    }
    Ok(())
}

/// Goes on with an adopted job. It does not wait for a job that runs here: its container runs already. But beside another job,
/// or where no job may be taken, it ends with the shape that is under way.
fn spawn(worker: &Arc<Worker>, claim: Claim, claimed_at: Instant, inherited: Inherited) {
    let seat = Arc::clone(&worker.seat).try_acquire_owned().ok();
    let seat = seat.filter(|_| worker.readiness.known_refusal(&worker.gpus).is_none());
    let mut leave = worker.leave.clone();
    if seat.is_none() {
        leave.after_this_shape = CancellationToken::new();
        leave.after_this_shape.cancel();
    }
    let worker = Arc::clone(worker);
    worker.attempts.spawn({
        let worker = Arc::clone(&worker);
        async move {
            let _busy = seat.as_ref().map(|_| Busy::with(&worker, claim.id));
            Box::pin(attempt::run(&worker, claim, claimed_at, Some(inherited), &leave)).await;
        }
    });
}
