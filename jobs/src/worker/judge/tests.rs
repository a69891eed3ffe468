//! Verdicts, from what the profiler and the evaluator print.

use super::*;

fn step(exit_code: i32) -> Step {
    Step {
        name: protocol::CAPTURE_STEP.to_owned(),
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
    assert!(sentence.starts_with("The capture did not end within 600 s") && sentence.contains("last: step 2  [31mxxx"));
    assert!(sentence.chars().count() < 600 && !sentence.contains(char::is_control), "{sentence}");
    // The run before it has its say where the profiler left nothing.
    let (_, _, sentence) = ended(judged(Some(&outcome(late)), "==PROF== Connected to process 7\n"));
    assert!(sentence.ends_with("It printed last: OSError: earlier"), "{sentence}");
}

fn overview_alone(stuck: Option<Stuck>) -> Outcome {
    let overview = Step { name: protocol::OVERVIEW_STEP.to_owned(), timed_out: true, exit_code: None, ..step(0) };
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
    assert_eq!(ended(judge(&evidence(""))).2, "The submission failed: The application terminated by signal SIGSEGV.");
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
fn a_container_that_its_submission_spoiled_is_the_submissions_own() {
    let spoiled =
        Outcome { spoiled: Some("copying eval.py: No space left on device".to_owned()), ..Outcome::default() };
    let (state, kind, sentence) = ended(judged(Some(&spoiled), ""));
    assert_eq!((state, kind), (State::Failed, ErrorKind::Submission));
    assert!(sentence.contains("No space left on device): remove what it leaves in /tmp"), "{sentence}");
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
    assert!(matches!(judged_after(How::DiskFull, None, ""), Judgement::Fault(_)));
    for code in [70, 137] {
        let ended = How::Exited { code, oom_killed: false };
        assert!(matches!(judged_after(ended, None, ""), Judgement::Fault(_)), "{code}");
    }
    let spec = "==ERROR== The application returned an error code (113).";
    assert_eq!(ended(judged(Some(&outcome(step(1))), spec)).1, ErrorKind::ServiceFault);
}
