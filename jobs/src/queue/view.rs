//! What a poll and a download ask.

use ncu_runner::protocol::KernelTime;
use sqlx::types::Json;

use super::model::{Artifact, AttemptView, JobView, RunView, StoredArtifact};
use super::{Queue, State};
use crate::Result;
use crate::capture::options::RequestOptions;
use crate::ids::{JobId, Owner};
use crate::problems::Shape;

impl Queue {
    /// A job, if it exists and belongs to `owner`; `None` as owner sees every job.
    pub async fn view(&self, id: JobId, owner: Option<Owner>) -> Result<Option<JobView>> {
        // One snapshot for both tables: a poll must not see a finished job with a running shape.
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let Some(job) = sqlx::query!(
            r#"SELECT id, state, error, error_kind, leaderboard, problem_dir, options AS "options: Json<RequestOptions>",
                      attempt, created_at, started_at, ended_at,
                      CASE WHEN state = 'queued' THEN (
                          SELECT count(*) FROM jobs ahead WHERE ahead.state = 'queued'
                          AND (ahead.priority > job.priority OR (ahead.priority = job.priority AND ahead.seq <= job.seq))
                      ) END AS queue_position,
                      EXISTS (SELECT FROM queue_state WHERE paused_at IS NOT NULL) AS "is_queue_paused!", cancel_requested, cached_from, measured_at,
                      coalesce((SELECT max(event.id) FROM job_events event
                                WHERE event.job_id = job.id AND event.kind <> 'progress'), 0) AS "version!"
               FROM jobs job WHERE id = $1 AND ($2::bytea IS NULL OR owner = $2)"#,
            id.0,
            owner.as_ref().map(Owner::as_bytes),
        )
        .fetch_optional(&mut *tx)
        .await?
        else {
            return Ok(None);
        };
        let rows = sqlx::query!(
            r#"SELECT benchmark_index, benchmark AS "benchmark: Json<Shape>", state, exit_code, error, error_kind,
                      output_tail, simulated, launches AS "launches: Json<Vec<KernelTime>>", coverage, clock_control,
                      summary, started_at, ended_at, artifact_name, artifact_path, artifact_bytes, artifact_sha256, artifact_expired_at
               FROM runs WHERE job_id = $1 ORDER BY benchmark_index"#,
            id.0
        )
        .fetch_all(&mut *tx)
        .await?;
        let attempts = sqlx::query_as!(
            AttemptView,
            "SELECT attempt, adoption, started_at, ended_at, outcome FROM attempts WHERE job_id = $1 ORDER BY attempt, adoption",
            id.0
        )
        .fetch_all(&mut *tx)
        .await?;
        let progress = sqlx::query_scalar!(
            r#"SELECT data AS "data: Json<serde_json::Map<String, serde_json::Value>>" FROM job_events
               WHERE job_id = $1 AND kind = 'progress' AND id > $2 ORDER BY id DESC LIMIT 1"#,
            id.0,
            // What was told of a shape that is over by now is no progress any more.
            job.version,
        );
        let progress =
            if job.state == State::Running.as_str() { progress.fetch_optional(&mut *tx).await? } else { None };
        tx.commit().await?;
        let mut runs = Vec::with_capacity(rows.len());
        for run in rows {
            let artifact = match (run.artifact_name, run.artifact_path, run.artifact_bytes, run.artifact_sha256) {
                (Some(name), Some(path), Some(bytes), Some(sha256)) => {
                    let stored = StoredArtifact::decode(path, bytes, sha256)?;
                    Some(Artifact { name, stored, expired_at: run.artifact_expired_at })
                }
                _ => None,
            };
            runs.push(RunView {
                benchmark_index: run.benchmark_index.cast_unsigned(),
                benchmark: run.benchmark.0,
                state: State::decode(run.state)?,
                exit_code: run.exit_code,
                error: run.error,
                error_kind: run.error_kind,
                output_tail: run.output_tail,
                simulated: run.simulated,
                clock_control: run.clock_control,
                launches: run.launches.map(|launches| launches.0).unwrap_or_default(),
                coverage: run.coverage,
                summary: run.summary,
                started_at: run.started_at,
                ended_at: run.ended_at,
                artifact,
            });
        }
        Ok(Some(JobView {
            id: JobId(job.id),
            state: State::decode(job.state)?,
            queue_position: job.queue_position,
            is_queue_paused: job.is_queue_paused,
            cancel_requested: job.cancel_requested,
            is_cached: job.cached_from.is_some(),
            measured_at: job.measured_at,
            version: job.version,
            error: job.error,
            error_kind: job.error_kind,
            leaderboard: job.leaderboard,
            problem_dir: job.problem_dir,
            options: job.options.0,
            attempt: job.attempt,
            created_at: job.created_at,
            started_at: job.started_at,
            ended_at: job.ended_at,
            runs,
            progress: progress.map(|progress| progress.0),
            attempts,
        }))
    }

    /// An archive, if the job belongs to `owner` and has one of that name.
    pub async fn artifact(&self, id: JobId, owner: &Owner, name: &str) -> Result<Option<Artifact>> {
        let row = sqlx::query!(
            r#"SELECT artifact_path AS "path!", artifact_bytes AS "bytes!", artifact_sha256 AS "sha256!",
                      artifact_expired_at AS expired_at
               FROM runs JOIN jobs ON jobs.id = runs.job_id
               WHERE job_id = $1 AND owner = $2 AND artifact_name = $3"#,
            id.0,
            owner.as_bytes(),
            name,
        )
        .fetch_optional(&self.pool)
        .await?;
        let artifact = row.map(|row| {
            let stored = StoredArtifact::decode(row.path, row.bytes, row.sha256)?;
            Ok::<_, sqlx::Error>(Artifact { name: name.to_owned(), stored, expired_at: row.expired_at })
        });
        Ok(artifact.transpose()?)
    }
}
