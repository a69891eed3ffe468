//! The `jobs` table: how a job gets in, who owns it, how it ends.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::postgres::types::PgInterval;
use sqlx::types::Json;
use sqlx::{PgConnection, PgTransaction};
use uuid::Uuid;

use super::model::{Claim, ErrorKind, NewJob, PendingRun};
use super::quota::{self, Admission, Quotas};
use super::{Queue, Reuse, State, reuse, tickets, verdict};
use crate::capture::options::RequestOptions;
use crate::ids::JobId;
use crate::problems::Shape;
use crate::telemetry::RemoteContext;
use crate::{Error, Result};

/// What a lease's renewal tells its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Go on.
    Renewed,
    /// Somebody asked for the job to be cancelled.
    CancelRequested,
}

/// Longest text of a fault that is kept.
const MAX_FAULT_CHARS: usize = 4000;

impl Queue {
    /// Queues a job without a look at quotas. Returns its position, from 1.
    pub async fn submit(&self, job: &NewJob) -> Result<i64> {
        let mut tx = self.pool.begin().await?;
        let position = insert(&mut tx, job).await?;
        tx.commit().await?;
        Ok(position)
    }

    /// Queues a job if that exceeds no quota, counted and inserted in one transaction and one at a time.
    /// With `reuse`, a stored result that answers for it is taken or told of.
    pub async fn submit_within(&self, job: &NewJob, quotas: &Quotas, reuse: Option<&Reuse>) -> Result<Admission> {
        let mut tx = self.pool.begin().await?;
        quota::take_turn(&mut tx).await?;
        if let Some(over) = quota::over_quota(&mut tx, &job.owner, job.source.len(), quotas).await? {
            return Ok(Admission::Refused(over));
        }
        let stored = match reuse {
            Some(reuse) => reuse::find(&mut tx, job, reuse).await?,
            None => None,
        };
        if let (Some(stored), true) = (stored, reuse.is_some_and(|reuse| reuse.is_taken))
            && reuse::insert(&mut tx, job, stored).await?
        {
            tx.commit().await?;
            return Ok(Admission::Cached);
        }
        let position = insert(&mut tx, job).await?;
        tx.commit().await?;
        Ok(Admission::Queued { position, stored })
    }

    /// Claims the head of the queue for `lease`; `None` when nothing waits, and while the queue is paused.
    pub async fn claim(&self, worker: &str, lease: Duration) -> Result<Option<Claim>> {
        let mut tx = self.pool.begin().await?;
        let token = Uuid::new_v4();
        let Some(id) = sqlx::query_scalar!(
            "UPDATE jobs SET state = 'running', run_token = $1, claim_token = $1, lease_until = now() + $2, worker = $3,
                    attempt = attempt + 1, adoption = 0, started_at = coalesce(started_at, now())
             WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND not_before <= now() AND NOT cancel_requested
                           AND NOT EXISTS (SELECT FROM queue_state WHERE paused_at IS NOT NULL)
                         ORDER BY priority DESC, seq LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING id",
            token,
            interval(lease),
            worker,
        )
        .fetch_optional(&mut *tx)
        .await?
        else {
            return Ok(None);
        };
        let claim = load_claim(&mut tx, JobId(id), token).await?;
        tx.commit().await?;
        Ok(Some(claim))
    }

    /// Extends a lease; [`Error::LeaseLost`] when the token is not the job's any more.
    pub async fn renew(&self, id: JobId, token: Uuid, lease: Duration) -> Result<Renewal> {
        let cancel = sqlx::query_scalar!(
            "UPDATE jobs SET lease_until = now() + $3 WHERE id = $1 AND run_token = $2 RETURNING cancel_requested",
            id.0,
            token,
            interval(lease),
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or(Error::LeaseLost)?;
        Ok(if cancel { Renewal::CancelRequested } else { Renewal::Renewed })
    }

    /// Puts a job back at its place, shapes that are done kept: this worker stops, and nobody is at fault.
    pub async fn release(&self, id: JobId, token: Uuid) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        let updated = sqlx::query!(
            "UPDATE jobs SET state = 'queued', run_token = NULL, lease_until = NULL, worker = NULL WHERE id = $1 AND run_token = $2",
            id.0,
            token,
        )
        .execute(&mut *tx)
        .await?;
        if updated.rows_affected() == 0 {
            return Err(Error::LeaseLost);
        }
        requeue_runs(&mut tx, id.0).await?;
        tickets::push(&mut tx, 1).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Records a fault of ours. The job waits for `delay` and is tried again, or fails when this was its last attempt.
    /// Returns its new state.
    pub async fn fault(&self, id: JobId, token: Uuid, detail: &str, message: &str, delay: Duration) -> Result<State> {
        // It may quote what a container printed: Postgres takes no NUL, and a fault that cannot be recorded never ends.
        let detail: String = detail.chars().filter(|&c| c != '\0').take(MAX_FAULT_CHARS).collect();
        let mut tx = self.pool.begin().await?;
        let state = sqlx::query_scalar!(
            "UPDATE jobs SET faults = faults + 1, last_fault = $3, run_token = NULL, lease_until = NULL, worker = NULL,
                    not_before = now() + $4,
                    state = CASE WHEN faults + 1 >= max_attempts THEN 'failed' ELSE 'queued' END,
                    ended_at = CASE WHEN faults + 1 >= max_attempts THEN now() END
             WHERE id = $1 AND run_token = $2 RETURNING state",
            id.0,
            token,
            detail,
            interval(delay),
        )
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::LeaseLost)?;
        let state = State::decode(state)?;
        if state == State::Failed {
            fail_open_runs(&mut tx, &[id.0], message).await?;
            write_verdict(&mut tx, id.0).await?;
        } else {
            requeue_runs(&mut tx, id.0).await?;
            tickets::push(&mut tx, 1).await?;
        }
        tx.commit().await?;
        Ok(state)
    }

