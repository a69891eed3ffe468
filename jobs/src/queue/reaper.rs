//! The reaper: takes jobs away from attempts that died, and replaces tickets that got lost. Whatever apalis loses, this
//! repairs.

use std::time::Duration;

use uuid::Uuid;

use super::adopt::LOST_TOO_OFTEN;
use super::jobs::{end_cancelled, fail_open_runs, interval, requeue_runs, write_verdict};
use super::{Queue, State, tickets};
use crate::Result;
use crate::ids::JobId;

/// Key of the advisory lock that lets one worker at a time reap.
const LOCK: i64 = 0x6e63_755f_7265_6170;

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Jobs taken from dead attempts and queued again.
    pub requeued: usize,
    /// Jobs that failed because an attempt died once too often.
    pub failed: usize,
    /// Tickets pushed for jobs that had none.
    pub tickets: usize,
}

impl Queue {
    /// One round; does nothing while another worker is at it. An attempt whose lease ran out is left to adopters for `patience`;
    /// without one no attempt is taken from anybody.
    pub async fn reap(&self, patience: Option<Duration>) -> Result<Reaped> {
        let mut tx = self.pool.begin().await?;
        let ours =
            sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock($1) AS "ours!""#, LOCK).fetch_one(&mut *tx).await?;
        let mut reaped = Reaped::default();
        if !ours {
            return Ok(reaped);
        }
        // SKIP LOCKED: an attempt that is writing its result right now is not dead.
        let dead = sqlx::query!(
            "UPDATE jobs SET run_token = NULL, lease_until = NULL,
                    -- Nobody is at fault for an attempt that was handed over.
                    faults = faults + CASE WHEN worker IS NULL THEN 0 ELSE 1 END,
                    last_fault = CASE WHEN worker IS NULL THEN last_fault
                        ELSE format('attempt %s lost its worker %s, and no other adopted it', attempt, worker) END,
                    state = CASE WHEN worker IS NOT NULL AND faults + 1 >= max_attempts THEN 'failed' ELSE 'queued' END,
                    ended_at = CASE WHEN worker IS NOT NULL AND faults + 1 >= max_attempts THEN now() END
             WHERE id IN (SELECT id FROM jobs WHERE state = 'running' AND lease_until < now() - $1::interval FOR UPDATE SKIP LOCKED)
             RETURNING id, state, attempt, worker",
            patience.map(interval),
        )
        .fetch_all(&mut *tx)
        .await?;
        let mut failed: Vec<Uuid> = Vec::new();
        for job in dead {
            let state = State::decode(job.state)?;
            tracing::warn!(job = %job.id.as_simple(), attempt = job.attempt, worker = job.worker, state = state.as_str(), "lease expired");
            if state == State::Failed {
                failed.push(job.id);
            } else {
                requeue_runs(&mut tx, job.id).await?;
                reaped.requeued += 1;
            }
        }
        fail_open_runs(&mut tx, &failed, LOST_TOO_OFTEN).await?;
        for job in &failed {
            write_verdict(&mut tx, *job).await?;
        }
        reaped.failed = failed.len();

        // Cancelled while it ran, and then its worker was lost or let it go.
        let cancelled = sqlx::query_scalar!(
            "SELECT id FROM jobs WHERE state = 'queued' AND cancel_requested FOR UPDATE SKIP LOCKED"
        )
        .fetch_all(&mut *tx)
        .await?;
        for job in cancelled {
            end_cancelled(&mut tx, JobId(job)).await?;
        }

        reaped.tickets = tickets::replace_missing(&mut tx).await?;
        tickets::prune(&mut tx).await?;
        tx.commit().await?;
        Ok(reaped)
    }
}
