//! The `runs` table: one row a shape. Every write carries the attempt's token.

use ncu_runner::protocol::ClockControl;
use sqlx::types::Json;
use uuid::Uuid;

use super::Queue;
use super::digests::keep_digest;
use super::jobs::lock_leased;
use super::model::RunEnd;
use crate::Result;
use crate::digest::Summary;
use crate::ids::JobId;

/// Which run is written, and by which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLease {
    /// The job.
    pub job: JobId,
    /// The holder's token.
    pub token: Uuid,
    /// The attempt's number.
    pub attempt: i32,
    /// How often the attempt was taken over.
    pub adoption: i32,
    /// The shape.
    pub benchmark_index: u32,
}

impl Queue {
    /// Records that a shape's capture begins.
    pub async fn start_run(&self, run: RunLease) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        lock_leased(&mut tx, run.job, run.token).await?;
        sqlx::query!(
            "UPDATE runs SET state = 'running', attempt = $3, adoption = $4, started_at = now(), setup = NULL, problem_version = NULL
             WHERE job_id = $1 AND benchmark_index = $2",
            run.job.0,
            run.benchmark_index.cast_signed(),
            run.attempt,
            run.adoption,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Records how a shape ended; [`crate::Error::LeaseLost`] when another attempt owns the job by now. Repeating a write
    /// that has already gone through changes nothing, so a caller may try again after a lost connection.
    pub async fn finish_run(&self, run: RunLease, end: &RunEnd) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        lock_leased(&mut tx, run.job, run.token).await?;
        let (name, artifact) = end.artifact.as_ref().map(|(name, stored)| (name, stored)).unzip();
        let written = sqlx::query!(
            "UPDATE runs SET state = $3, exit_code = $4, error_kind = $5, error = $6, simulated = $7, ended_at = now(),
                    artifact_name = $8, artifact_path = $9, artifact_bytes = $10, artifact_sha256 = $11,
                    launches = $12, coverage = $13, clock_control = $14, output_tail = $15, summary = $16
             WHERE job_id = $1 AND benchmark_index = $2 AND state = 'running'",
            run.job.0,
            run.benchmark_index.cast_signed(),
            end.state.as_str(),
            end.exit_code,
            end.error.as_ref().map(|(kind, _)| kind.as_str()),
            end.error.as_ref().map(|(_, sentence)| sentence),
            end.simulated,
            name,
            artifact.map(|stored| &stored.path),
            artifact.map(|stored| stored.bytes.cast_signed()),
            artifact.map(|stored| stored.sha256.as_slice()),
            (!end.launches.is_empty()).then_some(Json(&end.launches)) as _,
            end.coverage,
            end.clock_control.map(ClockControl::as_str),
            end.output_tail,
            end.digest.as_deref().map(|digest| Json(Summary::from(digest))) as _,
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if let Some(digest) = end.digest.as_deref().filter(|_| written > 0) {
            keep_digest(&mut tx, run, digest).await?;
        }
        // Whatever it lost workers for, it gets on.
        sqlx::query!("UPDATE jobs SET losses = 0 WHERE id = $1 AND losses > 0", run.job.0).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
}
