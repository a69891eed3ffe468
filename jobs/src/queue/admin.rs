//! What operators order: the pause, a job's end or place, orders to workers. A change and its row in `admin_log` are one
//! transaction.

use sqlx::PgTransaction;

use super::jobs::cancel;
use super::{Queue, State, tickets};
use crate::ids::JobId;
use crate::text::is_shown;
use crate::{Error, Result};

/// Longest text that is kept of what somebody typed, in characters.
const MAX_CHARS: usize = 500;

/// Who orders something, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor(String);

impl Actor {
    /// Somebody of that name; `None` where nothing of it can be shown.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let name = line(name);
        (!name.is_empty()).then_some(Self(name))
    }

    /// Somebody who came that way, by the name that was given there, if any.
    #[must_use]
    pub fn over(way: &'static str, name: &str) -> Self {
        Self::new(&format!("{way} {name}")).unwrap_or_else(|| Self(way.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What stands in the log of a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// The command.
    pub action: &'static str,
    /// The job or the worker.
    pub target: Option<String>,
    /// What else was given.
    pub details: Option<String>,
}

/// A change in progress, with its row in the log. Dropped, nothing of it happened.
#[derive(Debug)]
pub struct Change {
    tx: PgTransaction<'static>,
}

/// What a worker is asked to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders {
    /// End after its shape.
    pub drain: bool,
    /// Lift the quarantine of its GPUs.
    pub lift_quarantine: bool,
}

impl Queue {
    /// Begins a change, and notes who makes it.
    pub async fn change(&self, actor: &Actor, deed: &Deed) -> Result<Change> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!(
            "INSERT INTO admin_log (actor, action, target, outcome, details) VALUES ($1, $2, $3, 'done', $4)",
            actor.as_str(),
            deed.action,
            deed.target.as_deref().map(line),
            deed.details.as_deref().map(line),
        )
        .execute(&mut *tx)
        .await?;
        Ok(Change { tx })
    }

    /// Notes that somebody was refused something, and why.
    pub async fn note_refusal(&self, actor: &Actor, deed: &Deed, why: &str) -> Result<()> {
        sqlx::query!(
            "INSERT INTO admin_log (actor, action, target, outcome, details) VALUES ($1, $2, $3, 'refused', $4)",
            actor.as_str(),
            deed.action,
            deed.target.as_deref().map(line),
            line(why),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Whether no job is claimed now.
    pub async fn is_paused(&self) -> Result<bool> {
        let paused = sqlx::query_scalar!(r#"SELECT paused_at IS NOT NULL AS "paused!" FROM queue_state"#);
        Ok(paused.fetch_one(&self.pool).await?)
    }

    /// What a worker is asked to do.
    pub async fn orders(&self, worker: &str) -> Result<Orders> {
        let asked = sqlx::query!(
            r#"SELECT drain_requested_at IS NOT NULL AS "drain!", lift_requested_at IS NOT NULL AS "lift!"
               FROM workers WHERE name = $1"#,
            worker
        )
        .fetch_optional(&self.pool)
        .await?;
        // One that has had no heartbeat yet has no row.
        Ok(asked.map_or_else(Orders::default, |asked| Orders { drain: asked.drain, lift_quarantine: asked.lift }))
    }

    /// The worker has lifted the quarantine of its GPUs.
    pub async fn quarantine_lifted(&self, worker: &str) -> Result<()> {
        sqlx::query!("UPDATE workers SET lift_requested_at = NULL WHERE name = $1", worker).execute(&self.pool).await?;
        Ok(())
    }

    /// Whether somebody asked for a round of pruning. One caller is told so.
    pub async fn take_prune_order(&self) -> Result<bool> {
        let asked = sqlx::query_scalar!(r#"SELECT prune_requested_at IS NOT NULL AS "asked!" FROM queue_state"#);
        if !asked.fetch_one(&self.pool).await? {
            return Ok(false);
        }
        let taken =
            sqlx::query!("UPDATE queue_state SET prune_requested_at = NULL WHERE prune_requested_at IS NOT NULL");
        Ok(taken.execute(&self.pool).await?.rows_affected() > 0)
    }
}

impl Change {
    /// Makes it so.
    pub async fn commit(self) -> Result<()> {
        Ok(self.tx.commit().await?)
    }

    /// Stops the claiming of jobs.
    pub async fn pause(&mut self, actor: &Actor, reason: Option<&str>) -> Result<()> {
        let paused = sqlx::query!(
            "UPDATE queue_state SET paused_at = now(), paused_by = $1, pause_reason = $2 WHERE paused_at IS NULL",
            actor.as_str(),
            reason.map(line),
        );
        if paused.execute(&mut *self.tx).await?.rows_affected() == 0 {
            return Err(Error::Refused("The queue is paused already: status says by whom.".to_owned()));
        }
        Ok(())
    }

    /// Lets jobs be claimed again, and wakes the workers.
    pub async fn resume(&mut self) -> Result<()> {
        let resumed = sqlx::query!(
            "UPDATE queue_state SET paused_at = NULL, paused_by = NULL, pause_reason = NULL WHERE paused_at IS NOT NULL"
        );
        if resumed.execute(&mut *self.tx).await?.rows_affected() == 0 {
            return Err(Error::Refused("The queue is not paused.".to_owned()));
        }
        tickets::replace_missing(&mut self.tx).await?;
        Ok(())
    }

    /// Cancels a job. Its state before.
    pub async fn cancel(&mut self, id: JobId) -> Result<State> {
        if let Some(state) = cancel(&mut self.tx, id).await? {
            return Ok(state);
        }
        let state = self.state(id).await?;
        Err(Error::Refused(format!("The job has ended already: it is {}.", state.as_str())))
    }

    /// Queues a job that has ended once more, at its old place. Its shapes without a profile are done again. Says how many.
    pub async fn requeue(&mut self, id: JobId) -> Result<u64> {
        let state = self.state(id).await?;
        if matches!(state, State::Queued | State::Running) {
            return Err(Error::Refused(format!("The job has not ended: it is {}.", state.as_str())));
        }
        let has_source =
            sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM submissions WHERE job_id = $1) AS "has_source!""#, id.0);
        if !has_source.fetch_one(&mut *self.tx).await? {
            return Err(Error::Refused(
                "The source of this job is not stored any more: its user has to submit it again.".to_owned(),
            ));
        }
        let shapes = sqlx::query!(
            "UPDATE runs SET state = 'queued', attempt = NULL, adoption = NULL, exit_code = NULL, error = NULL, error_kind = NULL,
                    output_tail = NULL, simulated = false, launches = NULL, coverage = NULL, clock_control = NULL, summary = NULL,
                    started_at = NULL, ended_at = NULL, artifact_name = NULL, artifact_path = NULL, artifact_bytes = NULL,
                    artifact_sha256 = NULL, setup = NULL, problem_version = NULL, artifact_expired_at = NULL, artifact_deleted_at = NULL
             WHERE job_id = $1 AND (state <> 'succeeded' OR artifact_expired_at IS NOT NULL)",
            id.0
        )
        .execute(&mut *self.tx)
        .await?
        .rows_affected();
        if shapes == 0 {
            return Err(Error::Refused(
                "Every shape of this job has its profile: there is nothing to do again.".to_owned(),
            ));
        }
        sqlx::query!(
            "UPDATE jobs SET state = 'queued', ended_at = NULL, error = NULL, error_kind = NULL, worker = NULL, faults = 0,
                    losses = 0, cancel_requested = false, not_before = now(), cached_from = NULL, measured_at = NULL
             WHERE id = $1",
            id.0
        )
        .execute(&mut *self.tx)
        .await?;
        tickets::push(&mut self.tx, 1).await?;
        Ok(shapes)
    }

    /// Gives a job that waits another priority. Its place by that.
    pub async fn set_priority(&mut self, id: JobId, priority: i32) -> Result<i64> {
        let state = self.state(id).await?;
        if state != State::Queued {
            return Err(Error::Refused(format!("The job waits no more: it is {}.", state.as_str())));
        }
        sqlx::query!("UPDATE jobs SET priority = $2 WHERE id = $1", id.0, priority).execute(&mut *self.tx).await?;
        Ok(sqlx::query_scalar!(r#"SELECT queue_position AS "position!" FROM queue_overview WHERE job_id = $1"#, id.0)
            .fetch_one(&mut *self.tx)
            .await?)
    }

    /// Asks a worker to end after its shape.
    pub async fn drain(&mut self, worker: &str) -> Result<()> {
        sqlx::query!("UPDATE workers SET drain_requested_at = now() WHERE name = $1", worker)
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }

    /// Asks a worker to lift the quarantine of its GPUs.
    pub async fn lift_quarantine(&mut self, worker: &str) -> Result<()> {
        let asked = sqlx::query!(
            "UPDATE workers SET lift_requested_at = now() WHERE name = $1 AND state = 'quarantined'",
            worker
        );
        if asked.execute(&mut *self.tx).await?.rows_affected() == 0 {
            return Err(Error::Refused(format!("Worker {worker} tells of no quarantine.")));
        }
        Ok(())
    }

    /// Asks for a round of pruning, which some worker then does.
    pub async fn prune(&mut self) -> Result<()> {
        sqlx::query!("UPDATE queue_state SET prune_requested_at = now()").execute(&mut *self.tx).await?;
        Ok(())
    }

    /// The worker that is alive and has that name, or the only one whose name starts so.
    pub async fn worker(&mut self, name: &str) -> Result<String> {
        let none = || Error::NoSuch("There is no worker alive whose name starts so: status lists them.".to_owned());
        // Every name starts with nothing, and Postgres takes no NUL.
        if name.is_empty() || name.contains('\0') {
            return Err(none());
        }
        let mut names = sqlx::query_scalar!(
            r#"SELECT worker AS "worker!" FROM worker_status WHERE is_alive AND starts_with(worker, $1)
               ORDER BY worker <> $1, worker LIMIT 10"#,
            name
        )
        .fetch_all(&mut *self.tx)
        .await?;
        match names.as_slice() {
            [] => Err(none()),
            [first, rest @ ..] if !rest.is_empty() && first != name => {
                Err(Error::Refused(format!("Several workers are called so: {}.", names.join(", "))))
            }
            _ => Ok(names.swap_remove(0)),
        }
    }

    /// A job's state, which nobody changes before this change is made.
    async fn state(&mut self, id: JobId) -> Result<State> {
        let state = sqlx::query_scalar!("SELECT state FROM jobs WHERE id = $1 FOR UPDATE", id.0)
            .fetch_optional(&mut *self.tx)
            .await?
            .ok_or_else(no_such_job)?;
        Ok(State::decode(state)?)
    }
}

pub(super) fn no_such_job() -> Error {
    Error::NoSuch("There is no job of this id.".to_owned())
}

/// What somebody typed, as one line that can be printed, and not too long.
fn line(text: &str) -> String {
    text.trim().chars().map(|c| if is_shown(c) { c } else { ' ' }).take(MAX_CHARS).collect()
}
