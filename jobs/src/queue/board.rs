//! What the page at `/` shows: to everybody the queue without a name in it, to an owner the own jobs.

use chrono::{DateTime, Utc};
use sqlx::types::Json;

use super::workers::ALIVE_SECS;
use super::{Queue, State};
use crate::Result;
use crate::ids::{JobId, Owner};
use crate::problems::Shape;

/// Lines of each list that everybody sees; the number of those that wait is told all the same.
const MAX_LINES: i64 = 50;
/// Jobs that ended last.
const MAX_ENDED: i64 = 20;

/// The queue as everybody may see it: no id, no owner, no file, no host. It is equal to another exactly where nothing has changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    /// Whether no job is claimed now.
    pub is_paused: bool,
    /// How many jobs wait in all.
    pub queued_count: i64,
    /// The first of those that wait, in their order.
    pub queued: Vec<QueuedLine>,
    /// Those that run, the oldest first.
    pub running: Vec<RunningLine>,
    /// Those that ended last, the newest first.
    pub ended: Vec<EndedLine>,
    /// The workers that are alive.
    pub workers: Vec<WorkerLine>,
}

/// A job that waits. Its place is its place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedLine {
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// Shapes to profile.
    pub shapes: i64,
    /// When it was queued.
    pub submitted_at: DateTime<Utc>,
    /// Whether it begins anew, after a fault of the service or a worker's end.
    pub is_again: bool,
}

/// A job that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningLine {
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// Shapes in all.
    pub shapes: i64,
    /// Those of them that have ended.
    pub shapes_ended: i64,
    /// The shape in progress; `None` between two of them.
    pub shape: Option<Shape>,
    /// Whether it is being cancelled.
    pub is_cancelled: bool,
    /// Whether a worker holds it; else another takes it over.
    pub is_held: bool,
    /// Product names of the holder's GPUs.
    pub gpus: Option<String>,
    /// When it was queued.
    pub submitted_at: DateTime<Utc>,
    /// When it was first claimed.
    pub started_at: Option<DateTime<Utc>>,
}

/// A job that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLine {
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// How it ended.
    pub state: State,
    /// Whose fault, and which kind.
    pub error_kind: Option<String>,
    /// Shapes in all.
    pub shapes: i64,
    /// When it was queued.
    pub submitted_at: DateTime<Utc>,
    /// When it was first claimed.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
}

/// A worker that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLine {
    /// What it does, in a word of the table.
    pub state: String,
    /// Product names of its GPUs.
    pub gpus: Option<String>,
}

/// A job as its owner sees it in the list.
#[derive(Debug, Clone)]
pub struct OwnJob {
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// Place in the queue, from 1; `None` unless queued.
    pub queue_position: Option<i64>,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// The submitted file's name.
    pub file_name: String,
    /// Whether it is being cancelled.
    pub is_cancelled: bool,
    /// The sentence for the user.
    pub error: Option<String>,
    /// When it was queued.
    pub submitted_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Its shapes.
    pub shapes: Vec<OwnShape>,
}

/// A shape of an own job.
#[derive(Debug, Clone)]
pub struct OwnShape {
    /// Its parameters.
    pub shape: Shape,
    /// Its state.
    pub state: State,
    /// Name and size in bytes of an archive that can be downloaded.
    pub archive: Option<(String, i64)>,
}

