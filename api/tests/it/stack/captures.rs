//! The containers of captures, as the engine has them.

use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::engine::docker;
use super::harness::{PATIENCE, POLL, Stack};

/// A job's container that runs a capture, as the engine has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    pub id: String,
    pub started_at: String,
}

impl Stack {
    /// Waits for the job's capture to run.
    pub async fn capture_runs(&self, job: &str) -> Capture {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let [capture] = &captures(job, &["--filter", "status=running"]).await[..] {
                return capture.clone();
            }
            assert!(Instant::now() < deadline, "no capture runs");
            sleep(POLL).await;
        }
    }

    /// Waits until none of the job's captures runs.
    pub async fn capture_ends(&self, job: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !captures(job, &["--filter", "status=running"]).await.is_empty() {
            assert!(Instant::now() < deadline, "the capture does not end");
            sleep(POLL).await;
        }
    }
}

/// The captures of a job that the engine has, running or not, as far as the filter lets them through.
pub async fn captures(job: &str, filter: &[&str]) -> Vec<Capture> {
    let label = format!("label=ncu-service.job={job}");
    let list = ["ps", "-aq", "--no-trunc", "--filter", &label, "--filter", "label=ncu-service.role=capture"];
    let mut captures = Vec::new();
    for id in docker(&[&list[..], filter].concat()).await.lines() {
        // It may go while it is looked at.
        let inspect = ["container", "inspect", "--format", "{{.State.StartedAt}}", id];
        let output = Command::new("docker").args(inspect).output().await.unwrap();
        if output.status.success() {
            let started_at = String::from_utf8(output.stdout).unwrap().trim().to_owned();
            captures.push(Capture { id: id.to_owned(), started_at });
        }
    }
    captures
}
