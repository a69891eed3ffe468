//! Tickets: apalis tasks that wake a worker. One too many does no harm, and the reaper replaces one that was lost.

use apalis::prelude::TaskBuilder;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::{Error, Result};

/// Name of the apalis queue.
pub const QUEUE: &str = "ncu-service";

/// Says that there is work; which work, the `jobs` table knows. Unknown fields are ignored, so that an older worker reads
/// a newer ticket.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Ticket {}

/// Pushes tickets in the caller's transaction: a job and its ticket are there together or not at all.
pub(super) async fn push(connection: &mut PgConnection, count: usize) -> Result<()> {
    let payload = serde_json::to_vec(&Ticket::default())?;
    // A ticket is never retried: what may be retried is the job, and our table counts that.
    let tickets = (0..count).map(|_| TaskBuilder::new(payload.clone()).max_attempts(1).build()).collect();
    apalis_postgres::queries::push_tasks(connection, QUEUE, tickets).await.map_err(Error::Tickets)
}

/// Pushes as many tickets as there are jobs that could be claimed and have none. Says how many. A paused queue needs none: each
/// would be taken for nothing, and replaced.
pub(super) async fn replace_missing(connection: &mut PgConnection) -> Result<usize> {
    let due = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM jobs WHERE state = 'queued' AND not_before <= now()
           AND NOT EXISTS (SELECT FROM queue_state WHERE paused_at IS NOT NULL)"#
    )
    .fetch_one(&mut *connection)
    .await?;
    let missing = usize::try_from(due - waiting(connection).await?).unwrap_or(0);
    if missing > 0 {
        push(connection, missing).await?;
    }
    Ok(missing)
}

/// Tickets that any worker may take. One that a worker has locked does not count: that worker may be busy, or dead, and
/// apalis notices a dead one only after minutes.
async fn waiting(connection: &mut PgConnection) -> Result<i64> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM apalis.jobs WHERE job_type = $1 AND status = 'Pending'"#,
        QUEUE
    )
    .fetch_one(connection)
    .await?;
    Ok(count)
}

/// Deletes tickets that are over and registrations that are long dead. apalis keeps both for good.
pub(super) async fn prune(connection: &mut PgConnection) -> Result<u64> {
    let tickets = sqlx::query!(
        "DELETE FROM apalis.jobs
         WHERE job_type = $1 AND status IN ('Done', 'Failed', 'Killed') AND done_at < now() - interval '1 hour'",
        QUEUE
    )
    .execute(&mut *connection)
    .await?
    .rows_affected();
    sqlx::query!(
        "DELETE FROM apalis.workers w
         WHERE w.worker_type = $1 AND w.last_seen < now() - interval '1 day'
           AND NOT EXISTS (SELECT FROM apalis.jobs j WHERE j.lock_by = w.id)",
        QUEUE
    )
    .execute(connection)
    .await?;
    Ok(tickets)
}
