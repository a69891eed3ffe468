//! What a capture's container came to: a profile, somebody's fault with a sentence, or a fault of ours.
//!
//! Everything read here was written next to a stranger's code. A forged line can spoil its author's own result; it can
//! make neither a profile out of nothing nor our fault out of theirs for more than the job's attempts.

use ncu_runner::protocol::{self, Outcome, Step, Stuck};

use super::complaint::{self, submission_error};
use crate::queue::{ErrorKind, State};
use crate::sandbox::{ContainerLimits, How};

/// What is known once a capture's container is gone.
#[derive(Debug)]
pub struct Evidence {
    /// How the container ended.
    pub how: How,
    /// What it was allowed.
    pub limits: ContainerLimits,
    /// The time limit of the overview before the capture, in seconds.
    pub overview_limit_secs: u64,
    /// The time limit of the capture, in seconds.
    pub capture_limit_secs: u64,
    /// The runner's account; `None` when there is none that can be read.
    pub outcome: Option<Outcome>,
    /// What the capture's own step printed, as far as it was kept.
    pub output: String,
    /// What was printed before it.
    pub earlier_output: String,
    /// What the evaluator wrote to `POPCORN_FD`.
    pub popcorn_log: String,
    /// The kernel name filter of the capture.
    pub kernel_name: Option<String>,
}

/// What a capture came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// There may be a profile: export it. The error says why it is not one of a correct answer.
    Captured {
        /// Exit code of the evaluator.
        exit_code: i32,
        /// What its author should know beside the profile.
        error: Option<(ErrorKind, String)>,
    },
    /// There is none, and trying again would not change that.
    Ended {
        /// The run's final state.
        state: State,
        /// Exit code of the evaluator, or of `ncu` where that is all there is.
        exit_code: Option<i32>,
        /// Whose fault it is, and the sentence.
        error: (ErrorKind, String),
    },
    /// Ours: the operator's text. The job is tried again.
    Fault(String),
}

/// Exit code of an evaluator that found the answer wrong.
const WRONG_ANSWER: i32 = 112;
/// Exit code of an evaluator that could not read the shape.
const BAD_SPEC: i32 = 113;
/// Exit code of the runner for trouble of its own.
const RUNNER_TROUBLE: i64 = 70;
/// Exit code of a container whose process 1 got a SIGKILL.
const KILLED: i64 = 137;

/// What `ncu` prints when the host is not set up for it, and what the operator does about it.
const HOST_TROUBLE: [(&str, &str); 4] = [
    (
        "ERR_NVGPUCTRPERM",
        "GPU counters are for administrators only: set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module",
    ),
    ("driver resource was unavailable", "another profiler or monitor (DCGM?) holds the GPU's counters"),
    ("InterprocessLockFailed", "ncu's lock file belongs to another user"),
    ("Failed to initialize the profiler", "ncu could not start its profiler on this GPU"),
];

/// Judges a capture.
#[must_use]
pub fn judge(evidence: &Evidence) -> Judgement {
    let (code, oom_killed) = match evidence.how {
        How::Exited { code, oom_killed } => (code, oom_killed),
        How::OutputLimit => {
            let limit = evidence.limits.output_bytes >> 20;
            let sentence = format!(
                "The capture hit the output limit of {limit} MiB; profile fewer launches, and write nothing to /out."
            );
            return failed(ErrorKind::Limit, None, sentence);
        }
        // Whoever filled it: a submission that did costs its job its attempts.
        How::DiskFull => return Judgement::Fault("the disk of the jobs folder is nearly full".to_owned()),
        How::TimedOut => return timed_out(evidence, None, slow_capture(evidence.capture_limit_secs)),
        How::Cancelled => return Judgement::Fault("a cancelled capture has nothing to judge".to_owned()),
    };
    let Some(outcome) = &evidence.outcome else {
        return match code {
            _ if oom_killed => memory_limit(evidence, None),
            RUNNER_TROUBLE => Judgement::Fault("the runner left no outcome".to_owned()),
            // Nothing in a container can kill its process 1.
            KILLED => {
                Judgement::Fault("the container was killed from outside, as by a restart of its engine".to_owned())
            }
            code => failed(
                ErrorKind::Submission,
                i32::try_from(code).ok(),
                format!("The profiler was ended from inside the container (exit code {code})."),
            ),
        };
    };
    if let Some(trouble) = &outcome.error {
        return Judgement::Fault(format!("runner: {trouble}"));
    }
    if let Some(spoiled) = &outcome.spoiled {
        let sentence = format!(
            "The capture could not begin after the submission's first run ({spoiled}): remove what it leaves in /tmp and /out."
        );
        return failed(ErrorKind::Submission, None, with_last_words(evidence, sentence));
    }
    let oom_killed = oom_killed || outcome.oom_kills > 0;
    let Some(capture) = outcome.steps.iter().find(|step| step.name == protocol::CAPTURE_STEP) else {
        return match outcome.stuck {
            Some(Stuck::InRange) if oom_killed => memory_limit(evidence, None),
            Some(Stuck::InRange) => timed_out(evidence, None, endless(evidence.overview_limit_secs)),
            _ => Judgement::Fault("the runner did not capture".to_owned()),
        };
    };
    match capture {
        // An evaluator whose child was killed for its memory waits for it for ever, so this comes first.
        Step { timed_out: true, .. } if oom_killed => memory_limit(evidence, capture.exit_code),
        Step { timed_out: true, .. } if outcome.stuck == Some(Stuck::Died) => died(evidence, capture.exit_code),
        Step { timed_out: true, .. } => {
            timed_out(evidence, capture.exit_code, slow_capture(evidence.capture_limit_secs))
        }
        _ => of_capture(evidence, capture, oom_killed),
    }
}

