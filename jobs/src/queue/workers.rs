//! The `workers` table: who is alive, and what each does.

use std::time::Duration;

use uuid::Uuid;

use super::Queue;
use crate::Result;
use crate::ids::JobId;
use crate::telemetry::QueueState;

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Waits for work.
    Idle,
    /// Runs a job.
    Busy,
    /// Ends what it has begun and takes nothing new.
    Draining,
    /// Has ended.
    Stopped,
    /// Takes no job, since something on its host is missing.
    Unready,
    /// Takes no job, since its GPU is in quarantine.
    Quarantined,
}

impl WorkerState {
    /// As the database spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Unready => "unready",
            Self::Quarantined => "quarantined",
        }
    }
}

/// Three heartbeats: a worker that is silent for longer is dead, or has no database.
pub(super) const ALIVE_SECS: f64 = 30.0;

/// How many workers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Those that were heard of lately.
    pub alive: i64,
    /// Those of them that take jobs, or will when their present one ends.
    pub ready: i64,
    /// Those of them that run a job.
    pub busy: i64,
}

impl Queue {
    /// Counts the workers.
    pub async fn worker_counts(&self) -> Result<WorkerCounts> {
        Ok(sqlx::query_as!(
            WorkerCounts,
            r#"SELECT count(*) AS "alive!", count(*) FILTER (WHERE state IN ('idle', 'busy')) AS "ready!",
                      count(job_id) AS "busy!"
               FROM workers WHERE state <> 'stopped' AND last_seen_at > now() - make_interval(secs => $1)"#,
            ALIVE_SECS
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// What waits, what runs, and who works.
    pub async fn state(&self) -> Result<QueueState> {
        let jobs = sqlx::query!(
            r#"SELECT count(*) FILTER (WHERE state = 'queued') AS "queued!",
                      count(*) FILTER (WHERE state = 'running') AS "running!",
                      coalesce(extract(epoch FROM now() - min(created_at) FILTER (WHERE state = 'queued')), 0)::float8
                          AS "oldest!"
               FROM jobs WHERE state IN ('queued', 'running')"#
        )
        .fetch_one(&self.pool)
        .await?;
        // Every state, so that nobody takes one that is gone for one that is not told.
        let workers = sqlx::query!(
            r#"SELECT every.state AS "state!", count(workers.name) AS "count!"
               FROM unnest(ARRAY['idle', 'busy', 'draining', 'unready', 'quarantined']) AS every (state)
               LEFT JOIN workers ON workers.state = every.state
                                AND workers.last_seen_at > now() - make_interval(secs => $1)
               GROUP BY every.state"#,
            ALIVE_SECS
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(QueueState {
            queued: jobs.queued,
            running: jobs.running,
            oldest: Duration::try_from_secs_f64(jobs.oldest).unwrap_or_default(),
            workers: workers.into_iter().map(|row| (row.state, row.count)).collect(),
        })
    }

    /// A worker's heartbeat; the first one registers it. `note` says why it takes no job.
    pub async fn heartbeat(
        &self,
        name: &str,
        host: &str,
        state: WorkerState,
        job: Option<JobId>,
        note: Option<&str>,
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO workers (name, host, state, job_id, version, note) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (name) DO UPDATE
             SET state = excluded.state, job_id = excluded.job_id, note = excluded.note, last_seen_at = now()",
            name,
            host,
            state.as_str(),
            job.map(|job| job.0),
            env!("CARGO_PKG_VERSION"),
            note,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Notes which GPUs a worker has, for the page. One that has not been heard of yet is registered by this.
    pub async fn note_gpus(&self, name: &str, host: &str, gpus: &str) -> Result<()> {
        sqlx::query!(
            "INSERT INTO workers (name, host, state, version, gpus) VALUES ($1, $2, 'unready', $3, $4)
             ON CONFLICT (name) DO UPDATE SET gpus = excluded.gpus",
            name,
            host,
            env!("CARGO_PKG_VERSION"),
            gpus,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Identity of the service that this database belongs to.
    pub async fn instance(&self) -> Result<Uuid> {
        Ok(sqlx::query_scalar!("SELECT id FROM instance").fetch_one(&self.pool).await?)
    }
}
