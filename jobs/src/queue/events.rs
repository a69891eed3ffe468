//! The `job_events` table: what happens to a job, in order, and who is woken by it.
//!
//! A notification says that there is something to read, and nothing more: it can be lost, and whoever waits reads the table.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::types::Json;

use super::Queue;
use super::jobs::lock_leased;
use super::runs::RunLease;
use crate::Result;
use crate::ids::{JobId, Owner};

/// Channels of notifications; the triggers of `migrations/` know them, too.
const EVENTS: &str = "ncu_service_events";
const CANCELS: &str = "ncu_service_cancels";
/// Events that one question is answered with; whoever is behind asks again.
pub const EVENTS_AT_ONCE: i64 = 200;

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEvent {
    /// Grows within a job.
    pub id: i64,
    /// When.
    pub at: DateTime<Utc>,
    /// `job`, `shape` or `progress`.
    pub kind: String,
    /// What it is about, an object.
    pub data: serde_json::Map<String, serde_json::Value>,
}

/// What a notification says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A job has an event.
    Event {
        /// The job.
        job: JobId,
        /// The event.
        id: i64,
        /// Whether it is no more than progress.
        is_progress: bool,
    },
    /// Somebody wants a running job to end.
    CancelRequested(JobId),
    /// The connection was lost and is there again: anything may have happened meanwhile.
    Reconnected,
}

/// Hears notifications, on a connection of its own.
pub struct Listener(PgListener);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    /// The next notice. An error ends the listener.
    pub async fn next(&mut self) -> Result<Notice> {
        loop {
            let Some(notification) = self.0.try_recv().await? else { return Ok(Notice::Reconnected) };
            // What another release says is none of ours.
            if let Some(notice) = decode(notification.channel(), notification.payload()) {
                return Ok(notice);
            }
        }
    }
}

fn decode(channel: &str, payload: &str) -> Option<Notice> {
    let mut words = payload.split(' ');
    let job = words.next()?.parse().ok()?;
    match channel {
        EVENTS => {
            Some(Notice::Event { job, id: words.next()?.parse().ok()?, is_progress: words.next() == Some("progress") })
        }
        CANCELS => Some(Notice::CancelRequested(job)),
        _ => None,
    }
}

impl Queue {
    /// Listens for events of all jobs.
    pub async fn listen_for_events(&self) -> Result<Listener> {
        self.listen(EVENTS).await
    }

    /// Listens for requests to end running jobs.
    pub async fn listen_for_cancels(&self) -> Result<Listener> {
        self.listen(CANCELS).await
    }

    async fn listen(&self, channel: &str) -> Result<Listener> {
        // Not one of the pool's, which are few and for questions.
        let options = (*self.pool.connect_options()).clone();
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(channel).await?;
        Ok(Listener(listener))
    }

    /// The newest event of any job, as far as its number is concerned: its transaction may not be over yet.
    pub async fn newest_event(&self) -> Result<i64> {
        Ok(sqlx::query_scalar!(r#"SELECT last_value AS "id!" FROM job_events_id_seq"#).fetch_one(&self.pool).await?)
    }

    /// Tells that a shape gets on; [`crate::Error::LeaseLost`] when another attempt owns the job by now.
    pub async fn note_progress(&self, run: RunLease, told: &(impl Serialize + Sync)) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        lock_leased(&mut tx, run.job, run.token).await?;
        // As text: a parameter of json would be sent as jsonb.
        let told = serde_json::to_string(told)?;
        sqlx::query!("SELECT note_event($1, 'progress', $2::text::json)", run.job.0, told).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Events of an owner's job after one of them, the oldest first and at most [`EVENTS_AT_ONCE`]; `None` where the owner has
    /// no such job. With whether the job has ended and everything of it is told.
    pub async fn events_after(&self, id: JobId, owner: &Owner, after: i64) -> Result<Option<(Vec<JobEvent>, bool)>> {
        let mut tx = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let ended = sqlx::query_scalar!(
            r#"SELECT ended_at IS NOT NULL AS "ended!" FROM jobs WHERE id = $1 AND owner = $2"#,
            id.0,
            owner.as_bytes(),
        );
        let Some(has_ended) = ended.fetch_optional(&mut *tx).await? else { return Ok(None) };
        let events = sqlx::query!(
            r#"SELECT id, at, kind, data AS "data: Json<serde_json::Map<String, serde_json::Value>>" FROM job_events
               WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
            id.0,
            after,
            EVENTS_AT_ONCE,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let events: Vec<_> = events
            .into_iter()
            .map(|event| JobEvent { id: event.id, at: event.at, kind: event.kind, data: event.data.0 })
            .collect();
        let is_all = events.len() < usize::try_from(EVENTS_AT_ONCE).unwrap_or(usize::MAX);
        Ok(Some((events, has_ended && is_all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_of_another_release_is_none() {
        let job = JobId::random();
        let event = |id, is_progress| Some(Notice::Event { job, id, is_progress });
        assert_eq!(decode(EVENTS, &format!("{job} 7 job")), event(7, false));
        assert_eq!(decode(EVENTS, &format!("{job} 8 progress and more")), event(8, true));
        assert_eq!(decode(CANCELS, &job.to_string()), Some(Notice::CancelRequested(job)));
        for (channel, payload) in [(EVENTS, ""), (EVENTS, "x 1 job"), (CANCELS, ""), ("other", "x")] {
            assert_eq!(decode(channel, payload), None, "{payload}");
        }
    }
}