/// Judges a capture whose profiler ended by itself.
fn of_capture(evidence: &Evidence, capture: &Step, oom_killed: bool) -> Judgement {
    let output = &evidence.output;
    // Whether it failed is the runner's word; only which code it was is ncu's, since a submission can print that too.
    let code = match capture.exit_code {
        Some(0) => Some(0),
        Some(_) => application_error(output).filter(|&code| code != 0),
        None => None,
    };
    match code {
        Some(code @ (0 | WRONG_ANSWER)) if nothing_profiled(output) => {
            failed(ErrorKind::EmptyCapture, Some(code), no_kernel(evidence.kernel_name.as_deref()))
        }
        Some(code @ (0 | WRONG_ANSWER)) => Judgement::Captured {
            exit_code: code,
            error: (code == WRONG_ANSWER).then(|| {
                let why = complaint::evaluator_error(&evidence.popcorn_log);
                (ErrorKind::WrongAnswer, format!("The evaluator found the answer wrong: {why}"))
            }),
        },
        code if oom_killed => memory_limit(evidence, code.or(capture.exit_code)),
        // Trying again would not change it.
        Some(code @ BAD_SPEC) => failed(
            ErrorKind::ServiceFault,
            Some(code),
            "The problem's evaluator cannot read this shape; tell the operator.".to_owned(),
        ),
        code => match HOST_TROUBLE.iter().find(|(needle, _)| output.contains(needle)) {
            Some((found, advice)) => Judgement::Fault(format!("{found}: {advice}")),
            None => failed(ErrorKind::Submission, code.or(capture.exit_code), crash(evidence, capture)),
        },
    }
}

/// The sentence for a capture that holds nothing.
#[must_use]
pub fn no_kernel(kernel_name: Option<&str>) -> String {
    if let Some(name) = kernel_name {
        let name = complaint::quoted(name);
        format!("No kernel was captured: the name filter {name:?} matches none of the launches in custom_kernel.")
    } else {
        "No kernel was captured: custom_kernel launched none on the GPU. Launches of another thread or process count when that \
         opens an NVTX range named custom_kernel too."
            .to_owned()
    }
}

fn failed(kind: ErrorKind, exit_code: Option<i32>, sentence: String) -> Judgement {
    Judgement::Ended { state: State::Failed, exit_code, error: (kind, sentence) }
}

fn memory_limit(evidence: &Evidence, exit_code: Option<i32>) -> Judgement {
    let limit = evidence.limits.memory_bytes >> 20;
    let sentence = format!(
        "The submission hit the container's memory limit of {limit} MiB of host memory, in which ncu also saves device \
         memory between passes; profile a smaller shape or fewer kernels."
    );
    failed(ErrorKind::Limit, exit_code, sentence)
}

/// A time limit, with the last that was printed: it may tell how far the submission came.
fn timed_out(evidence: &Evidence, exit_code: Option<i32>, sentence: String) -> Judgement {
    let sentence = with_last_words(evidence, sentence);
    Judgement::Ended { state: State::TimedOut, exit_code, error: (ErrorKind::Timeout, sentence) }
}

fn slow_capture(limit_secs: u64) -> String {
    format!(
        "The capture did not end within {limit_secs} s; ncu runs kernels one at a time and replays each, so kernels that wait for \
         one another never end, and many launches take long: try a kernel name filter or fewer launches."
    )
}

/// Not the profiler is to blame, which had not begun.
fn endless(limit_secs: u64) -> String {
    format!(
        "custom_kernel did not return within {limit_secs} s, and that without the profiler: look for a loop or a kernel that \
         never ends, and build extensions while the file is imported."
    )
}

/// The evaluator waits for ever for the answer of a process that is gone.
fn died(evidence: &Evidence, exit_code: Option<i32>) -> Judgement {
    let sentence =
        "The submission's process ended before custom_kernel returned: it crashed (a fault in native code, say) or exited."
            .to_owned();
    failed(ErrorKind::Submission, exit_code, with_last_words(evidence, sentence))
}

fn with_last_words(evidence: &Evidence, sentence: String) -> String {
    let words = complaint::last_words(&evidence.output).or_else(|| complaint::last_words(&evidence.earlier_output));
    match words {
        Some(words) => format!("{sentence} It printed last: {words}"),
        None => sentence,
    }
}

fn crash(evidence: &Evidence, capture: &Step) -> String {
    // A kernel that faults leaves the capture speechless, and the run without the profiler has explained it.
    let why = submission_error(&evidence.output)
        .or_else(|| submission_error(&evidence.earlier_output))
        .or_else(|| complaint::profiler_error(&evidence.output));
    let why = why.as_deref().unwrap_or("it printed nothing");
    match capture.signal {
        Some(signal) => format!("The profiler was ended by signal {signal}: {why}"),
        None => format!("The submission failed: {why}"),
    }
}

/// The exit code of the profiled program, from `ncu`'s own line about it.
fn application_error(output: &str) -> Option<i32> {
    const BEFORE: &str = "The application returned an error code (";
    let at = output.rfind(BEFORE)? + BEFORE.len();
    output[at..].split(')').next()?.parse().ok()
}

fn nothing_profiled(output: &str) -> bool {
    output.contains("No kernels were profiled")
}

#[cfg(test)]
mod tests;
