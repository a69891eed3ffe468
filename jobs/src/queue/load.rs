//! What lies before a job, and how long such work has taken: the numbers of [`crate::forecast`].

use std::time::Duration;

use super::Queue;
use super::workers::ALIVE_SECS;
use crate::Result;
use crate::forecast::{Load, LoadJob, LoadShape, Took, Work};
use crate::ids::JobId;

/// The shapes that ended last, at most so many of them and of the last so many days.
const MEASURED_SHAPES: i64 = 5000;
const MEASURED_DAYS: i32 = 14;
/// Jobs that an estimate is made for; those behind them have none.
const MAX_JOBS: i64 = 2000;

impl Queue {
    /// Everything that runs and waits, in the order in which it is done.
    pub async fn load(&self) -> Result<Load> {
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let now = sqlx::query!(
            r#"SELECT now() AS "at!", EXISTS (SELECT FROM queue_state WHERE paused_at IS NOT NULL) AS "is_paused!",
                      (SELECT count(*) FROM workers WHERE state IN ('idle', 'busy')
                       AND last_seen_at > now() - make_interval(secs => $1)) AS "workers!""#,
            ALIVE_SECS
        )
        .fetch_one(&mut *tx)
        .await?;
        let rows = sqlx::query!(
            r#"SELECT job.id, job.state = 'running' AS "is_running!", job.problem_dir,
                      run.benchmark::text AS shape, run.state = 'running' AS shape_runs,
                      extract(epoch FROM now() - run.started_at)::float8 AS elapsed_secs
               FROM (SELECT * FROM jobs WHERE state IN ('queued', 'running')
                     ORDER BY state = 'queued', priority DESC, seq LIMIT $1) job
               LEFT JOIN runs run ON run.job_id = job.id AND run.state IN ('queued', 'running')
               ORDER BY job.state = 'queued', job.priority DESC, job.seq, run.benchmark_index"#,
            MAX_JOBS
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let mut jobs: Vec<LoadJob> = Vec::new();
        for row in rows {
            let id = JobId(row.id);
            if jobs.last().is_none_or(|job| job.id != id) {
                jobs.push(LoadJob { id, is_running: row.is_running, shapes: Vec::new() });
            }
            let (Some(job), Some(shape)) = (jobs.last_mut(), row.shape) else { continue };
            let elapsed = row.elapsed_secs.filter(|_| row.shape_runs == Some(true)).map(seconds);
            job.shapes.push(LoadShape { work: Work { problem_dir: row.problem_dir, shape }, elapsed });
        }
        Ok(Load { at: now.at, is_paused: now.is_paused, workers: usize::try_from(now.workers).unwrap_or(0), jobs })
    }

    /// How long shapes took lately: each shape of a leaderboard, all of a leaderboard, and all together.
    pub async fn measured(&self) -> Result<Vec<Took>> {
        let rows = sqlx::query!(
            r#"WITH recent AS (
                   SELECT job_id, benchmark::text AS shape, extract(epoch FROM ended_at - started_at)::float8 AS secs
                   FROM runs
                   WHERE started_at IS NOT NULL AND ended_at IS NOT NULL AND ended_at > now() - make_interval(days => $1)
                     -- What was broken off says nothing of how long it takes.
                     AND coalesce(error_kind, '') NOT IN ('cancelled', 'service_fault')
                   ORDER BY ended_at DESC LIMIT $2)
               SELECT problem_dir AS "problem_dir?", shape, count(*) AS "count!", avg(secs)::float8 AS "mean!",
                      percentile_cont(0.1) WITHIN GROUP (ORDER BY secs)::float8 AS "p10!",
                      percentile_cont(0.9) WITHIN GROUP (ORDER BY secs)::float8 AS "p90!"
               FROM recent JOIN jobs ON jobs.id = recent.job_id
               GROUP BY GROUPING SETS ((problem_dir, shape), (problem_dir), ())
               HAVING count(*) > 0"#,
            MEASURED_DAYS,
            MEASURED_SHAPES,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Took {
                problem_dir: row.problem_dir,
                shape: row.shape,
                count: row.count,
                mean_secs: row.mean,
                p10_secs: row.p10,
                p90_secs: row.p90,
            })
            .collect())
    }
}

/// A clock that was set back makes nothing younger than new.
fn seconds(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or_default()
}
