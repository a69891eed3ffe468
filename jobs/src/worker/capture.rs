//! The capture's container: what it is told, how it runs, and what it left.

use std::time::{Duration, SystemTime};

use ncu_runner::protocol::{self, CaptureRequest, Outcome, Request};
use opentelemetry::KeyValue;

use super::judge::Evidence;
use super::shape::{RUNNER_GRACE, ShapeRun};
use super::turn::{self, LeftBehind};
use super::{Worker, blocking, tail};
use crate::capture::command::CaptureCommand;
use crate::collect::{CollectError, CollectedFile, OutputDir};
use crate::queue::Claim;
use crate::sandbox::{ContainerSpec, Ended, How, Inputs, Labels, Leftover};
use crate::telemetry::{metrics, past_span, phase};
use crate::{Error, Result};

/// Largest outcome that is read, in bytes. The runner writes a few kilobytes, and 16 more where many kernels are hot.
const MAX_OUTCOME_BYTES: u64 = 1 << 20;
/// Largest table of launches that is taken, in bytes; the runner ends it at half of that.
pub(super) const MAX_LAUNCHES_BYTES: u64 = 32 << 20;
/// What the file of a cut stream may hold beyond the limit: the line that marks the cut.
const CUT_MARK_BYTES: u64 = 4096;

/// A capture whose container has ended.
#[derive(Debug)]
pub(super) struct Captured {
    pub request: CaptureRequest,
    pub ended: Ended,
    pub output: OutputDir,
    /// The runner's account; `None` when there is none that can be read.
    pub outcome: Option<Outcome>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub popcorn_log: Vec<u8>,
    /// The table of launches, where the overview saw any.
    pub launches: Option<CollectedFile>,
}

impl ShapeRun<'_> {
    /// Runs the capture, or waits for one that an earlier holder of the attempt started. `None` when it was stopped for the
    /// attempt's sake.
    pub(super) async fn capture(&self, adopted: Option<&Leftover>) -> Result<Option<Captured>> {
        phase("capture", self.captured(adopted)).await
    }

    async fn captured(&self, adopted: Option<&Leftover>) -> Result<Option<Captured>> {
        let (request, output, ended) = match adopted {
            Some(container) => self.rejoin_capture(container).await?,
            None => Box::pin(self.run_capture()).await?,
        };
        if ended.how == How::Cancelled {
            return Ok(None);
        }
        let captured = self.collect(request, output, ended).await?;
        self.trace(&captured);
        let just_ended = matches!(captured.ended.how, How::Exited { oom_killed: false, .. });
        if adopted.is_some() && captured.outcome.is_none() && just_ended {
            // It may have ended while no worker was there, and nobody saw why. It may have gone down with the host or the
            // engine, and then the submission is not to blame.
            return Err(Error::Capture("the capture that was adopted ended without an outcome".to_owned()));
        }
        Ok(Some(captured))
    }

    /// The container and the steps in it are told when it is over: whoever started it may be gone.
    fn trace(&self, captured: &Captured) {
        let (ended, steps) = (&captured.ended, captured.outcome.iter().flat_map(|outcome| &outcome.steps));
        let took = (ended.ended_at - ended.started_at).to_std().unwrap_or_default();
        for gpu in self.worker.gpus.addresses() {
            metrics().gpu_was_busy(&gpu, took);
        }
        past_span(
            "container",
            ended.started_at.into(),
            took,
            vec![KeyValue::new("ncu_service.container.role", "capture")],
        );
        // They run one after the other.
        let mut started: SystemTime = ended.started_at.into();
        for step in steps {
            let took = Duration::try_from_secs_f64(step.seconds).unwrap_or_default();
            let name = if step.name == protocol::CAPTURE_STEP { "ncu" } else { protocol::OVERVIEW_STEP };
            let exit_code = step.exit_code.map(|code| KeyValue::new("process.exit.code", i64::from(code)));
            past_span(name, started, took, exit_code.into_iter().collect());
            started += took;
        }
    }

    async fn run_capture(&self) -> Result<(CaptureRequest, OutputDir, Ended)> {
        let request = self.capture_request();
        let (input, output) = {
            let (folder, user, source) =
                (self.folder.clone(), self.worker.config.sandbox.user, self.claim.source.clone());
            let (request, origin) = (Request::Capture(request.clone()), self.origin.clone());
            blocking(move || {
                folder.note_origin(&origin)?;
                Ok((folder.capture_input(&request, &source)?, folder.capture_output(user)?))
            })
            .await?
        };
        let spec = ContainerSpec {
            labels: self.labels(),
            inputs: Inputs::Capture { input: &input, problems: self.catalog.root() },
            output: &output,
            command: Vec::new(),
            limit: container_limit(&request),
        };
        let worker = self.worker;
        let left_behind = LeftBehind::Ask(&worker.queue);
        let ended = tokio::select! {
            ended = Box::pin(turn::run(&worker.gpus, &worker.sandbox, left_behind, &spec, self.stop)) => ended?,
            never = self.follow(&output) => match never {},
        };
        Ok((request, output, ended))
    }

    /// The request and its limits are what the container was started with, whatever this worker is told by now.
    async fn rejoin_capture(&self, container: &Leftover) -> Result<(CaptureRequest, OutputDir, Ended)> {
        let folder = self.folder.clone();
        let (request, output) =
            blocking(move || Ok((folder.capture_request()?, folder.reopen_capture_output()?))).await?;
        let Request::Capture(request) = request else {
            return Err(Error::Internal("a capture was told to export".to_owned()));
        };
        let (worker, limit) = (self.worker, container_limit(&request));
        let id = &container.container_id;
        let ended = tokio::select! {
            ended = Box::pin(turn::rejoin(&worker.gpus, &worker.sandbox, id, &output, limit, self.stop)) => ended?,
            never = self.follow(&output) => match never {},
        };
        Ok((request, output, ended))
    }

    async fn collect(&self, request: CaptureRequest, output: OutputDir, ended: Ended) -> Result<Captured> {
        let limits = &self.worker.config.limits;
        let max_bytes = limits.max_stream_bytes + CUT_MARK_BYTES;
        blocking(move || {
            let log = |name| optional(output.read_small(name, max_bytes)).map(Option::unwrap_or_default);
            Ok(Captured {
                request,
                ended,
                outcome: outcome(&output)?,
                stdout: log(protocol::STDOUT_FILE)?,
                stderr: log(protocol::STDERR_FILE)?,
                popcorn_log: log(protocol::POPCORN_LOG_FILE)?,
                launches: optional(output.open_file(protocol::LAUNCHES_FILE, MAX_LAUNCHES_BYTES))?,
                output,
            })
        })
        .await
    }

    pub(super) fn labels(&self) -> Labels {
        Labels {
            job: self.claim.id,
            benchmark: self.lease.benchmark_index,
            attempt: self.claim.attempt,
            token: self.claim.claim_token,
            adoption: self.claim.adoption,
        }
    }

    pub(super) fn command(&self) -> CaptureCommand {
        command(self.worker, self.claim)
    }

    fn capture_request(&self) -> CaptureRequest {
        let (ncu, limits) = (self.command(), &self.worker.config.limits);
        CaptureRequest {
            files: self.problem.files.clone(),
            main: self.problem.main.clone(),
            spec: self.shape.spec(),
            ncu: ncu.argv(),
            selection: ncu.selection,
            warm_calls: ncu.warm_calls,
            landlock: limits.landlock,
            warmup_timeout_secs: limits.warmup.as_secs(),
            capture_timeout_secs: limits.capture_of(self.problem).as_secs(),
            max_stream_bytes: limits.max_stream_bytes,
        }
    }
}

