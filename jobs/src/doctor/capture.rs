//! A tiny kernel, captured for real: the same container, runner and restrictions as for a submission.

use std::time::Duration;

use ncu_runner::protocol::{self, CaptureMode, CaptureRequest, LandlockState, Outcome, Request, Selection, TaskFile};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Finding;
use crate::collect::OutputDir;
use crate::gpu::Gpus;
use crate::ids::JobId;
use crate::sandbox::{ContainerSpec, Ended, How, Inputs, Labels, Sandbox};
use crate::worker::hold::{AttemptFolder, FoundFolder};
use crate::worker::stage::{self, RunFolder};
use crate::worker::turn::{self, LeftBehind};
use crate::worker::{WorkerConfig, blocking};
use crate::{Error, Result};

/// What the check is called.
pub(super) const WHAT: &str = "tiny capture";
const LANDLOCK: &str = "Landlock";

/// Stands for the submission and for the evaluator.
const PROGRAM: &str = include_str!("launch.py");
const PROGRAM_NAME: &str = "submission.py";
/// Beneath the jobs folder, where a worker has the folder of its own instance.
const FOLDER: &str = "doctor";
/// Limit of each of the runner's two steps.
const STEP_LIMIT: Duration = Duration::from_mins(1);
/// Limit of the container.
const LIMIT: Duration = Duration::from_secs(150);
/// How long other workers' captures and a GPU in use are waited for.
const TURN_PATIENCE: Duration = Duration::from_mins(2);
/// Largest file of the container's that is read, in bytes.
const MAX_READ_BYTES: u64 = 1 << 20;

/// The capture, and what Landlock enforced in it.
pub(super) async fn tiny(config: &WorkerConfig, sandbox: &Sandbox, gpus: &Gpus) -> Vec<Finding> {
    let ran = match run(config, sandbox, gpus, Vec::new(), LIMIT).await {
        Ok(ran) => ran,
        Err(error) => {
            let advice = "see the lines above; a container was not made to run";
            return vec![Finding::failed(WHAT, error.to_string(), advice)];
        }
    };
    let (ended, output) = (&ran.ended, &ran.output);
    let outcome = output
        .read_small(protocol::OUTCOME_FILE, MAX_READ_BYTES)
        .ok()
        .and_then(|json| serde_json::from_slice::<Outcome>(&json).ok())
        .unwrap_or_default();
    tracing::debug!(?ended, ?outcome, "the tiny capture's container ended");
    let has_report = output.open_file(protocol::REPORT_FILE, config.sandbox.limits.output_bytes).is_ok();
    let log = [protocol::STDOUT_FILE, protocol::STDERR_FILE]
        .map(|name| output.read_small(name, MAX_READ_BYTES).unwrap_or_default())
        .concat();
    let log = String::from_utf8_lossy(&log);
    vec![verdict(ended, &outcome, has_report, &log), landlock(config, &outcome)]
}

/// A container that has run. What it wrote is there until this is dropped.
#[derive(Debug)]
pub(super) struct Ran {
    pub ended: Ended,
    output: OutputDir,
    _folder: Scratch,
}

/// A folder that goes with this value. It is locked, so that another doctor knows that this one lives.
#[derive(Debug)]
struct Scratch(AttemptFolder);

impl Drop for Scratch {
    fn drop(&mut self) {
        let folder = self.0.path();
        if let Err(error) = stage::remove(folder) {
            tracing::warn!(%error, folder = %folder.display(), "the tiny capture's folder could not be removed");
        }
    }
}

/// Removes the containers and folders of doctors that were killed half-way.
pub(super) async fn clear(config: &WorkerConfig, sandbox: &Sandbox) -> Result<()> {
    let folder = config.jobs_dir.join(FOLDER);
    let abandoned = blocking(move || {
        let mut found = FoundFolder::list(&folder)?;
        found.retain_mut(FoundFolder::is_abandoned);
        Ok(found)
    });
    for found in abandoned.await? {
        if let Some(token) = found.claim_token {
            for container in sandbox.leftovers_of(token).await? {
                sandbox.remove(&container.container_id).await?;
            }
        }
        blocking(move || stage::remove(&found.path)).await?;
    }
    Ok(())
}

/// Runs a capture's container in its turn on the GPU.
pub(super) async fn run(
    config: &WorkerConfig,
    sandbox: &Sandbox,
    gpus: &Gpus,
    command: Vec<String>,
    limit: Duration,
) -> Result<Ran> {
    let request = Request::Capture(request(config));
    let (doctors, token, user) = (config.jobs_dir.join(FOLDER), Uuid::new_v4(), config.sandbox.user);
    let scratch = Scratch(blocking(move || AttemptFolder::create(&doctors, token)).await?);
    let path = scratch.0.of_run(0);
    let folder = blocking(move || RunFolder::create(path)).await?;
    let (input, output) = (folder.capture_input(&request, PROGRAM)?, folder.capture_output(user)?);
    let spec = ContainerSpec {
        labels: Labels { job: JobId::random(), benchmark: 0, attempt: 1, token, adoption: 0 },
        inputs: Inputs::Capture { input: &input, problems: &input },
        output: &output,
        command,
        limit,
    };
    let stop = CancellationToken::new();
    let ran = timeout(TURN_PATIENCE + limit, turn::run(gpus, sandbox, LeftBehind::Spare, &spec, &stop)).await;
    sandbox.remove(&spec.container_name()).await?;
    match ran {
        Ok(ended) => Ok(Ran { ended: ended?, output, _folder: scratch }),
        Err(_) => Err(Error::Gpu("another worker's capture did not end in time".to_owned())),
    }
}

