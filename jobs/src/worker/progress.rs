//! Tells how far a shape has come, for a user who waits: by the worker's own phases, and by what the runner says of the capture.
//!
//! Whatever a container writes is hostile, and nobody is worse off without it: it is read within bounds, cut and cleaned, and
//! trouble with it is none.

use std::time::Duration;

use ncu_runner::protocol::{self, Progress};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::blocking;
use super::shape::ShapeRun;
use crate::collect::OutputDir;
use crate::text::is_shown;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Largest account that is read, in bytes.
const MAX_BYTES: u64 = 16 << 10;
/// How often the progress of one capture is told.
const MAX_TOLD: usize = 200;
/// Longest line, and longest kernel name, that is told, in characters.
const MAX_CHARS: usize = 200;
/// How long the database may take: the next one tells more.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Told {
    benchmark_index: u32,
    /// `overview`, `capture`, `export` or `store`.
    phase: &'static str,
    /// Launches that are profiled, of how many at most.
    launches_done: Option<u32>,
    launches_at_most: Option<u32>,
    /// The kernel that is profiled, and how much of its passes is done.
    kernel: Option<String>,
    percent: Option<u8>,
    /// What was printed last.
    output: Vec<String>,
}

impl Told {
    fn phase(benchmark_index: u32, phase: &'static str) -> Self {
        Self {
            benchmark_index,
            phase,
            launches_done: None,
            launches_at_most: None,
            kernel: None,
            percent: None,
            output: Vec::new(),
        }
    }

    /// What a container says of itself, within bounds; nothing where it makes no sense.
    fn of(benchmark_index: u32, json: &[u8]) -> Option<Self> {
        let progress: Progress = serde_json::from_slice(json).ok()?;
        let phase =
            [protocol::OVERVIEW_STEP, protocol::CAPTURE_STEP].into_iter().find(|&step| step == progress.step)?;
        let told = Self::phase(benchmark_index, phase);
        if phase == protocol::OVERVIEW_STEP {
            return Some(told);
        }
        let shown = |text: &str| text.chars().filter(|&c| is_shown(c)).take(MAX_CHARS).collect::<String>();
        Some(Self {
            launches_done: Some(progress.launches_done),
            launches_at_most: progress.launches_at_most,
            kernel: progress.kernel.as_deref().map(shown),
            percent: progress.percent.map(|percent| percent.min(100)),
            output: progress.output.iter().take(Progress::MAX_OUTPUT_LINES).map(|line| shown(line)).collect(),
            ..told
        })
    }
}

impl ShapeRun<'_> {
    /// Tells that a phase begins.
    pub(super) async fn tell_phase(&self, phase: &'static str) {
        self.tell(&Told::phase(self.lease.benchmark_index, phase)).await;
    }

    /// Tells what the capture's container says of its progress, until it is dropped.
    pub(super) async fn follow(&self, output: &OutputDir) -> std::convert::Infallible {
        let (mut last, mut count) = (None, 0);
        loop {
            sleep(LOOK).await;
            let output = output.clone();
            let read = blocking(move || Ok(output.read_small(protocol::PROGRESS_FILE, MAX_BYTES).ok())).await;
            let Ok(Some(json)) = read else { continue };
            let told = Told::of(self.lease.benchmark_index, &json);
            if told.is_some() && told != last && count < MAX_TOLD {
                if let Some(told) = &told {
                    self.tell(told).await;
                }
                (last, count) = (told, count + 1);
            }
        }
    }

    async fn tell(&self, told: &Told) {
        match timeout(PATIENCE, self.worker.queue.note_progress(self.lease, told)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(job = %self.claim.id, %error, "progress could not be told"),
            Err(_) => tracing::debug!(job = %self.claim.id, "progress could not be told in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_says_of_itself_is_told_within_bounds() {
        let progress = Progress {
            step: "capture".to_owned(),
            launches_done: 3,
            launches_at_most: Some(10),
            kernel: Some(format!("a\u{1b}[2J{}", "x".repeat(500))),
            percent: Some(250),
            output: vec!["red \u{1b}[31m\n".to_owned(); 50],
        };
        let told = Told::of(7, &serde_json::to_vec(&progress).unwrap()).unwrap();
        assert_eq!(
            (told.benchmark_index, told.phase, told.launches_done, told.percent),
            (7, "capture", Some(3), Some(100))
        );
        let kernel = told.kernel.unwrap();
        assert!(kernel.starts_with("a[2Jx") && kernel.chars().count() == MAX_CHARS, "{kernel}");
        assert_eq!(told.output, ["red [31m"; Progress::MAX_OUTPUT_LINES]);
        for nonsense in [&b"{}"[..], b"", b"[]", br#"{"step":"reboot","launches_done":0,"output":[]}"#, b"\xff"] {
            assert_eq!(Told::of(7, nonsense), None);
        }
    }
}
