//! One shape from its source to its stored archive: what comes before the GPU (stage), what needs it (capture, judge) and what
//! comes after it (export, check, zip, store). [`super::pipeline`] does each for another shape at the same time.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use ncu_runner::protocol::{self, KernelTime, Outcome, Overview};
use tokio_util::sync::CancellationToken;

use super::attempt::Attempt;
use super::capture::{Captured, Prepared, command};
use super::judge::Judgement;
use super::stage::{Origin, RunFolder};
use super::timeline::Timeline;
use super::turn::Progress;
use super::{Worker, blocking, bundle, provenance};
use crate::problems::{Catalog, Problem, Revision, Shape};
use crate::queue::{Claim, ErrorKind, PendingRun, RunEnd, RunLease, State};
use crate::report::ReportSummary;
use crate::sandbox::Leftover;
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
    pub timeline: Timeline,
    /// How far its container has got.
    pub progress: Progress,
    /// Fires when the container must end.
    pub stop: &'a CancellationToken,
}

/// How a shape's capture comes about.
#[derive(Debug)]
pub(super) enum Start {
    /// By a container that was made for it here.
    Prepared(Box<Prepared>),
    /// By the container that an earlier holder of the attempt started.
    Adopted {
        /// The engine's id of it.
        container_id: String,
    },
}

/// A shape that is done with the GPU.
#[derive(Debug)]
pub(super) enum Front {
    /// It has no profile, and this is its end.
    Ended(RunEnd),
    /// There is a report to export, check and store.
    Captured {
        captured: Box<Captured>,
        exit_code: i32,
        /// What the evaluator found wrong.
        complaint: Option<(ErrorKind, String)>,
    },
}

/// Makes a shape ready for the GPU: folder, inputs and container. Nobody else sees anything of it yet.
pub(super) async fn prepare<'a>(
    attempt: &'a Attempt<'a>,
    problem: &'a Problem,
    revision: &Revision,
    pending: &'a PendingRun,
    stop: &'a CancellationToken,
) -> Result<(ShapeRun<'a>, Start)> {
    let Attempt { worker, claim, ref catalog, .. } = *attempt;
    let path = attempt.run_folder(pending.benchmark_index);
    let began_at = Utc::now();
    let image = worker.sandbox.image().await?;
    let clock_control = command(worker, claim).clock_control;
    let limits = provenance::limits(&worker.config, problem);
    let (problems, files, revision) = (Arc::clone(catalog), problem.files.clone(), revision.clone());
    let begin = move || {
        let problem_files = problems.digests(&files).map_err(Error::io("reading the problem's files"))?;
        let folder = RunFolder::create(path)?;
        Ok((folder, Origin { began_at, image, revision, problem_files, clock_control, limits }))
    };
    let (folder, origin) = blocking(begin).await?;
    let run = ShapeRun::new(attempt, problem, pending, (folder, origin), stop);
    let prepared = run.prepare_capture().await?;
    run.timeline.note_since("prepare", began_at);
    Ok((run, Start::Prepared(Box::new(prepared))))
}

/// Takes up a shape whose capture an earlier holder of the attempt started.
pub(super) async fn reopen<'a>(
    attempt: &'a Attempt<'a>,
    problem: &'a Problem,
    pending: &'a PendingRun,
    capture: &Leftover,
    stop: &'a CancellationToken,
) -> Result<(ShapeRun<'a>, Start)> {
    let path = attempt.run_folder(pending.benchmark_index);
    let reopen = || {
        let folder = RunFolder::reopen(path)?;
        let origin = folder.origin()?;
        Ok((folder, origin))
    };
    let run = ShapeRun::new(attempt, problem, pending, blocking(reopen).await?, stop);
    Ok((run, Start::Adopted { container_id: capture.container_id.clone() }))
}

impl<'a> ShapeRun<'a> {
    fn new(
        attempt: &'a Attempt<'a>,
        problem: &'a Problem,
        pending: &'a PendingRun,
        (folder, origin): (RunFolder, Origin),
        stop: &'a CancellationToken,
    ) -> Self {
        Self {
            worker: attempt.worker,
            claim: attempt.claim,
            lease: attempt.claim.lease_of(pending.benchmark_index),
            problem,
            shape: &pending.shape,
            catalog: &attempt.catalog,
            timeline: Timeline::new(origin.began_at),
            progress: Progress::default(),
            origin,
            folder: Arc::new(folder),
            stop,
        }
    }

    /// All that needs the GPU, or that must be judged before the next capture has it. `None` when `stop` ended it; an error is a
    /// fault of ours. Container and folder stay.
    pub(super) async fn front(&self, start: Start) -> Result<Option<Front>> {
        let Some(captured) = self.capture(start).await? else { return Ok(None) };
        match captured.judgement(self) {
            Judgement::Captured { exit_code, error: complaint } => {
                Ok(Some(Front::Captured { captured: Box::new(captured), exit_code, complaint }))
            }
            Judgement::Ended { state, exit_code, error } => {
                // A GPU that goes away in mid-capture looks from inside like a submission that fails, and what is printed
                // inside can be forged. So the outside is asked.
                self.worker.gpus.check().await?;
                Ok(Some(Front::Ended(self.without_profile(&captured, state, exit_code, error))))
            }
            Judgement::Fault(detail) => {
                tracing::warn!(job = %self.claim.id, detail, log = captured.ended.log_tail, "the capture failed on our side");
                Err(Error::Capture(detail))
            }
        }
    }

    /// The rest, which needs no GPU: export, check, zip, store. `None` and errors as in [`Self::front`].
    pub(super) async fn tail(&self, front: Front) -> Result<Option<RunEnd>> {
        let (captured, exit_code, complaint) = match front {
            Front::Ended(end) => return Ok(Some(end)),
            Front::Captured { captured, exit_code, complaint } => (captured, exit_code, complaint),
        };
        let taken = self.timeline.phase("take_report", self.take_report(&captured)).await?;
        let report = match taken {
            Ok(report) => report,
            Err(error) => return Ok(Some(self.without_profile(&captured, State::Failed, Some(exit_code), error))),
        };
        self.tell_phase("export").await;
        let exporting = Box::pin(self.export(&report));
        let Some(exported) = self.timeline.phase("export", exporting).await? else { return Ok(None) };
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
        let artifact = bundle::store(self, *captured, &report, exports, &digest, &gpus, complaint.as_ref()).await?;
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