impl Queue {
    /// What everybody sees. Bounded work, however many jobs there are.
    pub async fn board(&self) -> Result<Board> {
        // One snapshot for all lists: a job must not be in two of them, or in none.
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let state = sqlx::query!(
            r#"SELECT EXISTS (SELECT FROM queue_state WHERE paused_at IS NOT NULL) AS "is_paused!",
                      (SELECT count(*) FROM jobs WHERE state = 'queued') AS "queued!""#
        )
        .fetch_one(&mut *tx)
        .await?;
        let queued = sqlx::query_as!(
            QueuedLine,
            r#"SELECT leaderboard, created_at AS submitted_at, attempt > 0 AS "is_again!",
                      (SELECT count(*) FROM runs WHERE runs.job_id = jobs.id) AS "shapes!"
               FROM jobs WHERE state = 'queued' ORDER BY priority DESC, seq LIMIT $1"#,
            MAX_LINES
        )
        .fetch_all(&mut *tx)
        .await?;
        let running = sqlx::query!(
            r#"SELECT job.leaderboard, job.created_at, job.started_at, job.cancel_requested,
                      job.worker IS NOT NULL AND job.lease_until > now() AS "is_held!", worker.gpus AS "gpus?",
                      (SELECT count(*) FROM runs WHERE runs.job_id = job.id) AS "shapes!",
                      (SELECT count(*) FROM runs WHERE runs.job_id = job.id AND runs.ended_at IS NOT NULL) AS "shapes_ended!",
                      (SELECT runs.benchmark FROM runs WHERE runs.job_id = job.id AND runs.state = 'running'
                       ORDER BY runs.benchmark_index LIMIT 1) AS "shape: Json<Shape>"
               FROM jobs job LEFT JOIN workers worker ON worker.name = job.worker
               WHERE job.state = 'running' ORDER BY job.started_at, job.seq LIMIT $1"#,
            MAX_LINES
        )
        .fetch_all(&mut *tx)
        .await?;
        let ended = sqlx::query!(
            r#"SELECT leaderboard, state, error_kind, created_at, started_at, ended_at AS "ended_at!",
                      (SELECT count(*) FROM runs WHERE runs.job_id = jobs.id) AS "shapes!"
               FROM jobs WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT $1"#,
            MAX_ENDED
        )
        .fetch_all(&mut *tx)
        .await?;
        let workers = sqlx::query_as!(
            WorkerLine,
            // Whether one is busy, the jobs know sooner than its heartbeat says it.
            r#"SELECT CASE WHEN EXISTS (SELECT FROM jobs WHERE jobs.state = 'running' AND jobs.worker = workers.name) THEN 'busy'
                           WHEN state = 'busy' THEN 'idle' ELSE state END AS "state!", gpus
               FROM workers WHERE state <> 'stopped' AND last_seen_at > now() - make_interval(secs => $1)
               ORDER BY started_at, name LIMIT $2"#,
            ALIVE_SECS,
            MAX_LINES
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let mut lines = Vec::with_capacity(ended.len());
        for job in ended {
            lines.push(EndedLine {
                leaderboard: job.leaderboard,
                state: State::decode(job.state)?,
                error_kind: job.error_kind,
                shapes: job.shapes,
                submitted_at: job.created_at,
                started_at: job.started_at,
                ended_at: job.ended_at,
            });
        }
        Ok(Board {
            is_paused: state.is_paused,
            queued_count: state.queued,
            queued,
            running: running
                .into_iter()
                .map(|job| RunningLine {
                    leaderboard: job.leaderboard,
                    shapes: job.shapes,
                    shapes_ended: job.shapes_ended,
                    shape: job.shape.map(|shape| shape.0),
                    is_cancelled: job.cancel_requested,
                    is_held: job.is_held,
                    gpus: job.gpus,
                    submitted_at: job.created_at,
                    started_at: job.started_at,
                })
                .collect(),
            ended: lines,
            workers,
        })
    }

    /// The newest jobs of an owner.
    pub async fn own_jobs(&self, owner: &Owner, limit: u32) -> Result<Vec<OwnJob>> {
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let rows = sqlx::query!(
            "SELECT id, state, leaderboard, file_name, cancel_requested, error, created_at, ended_at,
                    CASE WHEN state = 'queued' THEN (
                        SELECT count(*) FROM jobs ahead WHERE ahead.state = 'queued'
                        AND (ahead.priority > job.priority OR (ahead.priority = job.priority AND ahead.seq <= job.seq))
                    ) END AS queue_position
             FROM jobs job WHERE owner = $1 ORDER BY seq DESC LIMIT $2",
            owner.as_bytes(),
            i64::from(limit)
        )
        .fetch_all(&mut *tx)
        .await?;
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        let shapes = sqlx::query!(
            r#"SELECT job_id, benchmark AS "benchmark: Json<Shape>", state, artifact_name, artifact_bytes,
                      artifact_expired_at IS NULL AS "is_there!"
               FROM runs WHERE job_id = ANY($1) ORDER BY job_id, benchmark_index"#,
            &ids
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in rows {
            jobs.push(OwnJob {
                id: JobId(row.id),
                state: State::decode(row.state)?,
                queue_position: row.queue_position,
                leaderboard: row.leaderboard,
                file_name: row.file_name,
                is_cancelled: row.cancel_requested,
                error: row.error,
                submitted_at: row.created_at,
                ended_at: row.ended_at,
                shapes: Vec::new(),
            });
        }
        for row in shapes {
            if let Some(job) = jobs.iter_mut().find(|job| job.id.0 == row.job_id) {
                job.shapes.push(OwnShape {
                    shape: row.benchmark.0,
                    state: State::decode(row.state)?,
                    archive: row.artifact_name.zip(row.artifact_bytes).filter(|_| row.is_there),
                });
            }
        }
        Ok(jobs)
    }
}
