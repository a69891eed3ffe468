//! The same job again: whether a stored result answers for it, and a job that takes it.
//!
//! Same is what a profile depends on: the submission's bytes, the shapes with their place, the options, the problem's revision and
//! files, and what a worker that takes jobs now would make it with. Such a job has rows of its own, which expire by their own
//! time; they refer to the archives of the first one.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Queue;
use super::jobs::lock_leased;
use super::model::NewJob;
use super::runs::RunLease;
use super::workers::ALIVE_SECS;
use crate::Result;
use crate::ids::JobId;

/// What becomes of a result that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reuse {
    /// The problem as it is now ([`crate::problems::version`]).
    pub problem_version: String,
    /// Whether the client takes a stored result; otherwise it is only told of it.
    pub is_taken: bool,
    /// Whether other users' results count, too.
    pub is_shared: bool,
}

/// A result that answers for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredResult {
    /// The job that has it.
    pub job: JobId,
    /// Whether it is the asking owner's.
    pub is_own: bool,
    /// When it was measured.
    pub measured_at: DateTime<Utc>,
}

impl Queue {
    /// What this worker makes profiles with, for who looks for a stored result.
    pub async fn note_setup(&self, worker: &str, setup: &str) -> Result<()> {
        sqlx::query!("UPDATE workers SET setup = $2 WHERE name = $1", worker, setup).execute(&self.pool).await?;
        Ok(())
    }

    /// What a shape that has been started is made with.
    pub async fn note_made_with(&self, run: RunLease, setup: &str, problem_version: &str) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        lock_leased(&mut tx, run.job, run.token).await?;
        sqlx::query!(
            "UPDATE runs SET setup = $3, problem_version = $4 WHERE job_id = $1 AND benchmark_index = $2",
            run.job.0,
            run.benchmark_index.cast_signed(),
            setup,
            problem_version,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }
}

/// The newest result that answers for a job, if its archives can be downloaded.
pub(super) async fn find(connection: &mut PgConnection, job: &NewJob, reuse: &Reuse) -> Result<Option<StoredResult>> {
    let mut shapes = Vec::with_capacity(job.benchmarks.len());
    for (index, shape) in &job.benchmarks {
        shapes.push(format!("{index} {}", serde_json::to_string(shape)?));
    }
    let source_sha256 = Sha256::digest(job.source.as_bytes());
    let found = sqlx::query!(
        r#"WITH setups AS (
               SELECT setup FROM workers
               WHERE setup IS NOT NULL AND state IN ('idle', 'busy') AND last_seen_at > now() - make_interval(secs => $1))
           SELECT job.id, job.owner = $2 AS "is_own!", coalesce(job.measured_at, job.ended_at) AS "measured_at!"
           FROM jobs job
           WHERE job.source_sha256 = $3 AND job.state = 'succeeded' AND job.problem_dir = $4 AND job.options::text = $5
             AND (job.owner = $2 OR $6)
             AND NOT EXISTS (SELECT FROM runs
                             WHERE job_id = job.id
                               AND (artifact_name IS NULL OR artifact_expired_at IS NOT NULL
                                    OR problem_version IS DISTINCT FROM $7 OR setup IS NULL
                                    OR setup NOT IN (SELECT setup FROM setups)))
             AND (SELECT array_agg(benchmark_index || ' ' || benchmark::text ORDER BY benchmark_index) FROM runs
                  WHERE job_id = job.id) = $8
           ORDER BY job.owner = $2 DESC, job.seq DESC LIMIT 1"#,
        ALIVE_SECS,
        job.owner.as_bytes(),
        source_sha256.as_slice(),
        job.problem_dir,
        serde_json::to_string(&job.options)?,
        reuse.is_shared,
        reuse.problem_version,
        &shapes,
    )
    .fetch_optional(connection)
    .await?;
    Ok(found.map(|found| StoredResult { job: JobId(found.id), is_own: found.is_own, measured_at: found.measured_at }))
}

/// Inserts a job that has ended by taking a stored result; `false` where that has expired meanwhile.
pub(super) async fn insert(connection: &mut PgConnection, job: &NewJob, from: StoredResult) -> Result<bool> {
    // Its archives stay until this transaction is over: who expires them waits for these rows, and sees the new ones then.
    let held = sqlx::query_scalar!(
        "SELECT benchmark_index FROM runs WHERE job_id = $1 AND artifact_expired_at IS NULL FOR SHARE",
        from.job.0
    );
    if held.fetch_all(&mut *connection).await?.len() != job.benchmarks.len() {
        return Ok(false);
    }
    sqlx::query!(
        "INSERT INTO jobs (id, owner, leaderboard, problem_dir, file_name, source_sha256, options, trace_parent, state, ended_at,
                           cached_from, measured_at)
         SELECT $1, $2, $3, problem_dir, $4, source_sha256, options, $5, 'succeeded', now(), coalesce(cached_from, id), $6
         FROM jobs WHERE id = $7",
        job.id.0,
        job.owner.as_bytes(),
        job.leaderboard,
        job.file_name,
        job.trace_parent,
        from.measured_at,
        from.job.0,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!("INSERT INTO submissions (job_id, source) VALUES ($1, $2)", job.id.0, job.source)
        .execute(&mut *connection)
        .await?;
    copy_runs(connection, job.id.0, from.job.0).await?;
    Ok(true)
}

/// Every column of a shape's result but for its times: nobody ran it now, and no statistics may count it.
async fn copy_runs(connection: &mut PgConnection, to: Uuid, from: Uuid) -> Result<()> {
    sqlx::query!(
        "INSERT INTO runs (job_id, benchmark_index, benchmark, state, exit_code, error, error_kind, ended_at, simulated,
                           artifact_name, artifact_path, artifact_bytes, artifact_sha256, launches, coverage, clock_control,
                           summary, setup, problem_version)
         SELECT $1, benchmark_index, benchmark, state, exit_code, error, error_kind, now(), simulated,
                artifact_name, artifact_path, artifact_bytes, artifact_sha256, launches, coverage, clock_control,
                summary, setup, problem_version
         FROM runs WHERE job_id = $2",
        to,
        from,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "INSERT INTO digests (job_id, benchmark_index, schema, digest)
         SELECT $1, benchmark_index, schema, digest FROM digests WHERE job_id = $2",
        to,
        from,
    )
    .execute(connection)
    .await?;
    Ok(())
}
