//! What operators ask of this worker, which it finds in the database: `docs/operating.md`.

use std::sync::Arc;
use std::time::Duration;

use super::Worker;
use crate::Result;

/// Time between two looks.
pub(super) const LOOK: Duration = Duration::from_secs(3);

/// Drains, and lifts the quarantine of this worker's GPUs.
pub(super) async fn obey(worker: Arc<Worker>) -> Result<()> {
    let orders = worker.queue.orders(&worker.name).await?;
    if orders.lift_quarantine {
        for quarantine in worker.gpus.lift_quarantine()? {
            tracing::warn!(gpu = quarantine.gpu, reason = quarantine.reason, "quarantine lifted by an operator");
        }
        worker.queue.quarantine_lifted(&worker.name).await?;
        worker.clone().beat().await?;
    }
    if orders.drain && !worker.leave.after_this_shape.is_cancelled() {
        tracing::info!("draining for an operator: the shape in progress ends, nothing new is taken");
        worker.leave.after_this_shape.cancel();
        worker.beat().await?;
    }
    Ok(())
}

/// Prunes, if somebody asked for it and no other worker was quicker.
pub(super) async fn prune(worker: Arc<Worker>) -> Result<()> {
    if worker.queue.take_prune_order().await? { worker.prune().await } else { Ok(()) }
}