    /// Ends a job with what its runs came to. Returns its final state.
    pub async fn finish(&self, id: JobId, token: Uuid) -> Result<State> {
        let mut tx = self.pool.begin().await?;
        lock_leased(&mut tx, id, token).await?;
        let state = write_verdict(&mut tx, id.0).await?;
        tx.commit().await?;
        Ok(state)
    }

    /// Ends a job that somebody asked to cancel, on behalf of the worker that held it.
    pub async fn finish_cancelled(&self, id: JobId, token: Uuid) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        lock_leased(&mut tx, id, token).await?;
        end_cancelled(&mut tx, id).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Cancels a job: a waiting one ends at once, a running one as soon as its worker renews the lease. Returns whether
    /// there was anything to cancel.
    pub async fn cancel(&self, id: JobId) -> Result<bool> {
        let mut tx = self.pool.begin().await?;
        let state = cancel(&mut tx, id).await?;
        tx.commit().await?;
        Ok(state.is_some())
    }
}

/// Inserts a job with its shapes, source and ticket, in the caller's transaction. Returns its position, from 1.
async fn insert(connection: &mut PgConnection, job: &NewJob) -> Result<i64> {
    let sha256 = Sha256::digest(job.source.as_bytes());
    let seq = sqlx::query_scalar!(
        "INSERT INTO jobs (id, owner, leaderboard, problem_dir, file_name, source_sha256, options, trace_parent)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING seq",
        job.id.0,
        job.owner.as_bytes(),
        job.leaderboard,
        job.problem_dir,
        job.file_name,
        sha256.as_slice(),
        Json(&job.options) as _,
        job.trace_parent,
    )
    .fetch_one(&mut *connection)
    .await?;
    sqlx::query!("INSERT INTO submissions (job_id, source) VALUES ($1, $2)", job.id.0, job.source)
        .execute(&mut *connection)
        .await?;
    let (indexes, shapes) = index_columns(&job.benchmarks)?;
    sqlx::query!(
        "INSERT INTO runs (job_id, benchmark_index, benchmark)
         SELECT $1, index, shape::json FROM unnest($2::integer[], $3::text[]) AS new (index, shape)",
        job.id.0,
        &indexes,
        &shapes,
    )
    .execute(&mut *connection)
    .await?;
    tickets::push(connection, 1).await?;
    let position = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM jobs
           WHERE state = 'queued' AND (priority > 0 OR (priority = 0 AND seq <= $1))"#,
        seq
    )
    .fetch_one(&mut *connection)
    .await?;
    Ok(position)
}

/// Cancels a job in the caller's transaction. Its state before, if there was anything to cancel.
pub(super) async fn cancel(tx: &mut PgTransaction<'_>, id: JobId) -> Result<Option<State>> {
    let state = sqlx::query_scalar!(
        "UPDATE jobs SET cancel_requested = true WHERE id = $1 AND state IN ('queued', 'running') RETURNING state",
        id.0
    )
    .fetch_optional(&mut **tx)
    .await?
    .map(State::decode)
    .transpose()?;
    if state == Some(State::Queued) {
        end_cancelled(tx, id).await?;
    }
    Ok(state)
}

