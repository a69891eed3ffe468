//! Attempts that lost their worker: who may take one over, and what is still in use.
//!
//! A claim gives an attempt two tokens that are the same at first. The *claim token* stays: containers and folders carry it.
//! The *run token* is its holder's, and an adoption replaces it, so that whatever the old holder still wants to write is
//! refused.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use super::jobs::{end_cancelled, fail, interval, load_claim};
use super::model::Claim;
use super::{Queue, State};
use crate::ids::JobId;
use crate::{Error, Result};

/// How many workers in a row a job may lose without one of its shapes being ended.
const MAX_LOSSES: i32 = 5;
/// What the user of a job reads that lost its workers too often.
pub(super) const LOST_TOO_OFTEN: &str =
    "The worker was lost each time it ran this job; submit again, and tell the operator if it happens again.";

/// A running job, as far as an adopter needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The job.
    pub job: JobId,
    /// Its holder's token.
    pub run_token: Uuid,
    /// Whether its holder's lease has run out.
    pub is_expired: bool,
}

/// Everything that is in use: the running jobs by their claim token, and which holders' containers they rely on.
#[derive(Debug, Clone, Default)]
pub struct Live {
    claims: HashMap<Uuid, Held>,
    containers: HashSet<(Uuid, u32, i32)>,
}

impl Live {
    /// The running job of that claim.
    #[must_use]
    pub fn claim(&self, claim_token: Uuid) -> Option<&Held> {
        self.claims.get(&claim_token)
    }

    /// Whether a container of that claim and shape, made after so many adoptions, is of any use: the shape is under way, and
    /// the container is its present holder's, or holds the capture that the present holder took over.
    #[must_use]
    pub fn has_container(&self, claim_token: Uuid, benchmark_index: u32, adoption: i32) -> bool {
        self.containers.contains(&(claim_token, benchmark_index, adoption))
    }
}

/// What came of an attempt to adopt.
#[derive(Debug)]
pub enum Adoption {
    /// The attempt is the caller's now.
    Adopted(Box<Claim>),
    /// Its holder is back, or another was quicker.
    Refused,
    /// The job ended instead: somebody had cancelled it, or it lost its workers too often.
    Ended(State),
}

impl Queue {
    /// Everything that is in use.
    pub async fn live(&self) -> Result<Live> {
        let rows = sqlx::query!(
            r#"SELECT job.id, job.claim_token AS "claim_token!", job.run_token AS "run_token!", job.adoption,
                      job.lease_until < now() AS "is_expired!",
                      run.benchmark_index AS "benchmark_index?", run.adoption AS "started_by?"
               FROM jobs job LEFT JOIN runs run ON run.job_id = job.id AND run.state = 'running'
               WHERE job.state = 'running'"#
        )
        .fetch_all(&self.pool)
        .await?;
        let mut live = Live::default();
        for row in rows {
            let held = Held { job: JobId(row.id), run_token: row.run_token, is_expired: row.is_expired };
            live.claims.insert(row.claim_token, held);
            if let Some(index) = row.benchmark_index {
                let of = |adoption| (row.claim_token, index.cast_unsigned(), adoption);
                live.containers.insert(of(row.adoption));
                live.containers.extend(row.started_by.map(of));
            }
        }
        Ok(live)
    }

    /// Takes an attempt over from a holder whose lease has run out, or who `is_dead` for certain. Exactly one of those who try
    /// gets it, with a token of its own; the holder's is void from then on.
    pub async fn adopt(&self, held: Held, is_dead: bool, worker: &str, lease: Duration) -> Result<Adoption> {
        let mut tx = self.pool.begin().await?;
        let token = Uuid::new_v4();
        let Some(job) = sqlx::query!(
            "UPDATE jobs SET run_token = $3, lease_until = now() + $4, adoption = adoption + 1, worker = $5,
                    losses = losses + CASE WHEN worker IS NULL THEN 0 ELSE 1 END
             WHERE id = $1 AND run_token = $2 AND (lease_until < now() OR $6)
             RETURNING losses, cancel_requested, attempt",
            held.job.0,
            held.run_token,
            token,
            interval(lease),
            worker,
            is_dead,
        )
        .fetch_optional(&mut *tx)
        .await?
        else {
            return Ok(Adoption::Refused);
        };
        let adoption = if job.cancel_requested {
            end_cancelled(&mut tx, held.job).await?;
            Adoption::Ended(State::Failed)
        } else if job.losses >= MAX_LOSSES {
            let detail = format!("attempt {} lost {} workers without ending a shape", job.attempt, job.losses);
            Adoption::Ended(fail(&mut tx, held.job, &detail, LOST_TOO_OFTEN).await?)
        } else {
            Adoption::Adopted(Box::new(load_claim(&mut tx, held.job, token).await?))
        };
        tx.commit().await?;
        Ok(adoption)
    }

    /// Lets another worker of this host adopt an attempt at once: its holder stops, its container does not.
    pub async fn hand_over(&self, id: JobId, token: Uuid) -> Result<()> {
        let updated = sqlx::query!(
            "UPDATE jobs SET lease_until = now(), worker = NULL WHERE id = $1 AND run_token = $2",
            id.0,
            token,
        )
        .execute(&self.pool)
        .await?;
        if updated.rows_affected() == 0 { Err(Error::LeaseLost) } else { Ok(()) }
    }
}
