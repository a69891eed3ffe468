//! What operators ask: jobs of every owner, with the texts that no user reads.

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::Queue;
use super::admin::no_such_job;
use crate::Result;
use crate::ids::JobId;

/// The service at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminStatus {
    /// Since when no job is claimed; `None` while jobs are.
    pub paused_at: Option<DateTime<Utc>>,
    /// By whom.
    pub paused_by: Option<String>,
    /// Why.
    pub pause_reason: Option<String>,
    /// Jobs that wait.
    pub queued: i64,
    /// Jobs that run.
    pub running: i64,
    /// The workers that are alive.
    pub workers: Vec<AdminWorker>,
}

/// A worker that is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminWorker {
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// What it does, in a word of the table.
    pub state: String,
    /// Why it takes no job.
    pub note: Option<String>,
    /// Its job.
    #[serde(with = "uuid::serde::simple::option")]
    pub job_id: Option<Uuid>,
    /// When it was asked to end after its shape.
    pub drain_requested_at: Option<DateTime<Utc>>,
}

/// A job, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminJob {
    /// Its id, as clients know it.
    #[serde(with = "uuid::serde::simple")]
    pub id: Uuid,
    /// Its state.
    pub state: String,
    /// Place in the queue, from 1; `None` unless queued.
    pub queue_position: Option<i64>,
    /// What it waits for, or who holds it, or whose fault its end was.
    pub note: Option<String>,
    /// Start of its owner's digest.
    pub owner: String,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// A higher one goes first.
    pub priority: i32,
    /// How often it was claimed.
    pub attempts: i32,
    /// How many of these attempts ended by a fault of ours.
    pub faults: i32,
    /// When it was queued.
    pub submitted_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
}

/// A job, with everything that an operator asks of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminJobDetail {
    /// Its line.
    #[serde(flatten)]
    pub job: AdminJob,
    /// The sentence for its user.
    pub error: Option<String>,
    /// The last fault of ours, for operators.
    pub last_fault: Option<String>,
    /// Whether somebody asked for it to be cancelled.
    pub cancel_requested: bool,
    /// Whether its source is stored, so that it can be queued again.
    pub has_source: bool,
    /// Its shapes.
    pub shapes: Vec<AdminShape>,
    /// Who held it, in order.
    pub history: Vec<AdminAttempt>,
}

/// A shape of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminShape {
    /// Index in task.yml.
    pub benchmark_index: i32,
    /// Its state.
    pub state: String,
    /// Whose fault, and which kind.
    pub error_kind: Option<String>,
    /// The sentence for the user.
    pub error: Option<String>,
    /// Its archive.
    pub artifact_name: Option<String>,
    /// Size of the archive in bytes.
    pub artifact_bytes: Option<i64>,
    /// Since when the archive is not handed out any more.
    pub artifact_expired_at: Option<DateTime<Utc>>,
}

/// A time in which a worker held a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminAttempt {
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// How often it had been taken over by then.
    pub adoption: i32,
    /// The worker.
    pub worker: Option<String>,
    /// When the worker took it.
    pub started_at: DateTime<Utc>,
    /// When it was the worker's no more.
    pub ended_at: Option<DateTime<Utc>>,
    /// What became of it.
    pub outcome: String,
    /// The fault, for operators.
    pub fault: Option<String>,
}

