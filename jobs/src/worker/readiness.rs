//! Whether this worker may take a job: its GPU is not in quarantine, and the quick half of the doctor's checks is well.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Worker;
use crate::Result;
use crate::doctor::{self, Status};
use crate::gpu::Gpus;
use crate::queue::WorkerState;

/// How long the checks count.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Why no job is taken, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The GPU is in quarantine.
    Quarantined(String),
    /// A check failed.
    Unready(String),
}

impl Refusal {
    pub(super) fn why(&self) -> &str {
        match self {
            Self::Quarantined(why) | Self::Unready(why) => why,
        }
    }

    pub(super) fn state(&self) -> WorkerState {
        match self {
            Self::Quarantined(_) => WorkerState::Quarantined,
            Self::Unready(_) => WorkerState::Unready,
        }
    }
}

/// What was found last.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// Held while the checks run, so that they run once for all who ask.
    checked_at: tokio::sync::Mutex<Option<Instant>>,
    failed: Mutex<Option<String>>,
    told: Mutex<Option<Refusal>>,
}

impl Readiness {
    /// Why this worker may take no job now. Checks again what was found too long ago.
    pub(super) async fn refusal(&self, worker: &Worker) -> Option<Refusal> {
        let mut checked_at = self.checked_at.lock().await;
        if checked_at.is_none_or(|at| at.elapsed() >= CHECK_EVERY) {
            let report = doctor::readiness(&worker.config, &worker.sandbox, Arc::clone(&worker.catalog)).await;
            let failed = report.findings.iter().filter(|finding| finding.status == Status::Failed);
            let lines: Vec<String> = failed.map(|finding| format!("{}: {}", finding.what, finding.found)).collect();
            *lock(&self.failed) = (!lines.is_empty()).then(|| lines.join("; "));
            *checked_at = Some(Instant::now());
        }
        let refusal = self.known_refusal(&worker.gpus);
        self.tell(refusal.as_ref());
        refusal
    }

    /// What was found counts no more: something has failed since.
    pub(super) async fn doubt(&self) {
        *self.checked_at.lock().await = None;
    }

    /// The same by what is known, without checking anything but the quarantine.
    pub(super) fn known_refusal(&self, gpus: &Gpus) -> Option<Refusal> {
        match gpus.quarantine() {
            Ok(Some(found)) => Some(Refusal::Quarantined(format!("GPU {}: {}", found.gpu, found.reason))),
            Ok(None) => lock(&self.failed).clone().map(Refusal::Unready),
            Err(error) => Some(Refusal::Unready(error.to_string())),
        }
    }

    /// Says in the log what has changed.
    fn tell(&self, refusal: Option<&Refusal>) {
        let mut told = lock(&self.told);
        if told.as_ref() == refusal {
            return;
        }
        match refusal {
            Some(Refusal::Quarantined(why)) => {
                tracing::error!(why, "no job is taken: the GPU is in quarantine; ncu-worker unquarantine lifts it");
            }
            Some(Refusal::Unready(why)) => {
                tracing::error!(why, "no job is taken before this is mended; ncu-worker doctor says how");
            }
            None => tracing::info!("jobs are taken again"),
        }
        *told = refusal.cloned();
    }
}

/// Looks while no job runs: the heartbeat of a worker that nobody needs right now tells what is wrong, too.
pub(super) async fn check(worker: Arc<Worker>) -> Result<()> {
    if worker.current_job().is_none() {
        worker.readiness.refusal(&worker).await;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
