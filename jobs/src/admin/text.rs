//! What a command came to, for a person's terminal.

use std::fmt::{Display, Formatter, Result};

use chrono::{DateTime, SecondsFormat, Utc};

use super::Answer;
use crate::queue::{AdminJob, AdminJobDetail, AdminStatus};

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Status(status) => write_status(f, status),
            Self::Jobs { jobs } if jobs.is_empty() => f.write_str("no jobs"),
            Self::Jobs { jobs } => {
                for (n, job) in jobs.iter().enumerate() {
                    if n > 0 {
                        f.write_str("\n")?;
                    }
                    write_line(f, job)?;
                }
                Ok(())
            }
            Self::Job(job) => write_job(f, job),
            Self::Done { detail } => f.write_str(detail),
        }
    }
}

fn write_status(f: &mut Formatter<'_>, status: &AdminStatus) -> Result {
    match (&status.paused_at, &status.paused_by) {
        (Some(at), Some(by)) => {
            write!(f, "queue    paused since {} by {by}", time(*at))?;
            if let Some(reason) = &status.pause_reason {
                write!(f, ": {reason}")?;
            }
        }
        _ => f.write_str("queue    open")?,
    }
    write!(
        f,
        "\njobs     {} waiting, {} running\nworkers  {} alive",
        status.queued,
        status.running,
        status.workers.len()
    )?;
    for worker in &status.workers {
        write!(f, "\n  {} on {}: {}", worker.name, worker.host, worker.state)?;
        if let Some(job) = worker.job_id {
            write!(f, ", job {}", job.as_simple())?;
        }
        if let Some(at) = worker.drain_requested_at {
            write!(f, ", asked at {} to end after its shape", time(at))?;
        }
        if let Some(note) = &worker.note {
            write!(f, ", {note}")?;
        }
    }
    Ok(())
}

fn write_line(f: &mut Formatter<'_>, job: &AdminJob) -> Result {
    let place = job.queue_position.map_or_else(String::new, |position| format!("{position}."));
    write!(
        f,
        "{place:>6} {} {:<9} {} priority {} attempts {} faults {} {} {}",
        job.id.as_simple(),
        job.state,
        time(job.ended_at.unwrap_or(job.submitted_at)),
        job.priority,
        job.attempts,
        job.faults,
        job.owner,
        job.leaderboard
    )?;
    job.note.as_ref().map_or(Ok(()), |note| write!(f, ": {note}"))
}

fn write_job(f: &mut Formatter<'_>, detail: &AdminJobDetail) -> Result {
    write_line(f, &detail.job)?;
    for (name, text) in [("error", &detail.error), ("last fault", &detail.last_fault)] {
        if let Some(text) = text {
            write!(f, "\n{name}: {text}")?;
        }
    }
    if detail.cancel_requested {
        f.write_str("\nsomebody asked to cancel it")?;
    }
    if !detail.has_source {
        f.write_str("\nits source is not stored any more")?;
    }
    for shape in &detail.shapes {
        write!(f, "\nshape {}: {}", shape.benchmark_index, shape.state)?;
        match (&shape.artifact_name, &shape.artifact_expired_at) {
            (Some(name), Some(at)) => write!(f, ", {name} expired at {}", time(*at))?,
            (Some(name), None) => write!(f, ", {name}, {} bytes", shape.artifact_bytes.unwrap_or_default())?,
            _ => {}
        }
        if let (Some(kind), Some(error)) = (&shape.error_kind, &shape.error) {
            write!(f, ", {kind}: {error}")?;
        }
    }
    for held in &detail.history {
        let worker = held.worker.as_deref().unwrap_or("nobody");
        write!(
            f,
            "\nattempt {}.{} by {worker} at {}: {}",
            held.attempt,
            held.adoption,
            time(held.started_at),
            held.outcome
        )?;
        if let Some(fault) = &held.fault {
            write!(f, ", {fault}")?;
        }
    }
    Ok(())
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
