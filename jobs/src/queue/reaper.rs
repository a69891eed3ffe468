//! The reaper: takes jobs away from attempts that died, and replaces tickets that got lost. Whatever apalis loses, this
//! repairs.

use uuid::Uuid;

use super::jobs::{fail_open_runs, requeue_runs, write_verdict};
use super::{Queue, State, tickets};
use crate::{Error, Result};

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
    /// One round; does nothing while another worker is at it.
    pub async fn reap(&self) -> Result<Reaped> {
        let mut tx = self.pool.begin().await?;
        let ours =
            sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock($1) AS "ours!""#, LOCK).fetch_one(&mut *tx).await?;
        let mut reaped = Reaped::default();
        if !ours {
            return Ok(reaped);
        }
        // SKIP LOCKED: an attempt that is writing its result right now is not dead.
        let dead = sqlx::query!(
            "UPDATE jobs SET faults = faults + 1, run_token = NULL, lease_until = NULL,
                    last_fault = format('attempt %s on worker %s stopped renewing its lease', attempt, worker),
                    state = CASE WHEN faults + 1 >= max_attempts THEN 'failed' ELSE 'queued' END,
                    ended_at = CASE WHEN faults + 1 >= max_attempts THEN now() END
             WHERE id IN (SELECT id FROM jobs WHERE state = 'running' AND lease_until < now() FOR UPDATE SKIP LOCKED)
             RETURNING id, state, attempt, worker"
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
        fail_open_runs(&mut tx, &failed, Error::LeaseLost.user_message()).await?;
        for job in &failed {
            write_verdict(&mut tx, *job).await?;
        }
        reaped.failed = failed.len();

        let due = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM jobs WHERE state = 'queued' AND not_before <= now()"#
        )
        .fetch_one(&mut *tx)
        .await?;
        let missing = due - tickets::waiting(&mut tx).await?;
        reaped.tickets = usize::try_from(missing).unwrap_or(0);
        if reaped.tickets > 0 {
            tickets::push(&mut tx, reaped.tickets).await?;
        }
        tickets::prune(&mut tx).await?;
        tx.commit().await?;
        Ok(reaped)
    }
}