fn request(config: &WorkerConfig) -> CaptureRequest {
    let report = format!("{}/{}", protocol::OUT_DIR, protocol::REPORT_FILE);
    // No NVTX filter: the program needs no library for ranges.
    let ncu = [
        config.sandbox.ncu_program(),
        "--config-file",
        "off",
        "--set",
        "full",
        "--target-processes",
        "all",
        "--check-exit-code",
        "yes",
        "-f",
        "-o",
        &report,
    ];
    CaptureRequest {
        files: vec![TaskFile { name: PROGRAM_NAME.to_owned(), source: None }],
        main: PROGRAM_NAME.to_owned(),
        spec: "size: 1".to_owned(),
        ncu: ncu.map(str::to_owned).to_vec(),
        selection: Selection { mode: CaptureMode::Window, max_launches: 1 },
        warm_calls: 0,
        landlock: config.limits.landlock,
        warmup_timeout_secs: STEP_LIMIT.as_secs(),
        capture_timeout_secs: STEP_LIMIT.as_secs(),
        max_stream_bytes: MAX_READ_BYTES / 2,
    }
}

fn verdict(ended: &Ended, outcome: &Outcome, has_report: bool, log: &str) -> Finding {
    let step = outcome.steps.iter().find(|step| step.name == protocol::CAPTURE_STEP);
    let captured = step.is_some_and(|step| step.exit_code == Some(0)) && has_report;
    if captured && outcome.error.is_none() {
        let ncu = outcome.ncu_version.as_deref().unwrap_or("of unknown version");
        let seconds = step.map_or(0.0, |step| step.seconds);
        return Finding::ok(WHAT, format!("a report in {seconds:.1} s, ncu {}", ncu.trim_start_matches("Version ")));
    }
    if log.contains("ERR_NVGPUCTRPERM") {
        let advice = "let users who are not root read the counters, as the line of the GPU counters says";
        return Finding::failed(WHAT, "ERR_NVGPUCTRPERM: ncu may not read the GPU's counters", advice);
    }
    let complaint = log.lines().rfind(|line| line.starts_with("==ERROR==") || line.contains(": error "));
    let last = |text: &str| text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
    let found = match ended.how {
        How::TimedOut => "it did not end within its limit".to_owned(),
        _ => outcome
            .error
            .clone()
            .or_else(|| complaint.map(str::to_owned))
            .or_else(|| last(log))
            .or_else(|| last(&ended.log_tail))
            .unwrap_or_else(|| "no report, and not a word why".to_owned()),
    };
    Finding::failed(WHAT, found, "run ncu in a container of this image by hand, as docs/gpu-host.md shows")
}

fn landlock(config: &WorkerConfig, outcome: &Outcome) -> Finding {
    match outcome.landlock {
        LandlockState::Full => Finding::ok(LANDLOCK, "everything that is asked for is enforced"),
        LandlockState::Partial => {
            Finding::warning(LANDLOCK, "a part is enforced", "a kernel of 6.12 or later enforces all of it")
        }
        LandlockState::Unavailable => Finding::warning(
            LANDLOCK,
            "the kernel has none",
            "the container's other restrictions hold; a kernel of 6.12 or later with Landlock adds these",
        ),
        LandlockState::Off if !config.limits.landlock => {
            Finding::warning(LANDLOCK, "switched off", "remove NCU_SERVICE_LANDLOCK=0 unless it is meant")
        }
        LandlockState::Off => Finding::skipped(LANDLOCK, "the tiny capture did not get that far"),
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use ncu_runner::protocol::Step;

    use super::*;
    use crate::doctor::Status;

    fn judged(exit_code: i32, has_report: bool, log: &str) -> Finding {
        let now = Utc::now();
        let how = How::Exited { code: 0, oom_killed: false };
        let ended = Ended { how, started_at: now, ended_at: now, log_tail: String::new() };
        let step = Step {
            name: protocol::CAPTURE_STEP.to_owned(),
            argv: Vec::new(),
            exit_code: Some(exit_code),
            signal: None,
            timed_out: false,
            seconds: 2.0,
        };
        verdict(&ended, &Outcome { steps: vec![step], ..Outcome::default() }, has_report, log)
    }

    #[test]
    fn a_capture_counts_only_with_a_report() {
        assert_eq!(judged(0, true, "").status, Status::Ok);
        assert_eq!(judged(0, false, "==WARNING== No kernels were profiled.\n").status, Status::Failed);
        assert_eq!(judged(1, true, "").status, Status::Failed);
    }

    #[test]
    fn a_failure_says_why_in_one_line() {
        let log = "cuInit: error 304: OS call failed\nsomething else\n";
        assert_eq!(judged(1, false, log).found, "cuInit: error 304: OS call failed");
        let log = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n";
        assert!(judged(1, false, log).advice.unwrap().contains("counters"));
        assert_eq!(judged(1, false, "Traceback\nImportError: x\n\n").found, "ImportError: x");
    }
}
