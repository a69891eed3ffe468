//! What retention asks and writes. An archive expires first, so that nobody is handed a file that is about to go, and is
//! known to be deleted only when it is.

use std::fmt;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgAdvisoryLockKey};
use sqlx::{Either, Postgres};

use super::Queue;
use super::jobs::interval;
use crate::Result;
use crate::ids::JobId;

/// Key of the advisory lock that lets one worker at a time prune.
const LOCK: i64 = 0x6e63_755f_7072_756e;
/// Rows that one statement deletes, so that none holds its locks for long.
const BATCH: i64 = 500;

/// The right to prune, until it is released.
pub struct PruneTurn(PgAdvisoryLockGuard<PoolConnection<Postgres>>);

impl fmt::Debug for PruneTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PruneTurn")
    }
}

impl PruneTurn {
    /// Lets another worker prune.
    pub async fn release(self) -> Result<()> {
        self.0.release_now().await?;
        Ok(())
    }
}

/// An archive that has expired and is still stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredArtifact {
    /// The job.
    pub job: JobId,
    /// The shape.
    pub benchmark_index: u32,
    /// Path in the artifact store.
    pub path: String,
}

impl Queue {
    /// The turn to prune; `None` while another worker has it.
    pub async fn prune_turn(&self) -> Result<Option<PruneTurn>> {
        let lock = PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(LOCK));
        Ok(match lock.try_acquire(self.pool.acquire().await?).await? {
            Either::Left(guard) => Some(PruneTurn(guard)),
            Either::Right(_) => None,
        })
    }

    /// Expires the archives of jobs that ended longer than `age` ago. Says how many.
    pub async fn expire_artifacts_older_than(&self, age: Duration) -> Result<u64> {
        let expired = sqlx::query!(
            "UPDATE runs SET artifact_expired_at = now() FROM jobs
             WHERE jobs.id = runs.job_id AND jobs.ended_at < now() - $1::interval
               AND runs.artifact_name IS NOT NULL AND runs.artifact_expired_at IS NULL",
            interval(age)
        );
        Ok(expired.execute(&self.pool).await?.rows_affected())
    }

    /// Expires the oldest archives until the others take no more than `max_bytes`; but none of a job that ended less than
    /// `promise` ago. Says how many.
    pub async fn expire_artifacts_beyond(&self, max_bytes: u64, promise: Duration) -> Result<u64> {
        let expired = sqlx::query!(
            "UPDATE runs SET artifact_expired_at = now()
             FROM (SELECT job_id, benchmark_index, ended_at,
                          sum(bytes) OVER (ORDER BY ended_at DESC NULLS FIRST, job_id, benchmark_index) AS up_to
                   -- An archive that several jobs refer to is stored once, for the newest of them.
                   FROM (SELECT job_id, benchmark_index, jobs.ended_at,
                                CASE WHEN row_number() OVER (PARTITION BY artifact_path
                                                             ORDER BY jobs.ended_at DESC NULLS FIRST, job_id) = 1
                                     THEN artifact_bytes ELSE 0 END AS bytes
                         FROM runs JOIN jobs ON jobs.id = runs.job_id
                         WHERE artifact_name IS NOT NULL AND artifact_expired_at IS NULL) counted) held
             WHERE runs.job_id = held.job_id AND runs.benchmark_index = held.benchmark_index
               AND held.up_to > $1::bigint AND held.ended_at < now() - $2::interval",
            i64::try_from(max_bytes).unwrap_or(i64::MAX),
            interval(promise)
        );
        Ok(expired.execute(&self.pool).await?.rows_affected())
    }

    /// Lets go of the archives that have expired here and not for another job, which has them deleted in its time.
    pub async fn release_shared_artifacts(&self) -> Result<u64> {
        let released = sqlx::query!(
            "UPDATE runs SET artifact_deleted_at = now()
             WHERE artifact_expired_at IS NOT NULL AND artifact_deleted_at IS NULL
               AND EXISTS (SELECT FROM runs other
                           WHERE other.artifact_path = runs.artifact_path AND other.artifact_deleted_at IS NULL
                             AND other.artifact_expired_at IS NULL)"
        );
        Ok(released.execute(&self.pool).await?.rows_affected())
    }

    /// Some archives that have expired and are still stored, in the order of their jobs and shapes, after the one that is given.
    pub async fn expired_artifacts(&self, after: Option<(JobId, u32)>) -> Result<Vec<ExpiredArtifact>> {
        let (job, index) = after.map_or((None, -1), |(job, index)| (Some(job.0), index.cast_signed()));
        let rows = sqlx::query!(
            r#"SELECT job_id, benchmark_index, artifact_path AS "path!" FROM runs
               WHERE artifact_expired_at IS NOT NULL AND artifact_deleted_at IS NULL
                 AND ($1::uuid IS NULL OR (job_id, benchmark_index) > ($1, $2))
               ORDER BY job_id, benchmark_index LIMIT $3"#,
            job,
            index,
            BATCH
        )
        .fetch_all(&self.pool)
        .await?;
        let artifact =
            |job, index: i32, path| ExpiredArtifact { job: JobId(job), benchmark_index: index.cast_unsigned(), path };
        Ok(rows.into_iter().map(|row| artifact(row.job_id, row.benchmark_index, row.path)).collect())
    }

    /// An expired archive is not stored any more.
    pub async fn artifact_deleted(&self, artifact: &ExpiredArtifact) -> Result<()> {
        sqlx::query!(
            "UPDATE runs SET artifact_deleted_at = now()
             WHERE job_id = $1 AND benchmark_index = $2 AND artifact_expired_at IS NOT NULL",
            artifact.job.0,
            artifact.benchmark_index.cast_signed()
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Which of these stored objects no run of an ended job refers to: an attempt that lost its lease left them. Objects of
    /// jobs that this database does not know are not its own.
    pub async fn unreferenced(&self, objects: &[(JobId, String)]) -> Result<Vec<String>> {
        let (jobs, paths): (Vec<_>, Vec<_>) = objects.iter().map(|(job, path)| (job.0, path.clone())).unzip();
        let paths = sqlx::query_scalar!(
            r#"SELECT object.path AS "path!" FROM unnest($1::uuid[], $2::text[]) AS object (job_id, path)
               JOIN jobs ON jobs.id = object.job_id AND jobs.ended_at IS NOT NULL
               WHERE NOT EXISTS (SELECT FROM runs WHERE runs.artifact_path = object.path AND runs.artifact_deleted_at IS NULL)"#,
            &jobs,
            &paths
        );
        Ok(paths.fetch_all(&self.pool).await?)
    }

    /// Deletes some jobs that ended longer than `age` ago and of which nothing is stored. Says how many.
    pub async fn delete_jobs_older_than(&self, age: Duration) -> Result<u64> {
        let deleted = sqlx::query!(
            "DELETE FROM jobs WHERE id IN (
                 SELECT id FROM jobs WHERE ended_at < now() - $1::interval
                   AND NOT EXISTS (SELECT FROM runs WHERE runs.job_id = jobs.id
                                   AND artifact_name IS NOT NULL AND artifact_deleted_at IS NULL)
                 ORDER BY ended_at LIMIT $2)",
            interval(age),
            BATCH
        );
        Ok(deleted.execute(&self.pool).await?.rows_affected())
    }

    /// Deletes what operators did longer than `age` ago from their log. Says how much.
    pub async fn delete_admin_log_older_than(&self, age: Duration) -> Result<u64> {
        let deleted = sqlx::query!("DELETE FROM admin_log WHERE at < now() - $1::interval", interval(age));
        Ok(deleted.execute(&self.pool).await?.rows_affected())
    }

    /// Deletes the rows of workers that were last seen longer than `age` ago. Says how many.
    pub async fn delete_workers_older_than(&self, age: Duration) -> Result<u64> {
        let deleted = sqlx::query!("DELETE FROM workers WHERE last_seen_at < now() - $1::interval", interval(age));
        Ok(deleted.execute(&self.pool).await?.rows_affected())
    }
}
