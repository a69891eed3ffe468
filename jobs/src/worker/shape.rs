//! One shape from its source to its stored archive: stage, capture, judge, export, check, zip, store.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use ncu_runner::protocol::{self, KernelTime, Outcome, Overview};
use tokio_util::sync::CancellationToken;

use super::attempt::Attempt;
use super::capture::{Captured, command};
use super::judge::Judgement;
use super::stage::{Origin, RunFolder};
use super::{Worker, blocking, bundle, provenance};
use crate::problems::{Catalog, Problem, Revision, Shape};
use crate::queue::{Claim, ErrorKind, PendingRun, RunEnd, RunLease, State};
use crate::report::ReportSummary;
use crate::sandbox::Leftover;
use crate::telemetry::phase;
use crate::text::is_shown;
use crate::{Error, Result};

/// What the runner may take beyond the limits of its steps.
pub(super) const RUNNER_GRACE: Duration = Duration::from_secs(protocol::GRACE_SECS);

/// Longest kernel name that a poll shows, in characters.
pub(super) const MAX_KERNEL_CHARS: usize = 400;

/// One shape in progress.
#[derive(Debug)]
pub(super) struct ShapeRun<'a> {
    pub worker: &'a Worker,
    pub claim: &'a Claim,
    pub lease: RunLease,
    pub problem: &'a Problem,
    pub shape: &'a Shape,
    /// The problems that its container reads.
    pub catalog: &'a Catalog,
    /// What it was begun with.
    pub origin: Origin,
    pub folder: Arc<RunFolder>,
    /// Fires when the container must end.
    pub stop: &'a CancellationToken,
}

/// Profiles one shape; where there is a `capture` of it already, by that. `None` when `stop` ended it; an error is a fault of
/// ours. Container and folder stay.
pub(super) async fn profile(
    attempt: &Attempt<'_>,
    problem: &Problem,
    revision: &Revision,
    pending: &PendingRun,
    capture: Option<&Leftover>,
    stop: &CancellationToken,
) -> Result<Option<RunEnd>> {
    let Attempt { worker, claim, ref catalog, .. } = *attempt;
    let path = attempt.run_folder(pending.benchmark_index);
    let (folder, origin) = if capture.is_some() {
        let reopen = || {
            let folder = RunFolder::reopen(path)?;
            let origin = folder.origin()?;
            Ok((folder, origin))
        };
        blocking(reopen).await?
    } else {
        let began_at = Utc::now();
        let image = worker.sandbox.image().await?;
        let clock_control = command(worker, claim).clock_control;
        let limits = provenance::limits(&worker.config, problem);
        let (catalog, files, revision) = (Arc::clone(catalog), problem.files.clone(), revision.clone());
        let begin = move || {
            let problem_files = catalog.digests(&files).map_err(Error::io("reading the problem's files"))?;
            let folder = RunFolder::create(path)?;
            Ok((folder, Origin { began_at, image, revision, problem_files, clock_control, limits }))
        };
        blocking(begin).await?
    };
    let lease = claim.lease_of(pending.benchmark_index);
    let folder = Arc::new(folder);
    let run = ShapeRun { worker, claim, lease, problem, shape: &pending.shape, catalog, origin, folder, stop };
    if capture.is_none() {
        run.note_made_with().await;
    }
    Box::pin(run.run(capture)).await
}

