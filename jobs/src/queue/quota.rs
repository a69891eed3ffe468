//! What one owner, and all together, may have in the queue.
//!
//! Counting and inserting are two statements, and under Postgres's usual isolation two submissions at once would each count
//! without the other. So they take turns, all API processes together, by an advisory lock of the transaction: the counts are
//! exact, and nothing stays locked when a process dies. There is one lock for everybody, not one for each owner, since the
//! length of the queue is everybody's.

use std::time::Duration;

use sqlx::PgConnection;

use super::{Queue, StoredResult};
use crate::Result;
use crate::ids::Owner;

/// Key of the advisory lock by which submissions take turns.
pub const SUBMISSION_LOCK: i64 = 0x6e63_755f_7375_626d;

/// How much may be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Jobs of one owner that have not ended.
    pub max_unfinished: u32,
    /// Jobs that one owner submits within an hour.
    pub max_jobs_per_hour: u32,
    /// Bytes of source that one owner submits within an hour.
    pub max_bytes_per_hour: u64,
    /// Jobs that wait, of all owners.
    pub max_queue: u32,
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is in the queue.
    Queued {
        /// Its position, from 1.
        position: i64,
        /// A result that would have answered for it.
        stored: Option<StoredResult>,
    },
    /// It has ended by taking a stored result.
    Cached,
    /// Nothing was stored.
    Refused(OverQuota),
}

/// Which quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverQuota {
    /// As many jobs wait as may.
    QueueFull,
    /// The owner has as many jobs that have not ended as one may have.
    Unfinished,
    /// The owner has submitted as many jobs within the last hour as one may.
    JobsPerHour {
        /// When the next one is taken.
        wait: Duration,
    },
    /// The owner's submissions of the last hour and this one are too large together.
    BytesPerHour {
        /// When this one is taken.
        wait: Duration,
    },
}

impl Queue {
    /// Whether a submission of that size would be refused now. It does not wait for its turn: who is told "no" here need not
    /// send a source, and who is told "yes" is counted again by [`Queue::submit_within`].
    pub async fn over_quota(&self, owner: &Owner, source_bytes: usize, quotas: &Quotas) -> Result<Option<OverQuota>> {
        over_quota(&mut *self.pool.acquire().await?, owner, source_bytes, quotas).await
    }
}

/// Waits for this transaction's turn to count and insert, which lasts until it ends.
pub(super) async fn take_turn(connection: &mut PgConnection) -> Result<()> {
    // A process that is frozen in its turn would stop every submission, and none waits for longer than its client does.
    sqlx::query!(
        r#"SELECT set_config('idle_in_transaction_session_timeout', '5s', true) AS idle, set_config('lock_timeout', '8s', true) AS wait"#
    )
    .fetch_one(&mut *connection)
    .await?;
    sqlx::query!("SELECT pg_advisory_xact_lock($1)", SUBMISSION_LOCK).execute(connection).await?;
    Ok(())
}

/// Which quota one more submission would exceed.
pub(super) async fn over_quota(
    connection: &mut PgConnection,
    owner: &Owner,
    source_bytes: usize,
    quotas: &Quotas,
) -> Result<Option<OverQuota>> {
    // The two waits are null where there is none: until the job leaves the hour by whose leaving one more fits.
    let counts = sqlx::query!(
        r#"SELECT
               (SELECT count(*) FROM jobs WHERE state = 'queued') AS "queued!",
               (SELECT count(*) FROM jobs WHERE owner = $1 AND state IN ('queued', 'running')) AS "unfinished!",
               (SELECT extract(epoch FROM created_at + interval '1 hour' - now())::double precision FROM jobs
                WHERE owner = $1 AND created_at > now() - interval '1 hour'
                ORDER BY created_at DESC OFFSET $2::bigint - 1 LIMIT 1) AS jobs_wait_secs,
               (SELECT extract(epoch FROM max(created_at) + interval '1 hour' - now())::double precision
                FROM (SELECT created_at, sum(octet_length(source)) OVER (ORDER BY created_at DESC, seq DESC) AS bytes
                      FROM jobs JOIN submissions ON job_id = id
                      WHERE owner = $1 AND created_at > now() - interval '1 hour') lately
                WHERE bytes + $3::bigint > $4::bigint) AS bytes_wait_secs"#,
        owner.as_bytes(),
        i64::from(quotas.max_jobs_per_hour),
        i64::try_from(source_bytes).unwrap_or(i64::MAX),
        i64::try_from(quotas.max_bytes_per_hour).unwrap_or(i64::MAX),
    )
    .fetch_one(connection)
    .await?;
    Ok(if counts.queued >= i64::from(quotas.max_queue) {
        Some(OverQuota::QueueFull)
    } else if counts.unfinished >= i64::from(quotas.max_unfinished) {
        Some(OverQuota::Unfinished)
    } else if let Some(secs) = counts.jobs_wait_secs {
        Some(OverQuota::JobsPerHour { wait: whole_secs(secs) })
    } else {
        counts.bytes_wait_secs.map(|secs| OverQuota::BytesPerHour { wait: whole_secs(secs) })
    })
}

/// Rounded up, and at least one: who comes back after it is to be let in.
fn whole_secs(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs.ceil().max(1.0)).unwrap_or(Duration::from_hours(1))
}

#[cfg(test)]
mod tests {
    use sqlx::PgPool;

    use super::*;

    #[tokio::test]
    async fn a_process_that_freezes_in_its_turn_loses_it() {
        let url = std::env::var("NCU_SERVICE_TEST_DATABASE_URL")
            .expect("NCU_SERVICE_TEST_DATABASE_URL is not set; run the tests with scripts/test");
        let pool = PgPool::connect(&url).await.unwrap();
        let (mut frozen, mut next) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
        take_turn(&mut frozen).await.unwrap();
        // It says nothing more; the next one gives up after eight seconds.
        take_turn(&mut next).await.unwrap();
        assert!(sqlx::query("SELECT 1").execute(&mut *frozen).await.is_err(), "it still has its connection");
    }
}