/// A job as its new holder needs it.
pub(super) async fn load_claim(connection: &mut PgConnection, id: JobId, token: Uuid) -> Result<Claim> {
    let job = sqlx::query!(
        r#"SELECT claim_token AS "claim_token!", attempt, adoption, leaderboard, problem_dir, file_name,
                  options AS "options: Json<RequestOptions>", source, trace_parent,
                  extract(epoch FROM now() - created_at)::float8 AS "age!"
           FROM jobs JOIN submissions ON job_id = id WHERE id = $1"#,
        id.0
    )
    .fetch_one(&mut *connection)
    .await?;
    let pending = sqlx::query!(
        r#"SELECT benchmark_index, benchmark AS "benchmark: Json<Shape>",
                  CASE WHEN state = 'running' THEN adoption END AS started_by
           FROM runs WHERE job_id = $1 AND state IN ('queued', 'running') ORDER BY benchmark_index"#,
        id.0
    )
    .fetch_all(connection)
    .await?;
    Ok(Claim {
        id,
        token,
        claim_token: job.claim_token,
        attempt: job.attempt,
        adoption: job.adoption,
        leaderboard: job.leaderboard,
        problem_dir: job.problem_dir,
        file_name: job.file_name,
        source: job.source,
        options: job.options.0,
        trace: RemoteContext::new(job.trace_parent.as_deref(), None),
        // A clock that was set back makes nobody younger than new.
        age: Duration::try_from_secs_f64(job.age).unwrap_or_default(),
        pending: pending
            .into_iter()
            .map(|run| PendingRun {
                benchmark_index: run.benchmark_index.cast_unsigned(),
                shape: run.benchmark.0,
                started_by: run.started_by,
            })
            .collect(),
    })
}

/// Locks a job against every other writer, if the token is still its own.
pub(super) async fn lock_leased(tx: &mut PgTransaction<'_>, id: JobId, token: Uuid) -> Result<()> {
    sqlx::query!("SELECT id FROM jobs WHERE id = $1 AND run_token = $2 FOR UPDATE", id.0, token)
        .fetch_optional(&mut **tx)
        .await?
        .map(drop)
        .ok_or(Error::LeaseLost)
}

/// Runs that were under way are to be done again.
pub(super) async fn requeue_runs(connection: &mut PgConnection, job: Uuid) -> Result<()> {
    sqlx::query!("UPDATE runs SET state = 'queued', started_at = NULL WHERE job_id = $1 AND state = 'running'", job)
        .execute(connection)
        .await?;
    Ok(())
}

/// Runs that are not over end as our fault.
pub(super) async fn fail_open_runs(connection: &mut PgConnection, jobs: &[Uuid], message: &str) -> Result<()> {
    sqlx::query!(
        "UPDATE runs SET state = 'failed', error = $2, error_kind = $3, ended_at = now()
         WHERE job_id = ANY($1) AND state IN ('queued', 'running')",
        jobs,
        message,
        ErrorKind::ServiceFault.as_str(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Ends a job as our fault. Returns its final state.
pub(super) async fn fail(connection: &mut PgConnection, id: JobId, detail: &str, message: &str) -> Result<State> {
    sqlx::query!("UPDATE jobs SET last_fault = $2 WHERE id = $1", id.0, detail).execute(&mut *connection).await?;
    fail_open_runs(connection, &[id.0], message).await?;
    write_verdict(connection, id.0).await
}

pub(super) async fn end_cancelled(connection: &mut PgConnection, id: JobId) -> Result<()> {
    const MESSAGE: &str = "The job was cancelled.";
    let kind = ErrorKind::Cancelled.as_str();
    sqlx::query!(
        "UPDATE runs SET state = 'failed', error = $2, error_kind = $3, ended_at = now()
         WHERE job_id = $1 AND state IN ('queued', 'running')",
        id.0,
        MESSAGE,
        kind,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "UPDATE jobs SET state = 'failed', error = $2, error_kind = $3, ended_at = now(), run_token = NULL, lease_until = NULL
         WHERE id = $1",
        id.0,
        MESSAGE,
        kind,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes the final state that a job's runs come to.
pub(super) async fn write_verdict(connection: &mut PgConnection, job: Uuid) -> Result<State> {
    let runs = sqlx::query_as!(
        verdict::EndedRun,
        r#"SELECT benchmark_index, state AS "state: String", error, error_kind FROM runs WHERE job_id = $1 ORDER BY benchmark_index"#,
        job
    )
    .fetch_all(&mut *connection)
    .await?;
    let verdict = verdict::of(&runs)?;
    sqlx::query!(
        "UPDATE jobs SET state = $2, error = $3, error_kind = $4, ended_at = now(), run_token = NULL, lease_until = NULL WHERE id = $1",
        job,
        verdict.state.as_str(),
        verdict.error,
        verdict.error_kind,
    )
    .execute(connection)
    .await?;
    Ok(verdict.state)
}

/// Shapes as two columns. Each travels as text: a `json[]` parameter would be sent as `jsonb[]`, which sorts keys.
fn index_columns(benchmarks: &[(u32, Shape)]) -> Result<(Vec<i32>, Vec<String>)> {
    let mut columns = (Vec::new(), Vec::new());
    for (index, shape) in benchmarks {
        columns.0.push(index.cast_signed());
        columns.1.push(serde_json::to_string(shape)?);
    }
    Ok(columns)
}

/// A duration as Postgres adds it.
pub(super) fn interval(duration: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX) }
}