impl Queue {
    /// The service at a glance.
    pub async fn admin_status(&self) -> Result<AdminStatus> {
        let workers = sqlx::query_as!(
            AdminWorker,
            r#"SELECT worker AS "name!", host AS "host!", state AS "state!", note, job_id, drain_requested_at
               FROM worker_status WHERE is_alive ORDER BY worker"#
        )
        .fetch_all(&self.pool)
        .await?;
        let row = sqlx::query!(
            r#"SELECT paused_at, paused_by, pause_reason,
                      (SELECT count(*) FROM jobs WHERE state = 'queued') AS "queued!",
                      (SELECT count(*) FROM jobs WHERE state = 'running') AS "running!"
               FROM queue_state"#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(AdminStatus {
            paused_at: row.paused_at,
            paused_by: row.paused_by,
            pause_reason: row.pause_reason,
            queued: row.queued,
            running: row.running,
            workers,
        })
    }

    /// The jobs that run and those that wait, in their order.
    pub async fn open_jobs(&self, limit: u32) -> Result<Vec<AdminJob>> {
        Ok(sqlx::query_as!(
            AdminJob,
            r#"SELECT job.id, job.state, waiting.queue_position, coalesce(waiting.waits_for, running.hold) AS note,
                      left(encode(job.owner, 'hex'), 12) AS "owner!", job.leaderboard, job.priority, job.attempt AS attempts,
                      job.faults, job.created_at AS submitted_at, job.ended_at
               FROM jobs job
               LEFT JOIN queue_overview waiting ON waiting.job_id = job.id
               LEFT JOIN running_now running ON running.job_id = job.id
               WHERE job.state = 'queued' OR job.state = 'running'
               ORDER BY job.state = 'queued', waiting.queue_position, job.started_at LIMIT $1"#,
            i64::from(limit)
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// The jobs that ended last, the newest first.
    pub async fn ended_jobs(&self, limit: u32) -> Result<Vec<AdminJob>> {
        Ok(sqlx::query_as!(
            AdminJob,
            r#"SELECT id, state, NULL::bigint AS queue_position, error_kind AS note,
                      left(encode(owner, 'hex'), 12) AS "owner!", leaderboard, priority, attempt AS attempts,
                      faults, created_at AS submitted_at, ended_at
               FROM jobs WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT $1"#,
            i64::from(limit)
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// A job of whichever owner.
    pub async fn admin_job(&self, id: JobId) -> Result<AdminJobDetail> {
        // One snapshot for all tables.
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let job = sqlx::query!(
            r#"SELECT job.id, job.state, waiting.queue_position, coalesce(waiting.waits_for, running.hold, job.error_kind) AS note,
                      left(encode(job.owner, 'hex'), 12) AS "owner!", job.leaderboard, job.priority, job.attempt AS attempts,
                      job.faults, job.created_at AS submitted_at, job.ended_at, job.error, job.last_fault, job.cancel_requested,
                      EXISTS (SELECT FROM submissions WHERE submissions.job_id = job.id) AS "has_source!"
               FROM jobs job
               LEFT JOIN queue_overview waiting ON waiting.job_id = job.id
               LEFT JOIN running_now running ON running.job_id = job.id
               WHERE job.id = $1"#,
            id.0
        )
        .fetch_optional(&mut *tx)
        .await?
        .ok_or_else(no_such_job)?;
        let shapes = sqlx::query_as!(
            AdminShape,
            "SELECT benchmark_index, state, error_kind, error, artifact_name, artifact_bytes, artifact_expired_at
             FROM runs WHERE job_id = $1 ORDER BY benchmark_index",
            id.0
        )
        .fetch_all(&mut *tx)
        .await?;
        let history = sqlx::query_as!(
            AdminAttempt,
            "SELECT attempt, adoption, worker, started_at, ended_at, outcome, fault
             FROM attempts WHERE job_id = $1 ORDER BY attempt, adoption",
            id.0
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let line = AdminJob {
            id: job.id,
            state: job.state,
            queue_position: job.queue_position,
            note: job.note,
            owner: job.owner,
            leaderboard: job.leaderboard,
            priority: job.priority,
            attempts: job.attempts,
            faults: job.faults,
            submitted_at: job.submitted_at,
            ended_at: job.ended_at,
        };
        Ok(AdminJobDetail {
            job: line,
            error: job.error,
            last_fault: job.last_fault,
            cancel_requested: job.cancel_requested,
            has_source: job.has_source,
            shapes,
            history,
        })
    }
}
