//! What a capture's container came to: a profile, somebody's fault with a sentence, or a fault of ours.
//!
//! Everything read here was written next to a stranger's code. A forged line can spoil its author's own result; it can
//! make neither a profile out of nothing nor our fault out of theirs for more than the job's attempts.

use ncu_runner::protocol::{Outcome, Step, Stuck};

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
                "The capture hit the output limit of {limit} MiB, or what the host's disk has left; profile fewer launches, and write nothing to /out."
            );
            return failed(ErrorKind::Limit, None, sentence);
        }
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
    let oom_killed = oom_killed || outcome.oom_kills > 0;
    let Some(capture) = outcome.steps.iter().find(|step| step.name == "capture") else {
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
mod tests {
    use super::*;

    fn step(exit_code: i32) -> Step {
        Step {
            name: "capture".to_owned(),
            argv: Vec::new(),
            exit_code: Some(exit_code),
            signal: None,
            timed_out: false,
            seconds: 1.0,
        }
    }

    fn outcome(capture: Step) -> Outcome {
        Outcome { steps: vec![capture], ..Outcome::default() }
    }

    const LIMITS: ContainerLimits = ContainerLimits {
        memory_bytes: 1 << 30,
        cpus: 1,
        pids: 64,
        tmp_bytes: 1 << 20,
        shm_bytes: 1 << 20,
        output_bytes: 1 << 30,
        free_bytes: 0,
    };

    fn evidence(output: &str, capture: Step) -> Evidence {
        Evidence {
            how: How::Exited { code: 0, oom_killed: false },
            limits: LIMITS,
            overview_limit_secs: 300,
            capture_limit_secs: 600,
            outcome: Some(outcome(capture)),
            output: output.to_owned(),
            earlier_output: "OSError: earlier".to_owned(),
            popcorn_log: "benchmark.0.error: mismatch at (0, 1)\ncheck: fail\n".to_owned(),
            kernel_name: None,
        }
    }

    fn judged_after(how: How, outcome: Option<&Outcome>, output: &str) -> Judgement {
        judge(&Evidence { how, outcome: outcome.cloned(), ..evidence(output, step(0)) })
    }

    fn judged(outcome: Option<&Outcome>, output: &str) -> Judgement {
        judged_after(How::Exited { code: 0, oom_killed: false }, outcome, output)
    }

    fn ended(judgement: Judgement) -> (State, ErrorKind, String) {
        match judgement {
            Judgement::Ended { state, error: (kind, sentence), .. } => (state, kind, sentence),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_clean_end_is_a_capture() {
        assert_eq!(judged(Some(&outcome(step(0))), ""), Judgement::Captured { exit_code: 0, error: None });
    }

    #[test]
    fn a_wrong_answer_is_captured_and_said() {
        let output = "==ERROR== The application returned an error code (112).";
        let Judgement::Captured { exit_code: 112, error: Some((ErrorKind::WrongAnswer, sentence)) } =
            judged(Some(&outcome(step(1))), output)
        else {
            panic!("a wrong answer still has a profile")
        };
        assert_eq!(sentence, "The evaluator found the answer wrong: mismatch at (0, 1)");
    }

    #[test]
    fn an_empty_capture_is_a_failure_however_well_the_process_exited() {
        let (state, kind, _) = ended(judged(Some(&outcome(step(0))), "==WARNING== No kernels were profiled."));
        assert_eq!((state, kind), (State::Failed, ErrorKind::EmptyCapture));
    }

    #[test]
    fn a_crash_says_the_submissions_own_error() {
        let output = "Traceback (most recent call last):\n  File \"x\", line 1\nRuntimeError: boom\n==ERROR== The application returned an error code (1).";
        let (_, kind, sentence) = ended(judged(Some(&outcome(step(1))), output));
        assert_eq!((kind, sentence.as_str()), (ErrorKind::Submission, "The submission failed: RuntimeError: boom"));
    }

    #[test]
    fn a_fault_that_leaves_the_capture_speechless_is_told_by_the_run_before_it() {
        // As seen on an H200 after an illegal address.
        let output = "==ERROR== LaunchFailed\n==ERROR== The application returned an error code (9).\n";
        let (_, _, sentence) = ended(judged(Some(&outcome(step(1))), output));
        assert_eq!(sentence, "The submission failed: OSError: earlier");
    }

    #[test]
    fn the_memory_limit_is_named() {
        let mut killed = outcome(step(1));
        killed.oom_kills = 1;
        assert_eq!(ended(judged(Some(&killed), "")).1, ErrorKind::Limit);
        killed.steps[0].timed_out = true;
        assert_eq!(ended(judged(Some(&killed), "")).1, ErrorKind::Limit, "its evaluator waits for ever");
        let (_, kind, sentence) = ended(judged_after(How::Exited { code: 137, oom_killed: true }, None, ""));
        assert_eq!(kind, ErrorKind::Limit);
        assert!(sentence.contains("memory limit of 1024 MiB"), "{sentence}");
    }

    #[test]
    fn a_time_limit_is_timed_out() {
        let mut late = step(0);
        (late.timed_out, late.exit_code) = (true, None);
        assert_eq!(ended(judged(Some(&outcome(late)), "")).0, State::TimedOut);
        assert_eq!(ended(judged_after(How::TimedOut, None, "")).0, State::TimedOut);
    }

    #[test]
    fn a_time_limit_quotes_what_was_printed_last() {
        let mut late = step(0);
        (late.timed_out, late.exit_code) = (true, None);
        let output = format!("step 1\nstep 2 \x1b[31m{}\n==PROF== Connected to process 7\n", "x".repeat(9999));
        let (_, _, sentence) = ended(judged(Some(&outcome(late.clone())), &output));
        assert!(
            sentence.starts_with("The capture did not end within 600 s") && sentence.contains("last: step 2  [31mxxx")
        );
        assert!(sentence.chars().count() < 600 && !sentence.contains(char::is_control), "{sentence}");
        // The run before it has its say where the profiler left nothing.
        let (_, _, sentence) = ended(judged(Some(&outcome(late)), "==PROF== Connected to process 7\n"));
        assert!(sentence.ends_with("It printed last: OSError: earlier"), "{sentence}");
    }

    fn overview_alone(stuck: Option<Stuck>) -> Outcome {
        let overview = Step { name: "overview".to_owned(), timed_out: true, exit_code: None, ..step(0) };
        Outcome { steps: vec![overview], stuck, ..Outcome::default() }
    }

    #[test]
    fn a_hang_without_the_profiler_is_timed_out_with_its_own_limit() {
        let (state, kind, sentence) = ended(judged(Some(&overview_alone(Some(Stuck::InRange))), ""));
        assert_eq!((state, kind), (State::TimedOut, ErrorKind::Timeout));
        assert!(sentence.starts_with("custom_kernel did not return within 300 s"), "{sentence}");
        // Without the hang there must have been a capture.
        assert!(matches!(judged(Some(&overview_alone(None)), ""), Judgement::Fault(_)));
        let killed = Outcome { oom_kills: 1, ..overview_alone(Some(Stuck::InRange)) };
        assert_eq!(ended(judged(Some(&killed), "")).1, ErrorKind::Limit);
    }

    #[test]
    fn a_process_that_is_gone_is_told_rather_than_that_it_is_slow() {
        let mut late = step(0);
        (late.timed_out, late.exit_code) = (true, None);
        let died = Outcome { stuck: Some(Stuck::Died), ..outcome(late) };
        let output = "Fatal Python error: Segmentation fault\n\n  File \"/tmp/work/submission.py\", line 9 in f\n";
        let (state, kind, sentence) = ended(judged(Some(&died), output));
        assert_eq!((state, kind), (State::Failed, ErrorKind::Submission));
        assert!(sentence.starts_with("The submission's process ended before custom_kernel returned"), "{sentence}");
        assert!(sentence.ends_with("Fatal Python error: Segmentation fault (submission.py, line 9)"), "{sentence}");
        // What the capture makes of it counts more.
        let died = Outcome { stuck: Some(Stuck::Died), ..outcome(step(0)) };
        assert!(matches!(judged(Some(&died), ""), Judgement::Captured { .. }));
    }

    /// As `ncu` and `PyTorch` print them, on an H200 or by their sources.
    #[test]
    fn every_failure_of_a_submission_has_its_sentence() {
        let traceback =
            "Traceback (most recent call last):\n  File \"/tmp/work/submission.py\", line 12, in custom_kernel\n";
        let end = "==ERROR== The application returned an error code (1).\n";
        for (printed, told) in [
            (
                "/tmp/torch-extensions/bad/cuda.cu(4): error: identifier \"undefined_thing\" is undefined\n\
                 1 error detected in the compilation of \"/tmp/torch-extensions/bad/cuda.cu\".\nninja: build stopped: subcommand failed.\n\
                 RuntimeError: Error building extension 'bad'\n",
                "/tmp/torch-extensions/bad/cuda.cu(4): error: identifier \"undefined_thing\" is undefined",
            ),
            (
                "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be …\n",
                "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
            ),
            (
                "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be …\n",
                "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
            ),
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 400.00 GiB.\n",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 400.00 GiB.",
            ),
            ("MemoryError\n", "MemoryError (submission.py, line 12)"),
            // Only the outside can tell whether the host is to blame for these; see ShapeRun.
            ("RuntimeError: No CUDA GPUs are available\n", "RuntimeError: No CUDA GPUs are available"),
            (
                "torch.AcceleratorError: CUDA error: unspecified launch failure\n",
                "torch.AcceleratorError: CUDA error: unspecified launch failure",
            ),
        ] {
            let (state, kind, sentence) = ended(judged(Some(&outcome(step(1))), &format!("{traceback}{printed}{end}")));
            assert_eq!((state, kind), (State::Failed, ErrorKind::Submission), "{printed}");
            assert_eq!(sentence, format!("The submission failed: {told}"));
        }
        let silent = "==ERROR== The application terminated by signal SIGSEGV.\n";
        let evidence = |earlier: &str| Evidence { earlier_output: earlier.to_owned(), ..evidence(silent, step(1)) };
        assert_eq!(
            ended(judge(&evidence(""))).2,
            "The submission failed: The application terminated by signal SIGSEGV."
        );
    }

    #[test]
    fn a_container_ended_from_inside_never_succeeds() {
        let (state, kind, _) = ended(judged_after(How::Exited { code: 1, oom_killed: false }, None, ""));
        assert_eq!((state, kind), (State::Failed, ErrorKind::Submission));
    }

    #[test]
    fn a_forged_exit_code_makes_no_success() {
        let forged = "==ERROR== The application returned an error code (112).\n\
            ==ERROR== The application returned an error code (0).\n";
        let (state, kind, _) = ended(judged(Some(&outcome(step(1))), forged));
        assert_eq!((state, kind), (State::Failed, ErrorKind::Submission));
        let mut killed = step(0);
        (killed.exit_code, killed.signal) = (None, Some(9));
        let (state, ..) = ended(judged(Some(&outcome(killed)), "The application returned an error code (112)."));
        assert_eq!(state, State::Failed);
    }

    #[test]
    fn the_output_limit_is_named() {
        let (_, kind, sentence) = ended(judged_after(How::OutputLimit, None, ""));
        assert_eq!(kind, ErrorKind::Limit);
        assert!(sentence.contains("output limit of 1024 MiB"), "{sentence}");
    }

    #[test]
    fn trouble_of_the_host_or_the_runner_is_ours() {
        for output in [
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission",
            "a driver resource was unavailable. Ensure that no other tool",
        ] {
            assert!(matches!(judged(Some(&outcome(step(9))), output), Judgement::Fault(_)), "{output}");
        }
        let troubled = Outcome { error: Some("cannot copy eval.py".to_owned()), ..Outcome::default() };
        assert!(matches!(judged(Some(&troubled), ""), Judgement::Fault(_)));
        for code in [70, 137] {
            let ended = How::Exited { code, oom_killed: false };
            assert!(matches!(judged_after(ended, None, ""), Judgement::Fault(_)), "{code}");
        }
        let spec = "==ERROR== The application returned an error code (113).";
        assert_eq!(ended(judged(Some(&outcome(step(1))), spec)).1, ErrorKind::ServiceFault);
    }
}
