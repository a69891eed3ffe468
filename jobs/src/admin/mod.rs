//! The operators' commands, for the command line and for HTTP alike. Each use is recorded with who and when, a refused one too.
//!
//! All of them are writes and reads of the database. What only a worker can do, on its own host, is an order that it finds
//! there.

mod text;
mod token;

pub use token::AdminToken;

use clap::Subcommand;
use serde::Serialize;

use crate::ids::JobId;
use crate::queue::{Actor, AdminJob, AdminJobDetail, AdminStatus, Deed, Queue, State};
use crate::{Error, Result};

/// How many jobs a list holds where nobody says so.
pub const USUAL_LIMIT: u32 = 50;
/// Most jobs that a list holds.
const MAX_LISTED: u32 = 1000;

/// What an operator can order.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Show whether the queue is paused, how much waits and runs, and the workers that are alive.
    Status,
    /// Stop taking jobs from the queue: they are accepted and wait. What runs goes on.
    Pause {
        /// Why, for other operators.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Take jobs from the queue again, at once.
    Resume,
    /// List the jobs that run or wait, in their order.
    List {
        /// List those that ended last instead.
        #[arg(long)]
        ended: bool,
        /// How many.
        #[arg(long, default_value_t = USUAL_LIMIT)]
        limit: u32,
    },
    /// Show a job with its shapes, its faults and who held it.
    Show {
        /// The job's id.
        #[arg(value_parser = job_id)]
        job: JobId,
    },
    /// Cancel a job: a waiting one ends at once, a running one within seconds.
    Cancel {
        /// The job's id.
        #[arg(value_parser = job_id)]
        job: JobId,
    },
    /// Queue a job that has ended once more; its shapes without a profile are done again.
    Requeue {
        /// The job's id.
        #[arg(value_parser = job_id)]
        job: JobId,
    },
    /// Give a waiting job another priority; a higher one goes first, 0 is usual.
    Reorder {
        /// The job's id.
        #[arg(value_parser = job_id)]
        job: JobId,
        /// Its new priority.
        #[arg(allow_negative_numbers = true)]
        priority: i32,
    },
    /// Let a worker end after its shape, and put the rest of its job back.
    Drain {
        /// The worker's name, or a start of it that no other has.
        worker: String,
    },
    /// Let a worker lift the quarantine of its GPUs.
    Unquarantine {
        /// The worker's name, or a start of it that no other has.
        worker: String,
    },
    /// Let a worker take away now what is past its time, instead of within the hour.
    Prune,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// The service at a glance.
    Status(AdminStatus),
    /// Some jobs.
    Jobs {
        /// In order.
        jobs: Vec<AdminJob>,
    },
    /// A job.
    Job(Box<AdminJobDetail>),
    /// It was done, or will be.
    Done {
        /// A sentence that says so.
        detail: String,
    },
}

impl Command {
    /// What the log says of its use.
    fn deed(&self) -> Deed {
        let deed = |action, target: Option<String>, details: Option<String>| Deed { action, target, details };
        match self {
            Self::Status => deed("status", None, None),
            Self::Pause { reason } => deed("pause", None, reason.clone()),
            Self::Resume => deed("resume", None, None),
            Self::List { ended, .. } => deed("list", None, ended.then(|| "ended".to_owned())),
            Self::Show { job } => deed("show", Some(job.to_string()), None),
            Self::Cancel { job } => deed("cancel", Some(job.to_string()), None),
            Self::Requeue { job } => deed("requeue", Some(job.to_string()), None),
            Self::Reorder { job, priority } => {
                deed("reorder", Some(job.to_string()), Some(format!("priority {priority}")))
            }
            Self::Drain { worker } => deed("drain", Some(worker.clone()), None),
            Self::Unquarantine { worker } => deed("unquarantine", Some(worker.clone()), None),
            Self::Prune => deed("prune", None, None),
        }
    }
}

/// Does what an operator orders. [`Error::NoSuch`] and [`Error::Refused`] carry a sentence for the operator.
pub async fn run(queue: &Queue, actor: &Actor, command: &Command) -> Result<Answer> {
    let deed = command.deed();
    let done = execute(queue, actor, command, &deed).await;
    if let Err(Error::NoSuch(why) | Error::Refused(why)) = &done {
        queue.note_refusal(actor, &deed, why).await?;
    }
    done
}

async fn execute(queue: &Queue, actor: &Actor, command: &Command, deed: &Deed) -> Result<Answer> {
    let mut change = queue.change(actor, deed).await?;
    let done = |detail: String| Answer::Done { detail };
    let answer = match command {
        Command::Status => Answer::Status(queue.admin_status().await?),
        Command::List { ended: false, limit } => {
            Answer::Jobs { jobs: queue.open_jobs((*limit).min(MAX_LISTED)).await? }
        }
        Command::List { ended: true, limit } => {
            Answer::Jobs { jobs: queue.ended_jobs((*limit).min(MAX_LISTED)).await? }
        }
        Command::Show { job } => Answer::Job(Box::new(queue.admin_job(*job).await?)),
        Command::Pause { reason } => {
            change.pause(actor, reason.as_deref()).await?;
            done("The queue is paused: jobs are accepted and wait, and what runs goes on.".to_owned())
        }
        Command::Resume => {
            change.resume().await?;
            done("The queue is resumed.".to_owned())
        }
        Command::Cancel { job } => done(match change.cancel(*job).await? {
            State::Running => "The job is being cancelled: its worker ends it within seconds.".to_owned(),
            _ => "The job is cancelled.".to_owned(),
        }),
        Command::Requeue { job } => {
            let shapes = change.requeue(*job).await?;
            done(format!("The job waits again, and {shapes} of its shapes will be done."))
        }
        Command::Reorder { job, priority } => {
            let position = change.set_priority(*job, *priority).await?;
            done(format!("The job has priority {priority} and is number {position} in the queue."))
        }
        Command::Drain { worker } => {
            let worker = change.worker(worker).await?;
            change.drain(&worker).await?;
            done(format!("Worker {worker} takes no more jobs, within seconds, and ends after its shape."))
        }
        Command::Unquarantine { worker } => {
            let worker = change.worker(worker).await?;
            change.lift_quarantine(&worker).await?;
            done(format!("Worker {worker} lifts the quarantine of its GPUs, within seconds."))
        }
        Command::Prune => {
            change.prune().await?;
            done("A worker prunes within seconds; its log says what was taken away.".to_owned())
        }
    };
    change.commit().await?;
    Ok(answer)
}

/// A job's id as clients have it, or as psql shows it.
pub fn job_id(text: &str) -> Result<JobId, String> {
    let digits = text.replace('-', "").to_lowercase();
    digits.parse().map_err(|error: crate::ids::InvalidJobId| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_may_be_named_as_clients_do_or_as_psql_does() {
        let id = JobId::random();
        assert_eq!(job_id(&id.to_string()), Ok(id));
        assert_eq!(job_id(&id.0.hyphenated().to_string()), Ok(id));
        assert!(job_id("8c2f").is_err() && job_id("").is_err());
    }
}