impl ShapeRun<'_> {
    async fn run(&self, capture: Option<&Leftover>) -> Result<Option<RunEnd>> {
        let Some(captured) = self.capture(capture).await? else { return Ok(None) };
        let (exit_code, complaint) = match captured.judgement(self) {
            Judgement::Captured { exit_code, error } => (exit_code, error),
            Judgement::Ended { state, exit_code, error } => {
                // A GPU that goes away in mid-capture looks from inside like a submission that fails, and what is printed
                // inside can be forged. So the outside is asked.
                self.worker.gpus.check().await?;
                return Ok(Some(self.without_profile(&captured, state, exit_code, error)));
            }
            Judgement::Fault(detail) => {
                tracing::warn!(job = %self.claim.id, detail, log = captured.ended.log_tail, "the capture failed on our side");
                return Err(Error::Capture(detail));
            }
        };
        let report = match self.take_report(&captured).await? {
            Ok(report) => report,
            Err(error) => return Ok(Some(self.without_profile(&captured, State::Failed, Some(exit_code), error))),
        };
        self.tell_phase("export").await;
        let Some(exported) = phase("export", self.export(&report)).await? else { return Ok(None) };
        let exports = match exported {
            Ok(exports) => exports,
            Err(why) => {
                let sentence = format!("The profiler's report could not be exported: {why}.");
                return Ok(Some(self.without_profile(
                    &captured,
                    State::Failed,
                    Some(exit_code),
                    (ErrorKind::EmptyCapture, sentence),
                )));
            }
        };
        if let Some(error) = lacks_counters(&exports.summary) {
            return Ok(Some(self.without_profile(&captured, State::Failed, Some(exit_code), error)));
        }
        let (launches, coverage) = seen(captured.outcome.as_ref());
        let gpus = self.worker.gpus.identities().await;
        let (exports, digest) = self.digest(&captured, exports, &gpus).await?;
        self.tell_phase("store").await;
        let artifact = bundle::store(self, captured, &report, exports, &digest, &gpus, complaint.as_ref()).await?;
        Ok(Some(RunEnd {
            state: State::Succeeded,
            exit_code: Some(exit_code),
            error: complaint,
            output_tail: None,
            simulated: self.origin.image.simulated,
            clock_control: Some(self.origin.clock_control),
            launches,
            coverage,
            digest: Some(Box::new(digest)),
            artifact: Some(artifact),
        }))
    }

    fn without_profile(
        &self,
        captured: &Captured,
        state: State,
        exit_code: Option<i32>,
        error: (ErrorKind, String),
    ) -> RunEnd {
        RunEnd {
            state,
            exit_code,
            error: Some(error),
            output_tail: captured.output_tail(),
            simulated: self.origin.image.simulated,
            clock_control: None,
            launches: Vec::new(),
            coverage: None,
            digest: None,
            artifact: None,
        }
    }
}

impl Captured {
    fn judgement(&self, run: &ShapeRun<'_>) -> Judgement {
        super::judge::judge(&self.evidence(run))
    }
}

/// What a poll shows of the overview. The outcome crossed the container's border, so its bounds are kept here too.
pub(super) fn seen(outcome: Option<&Outcome>) -> (Vec<KernelTime>, Option<f64>) {
    let fraction = |value: f64| value.clamp(0.0, 1.0);
    let overview = outcome.and_then(|outcome| outcome.overview.as_ref());
    let top = overview.map_or(&[][..], |overview| &overview.top);
    let launches = top.iter().take(Overview::MAX_TOP).map(|entry| KernelTime {
        kernel: entry.kernel.chars().filter(|&c| is_shown(c)).take(MAX_KERNEL_CHARS).collect(),
        share: fraction(entry.share),
        ..entry.clone()
    });
    let coverage = outcome.and_then(|outcome| outcome.choice.as_ref()).and_then(|choice| choice.coverage);
    (launches.collect(), coverage.map(fraction))
}

/// A report counts only with a launch, and with a counter that is a number.
fn lacks_counters(summary: &ReportSummary) -> Option<(ErrorKind, String)> {
    match summary {
        ReportSummary { launches: 0, .. } => {
            Some((ErrorKind::EmptyCapture, "No kernel was captured: the report holds no launch.".to_owned()))
        }
        ReportSummary { measured_launches: 0, .. } => Some((
            ErrorKind::ServiceFault,
            "The profiler measured no counter on this GPU; tell the operator, since its version may not fit the GPU."
                .to_owned(),
        )),
        _ => None,
    }
}