/// The capture that the operator's and the request's options come to.
pub(super) fn command(worker: &Worker, claim: &Claim) -> CaptureCommand {
    let program = worker.config.sandbox.ncu_program();
    CaptureCommand::new(program, &claim.problem_dir, &worker.config.ncu, &claim.options)
}

impl Captured {
    /// What a verdict is made from.
    pub(super) fn evidence(&self, run: &ShapeRun<'_>) -> Evidence {
        let (early_out, output) = self.split(&self.stdout, protocol::STDOUT_FILE);
        let (early_err, errors) = self.split(&self.stderr, protocol::STDERR_FILE);
        let text = |first: &[u8], second: &[u8]| String::from_utf8_lossy(&[first, b"\n", second].concat()).into_owned();
        Evidence {
            how: self.ended.how,
            limits: run.worker.config.sandbox.limits,
            overview_limit_secs: self.request.warmup_timeout_secs,
            capture_limit_secs: self.request.capture_timeout_secs,
            outcome: self.outcome.clone(),
            output: text(output, errors),
            earlier_output: text(early_out, early_err),
            popcorn_log: String::from_utf8_lossy(&self.popcorn_log).into_owned(),
            kernel_name: run.command().kernel_name,
        }
    }

    /// The end of what the submission printed in the capture, or before it where it printed nothing there.
    pub(super) fn output_tail(&self) -> Option<String> {
        let (early_out, output) = self.split(&self.stdout, protocol::STDOUT_FILE);
        let (early_err, errors) = self.split(&self.stderr, protocol::STDERR_FILE);
        tail::output_tail(output, errors).or_else(|| tail::output_tail(early_out, early_err))
    }

    /// A stream before the capture's own step, and from there on: what came before cannot speak for it.
    fn split<'a>(&self, stream: &'a [u8], name: &str) -> (&'a [u8], &'a [u8]) {
        let stats = self.outcome.as_ref().and_then(|outcome| outcome.streams.get(name));
        let offset = stats.and_then(|stats| usize::try_from(stats.capture_offset?).ok()).unwrap_or(stream.len());
        stream.split_at(offset.min(stream.len()))
    }
}

/// How long the container may run in all: each step has its own limit, kept by the runner.
fn container_limit(request: &CaptureRequest) -> Duration {
    Duration::from_secs(request.warmup_timeout_secs + request.capture_timeout_secs) + RUNNER_GRACE
}

/// The runner's account of a container; `None` when there is none that can be read.
pub(super) fn outcome(output: &OutputDir) -> Result<Option<Outcome>> {
    let json = optional(output.read_small(protocol::OUTCOME_FILE, MAX_OUTCOME_BYTES))?;
    Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
}

/// A file that is missing or that the container spoiled is no file; only our own disk's trouble is an error.
fn optional<T>(collected: Result<T, CollectError>) -> Result<Option<T>> {
    match collected {
        Ok(content) => Ok(Some(content)),
        Err(CollectError::Io(source)) => {
            Err(Error::Io { action: "collecting a container's output".to_owned(), source })
        }
        Err(refused) => {
            tracing::debug!(%refused, "a file of a container's output was not taken");
            Ok(None)
        }
    }
}
