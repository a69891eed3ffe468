//! What owners ask and order about their own jobs: the list, and an end.

use chrono::{DateTime, Utc};

use super::jobs::cancel;
use super::{Queue, State};
use crate::Result;
use crate::ids::{JobId, Owner};

/// Which of an owner's jobs are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// In that state.
    pub state: Option<State>,
    /// Of that leaderboard, as the client named it.
    pub leaderboard: Option<String>,
    /// Submitted at that time or later.
    pub since: Option<DateTime<Utc>>,
    /// Submitted before that job of the same owner.
    pub before: Option<JobId>,
}

/// A job as a list shows it.
#[derive(Debug, Clone)]
pub struct ListedJob {
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// The sentence for the user.
    pub error: Option<String>,
    /// Whose fault, and which kind.
    pub error_kind: Option<String>,
    /// The leaderboard as the client named it.
    pub leaderboard: String,
    /// The submitted file's base name.
    pub file_name: String,
    /// SHA-256 of the submitted source.
    pub source_sha256: Vec<u8>,
    /// When it was queued.
    pub created_at: DateTime<Utc>,
    /// When it was first claimed.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Its shapes.
    pub shapes: i64,
    /// Those of them that have ended.
    pub shapes_ended: i64,
    /// Archives of it that can be downloaded.
    pub archives: i64,
}

/// What became of an owner's wish to end a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It waited, and has ended.
    Ended,
    /// It runs, and ends as soon as its worker hears of it.
    Requested,
    /// It had ended already, in this state.
    TooLate(State),
}

impl Queue {
    /// An owner's jobs, the newest first, at most `limit`; `None` where the job that is to be the last of the page before is
    /// none of the owner's.
    pub async fn list(&self, owner: &Owner, filter: &ListFilter, limit: i64) -> Result<Option<Vec<ListedJob>>> {
        let before = match filter.before {
            None => i64::MAX,
            Some(id) => {
                let seq =
                    sqlx::query_scalar!("SELECT seq FROM jobs WHERE id = $1 AND owner = $2", id.0, owner.as_bytes());
                let Some(seq) = seq.fetch_optional(&self.pool).await? else { return Ok(None) };
                seq
            }
        };
        let rows = sqlx::query!(
            r#"SELECT id, state, error, error_kind, leaderboard, file_name, source_sha256, created_at, started_at, ended_at,
                      of_it.shapes AS "shapes!", of_it.ended AS "shapes_ended!", of_it.archives AS "archives!"
               FROM (SELECT * FROM jobs
                     WHERE owner = $1 AND seq < $2 AND ($3::text IS NULL OR state = $3)
                       AND ($4::text IS NULL OR leaderboard = $4) AND ($5::timestamptz IS NULL OR created_at >= $5)
                     ORDER BY seq DESC LIMIT $6) job
               CROSS JOIN LATERAL (
                   SELECT count(*) AS shapes, count(*) FILTER (WHERE runs.ended_at IS NOT NULL) AS ended,
                          count(*) FILTER (WHERE artifact_name IS NOT NULL AND artifact_expired_at IS NULL) AS archives
                   FROM runs WHERE job_id = job.id) of_it
               ORDER BY seq DESC"#,
            owner.as_bytes(),
            before,
            filter.state.map(State::as_str),
            filter.leaderboard,
            filter.since,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in rows {
            jobs.push(ListedJob {
                id: JobId(row.id),
                state: State::decode(row.state)?,
                error: row.error,
                error_kind: row.error_kind,
                leaderboard: row.leaderboard,
                file_name: row.file_name,
                source_sha256: row.source_sha256,
                created_at: row.created_at,
                started_at: row.started_at,
                ended_at: row.ended_at,
                shapes: row.shapes,
                shapes_ended: row.shapes_ended,
                archives: row.archives,
            });
        }
        Ok(Some(jobs))
    }

    /// Cancels an owner's job; `None` where the owner has no such job.
    pub async fn cancel_own(&self, id: JobId, owner: &Owner) -> Result<Option<Cancelled>> {
        let mut tx = self.pool.begin().await?;
        // Locked, so that what is answered is what is so.
        let state = sqlx::query_scalar!(
            "SELECT state FROM jobs WHERE id = $1 AND owner = $2 FOR UPDATE",
            id.0,
            owner.as_bytes()
        );
        let Some(state) = state.fetch_optional(&mut *tx).await? else { return Ok(None) };
        let cancelled = match cancel(&mut tx, id).await? {
            Some(State::Queued) => Cancelled::Ended,
            Some(_) => Cancelled::Requested,
            None => Cancelled::TooLate(State::decode(state)?),
        };
        tx.commit().await?;
        Ok(Some(cancelled))
    }
}
