//! What a capture leaves behind.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, STARTER};

#[test]
fn a_good_submission_leaves_a_report_and_the_evaluators_log() {
    let bench = Bench::new(STARTER);
    let ran = bench.run();

    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!(ran.outcome.error, None);
    assert_eq!(ran.exits(), [("overview", Some(0)), ("capture", Some(0))]);
    assert!(ran.outcome.ncu_version.unwrap().contains("simulated"));
    assert!(ran.outcome.versions["python"].starts_with("3."));
    assert!(fs::read(bench.path("out/profile/profile.ncu-rep")).unwrap().starts_with(b"NVR\0"));
    assert_eq!(
        bench.out("popcorn.log"),
        "benchmark-count: 1\nbenchmark.0.spec: size: 1024; seed: 31232\ncheck: pass\n"
    );
}

#[test]
fn a_wrong_answer_is_told_by_the_evaluators_exit_code_and_log() {
    let bench = Bench::new(&STARTER.replace("return out", "return out[1:]"));
    let ran = bench.run();
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!(ran.exits()[1], ("capture", Some(112)));
    assert!(bench.out("popcorn.log").contains("benchmark.0.error: 1024 values are expected, not 1023\n"));
}

#[test]
fn an_endless_submission_that_ignores_signals_ends_at_the_limit() {
    let mut bench = Bench::new("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass\n");
    (bench.capture.warmup_timeout_secs, bench.capture.capture_timeout_secs) = (1, 2);
    let ran = bench.run();
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    for step in &ran.outcome.steps {
        assert!(step.timed_out && step.exit_code.is_none() && step.signal == Some(9), "{step:?}");
        assert!(step.seconds < 10.0, "{step:?}");
    }
}

#[test]
fn a_grandchild_that_keeps_the_streams_open_does_not_hold_up_the_end() {
    let submission = "import subprocess\n\
        child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n\
        print('child', child.pid, flush=True)\n\
        def custom_kernel(data): return []\n";
    let bench = Bench::new(submission);
    let started = Instant::now();
    bench.run();
    assert!(started.elapsed() < Duration::from_mins(1));

    // Outside a PID namespace the grandchildren live on: they left the step's process group.
    let stdout = bench.out("stdout.txt");
    let children: Vec<i32> = stdout.lines().filter_map(|line| line.strip_prefix("child ")?.parse().ok()).collect();
    assert!(!children.is_empty(), "{stdout}");
    for child in children {
        kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    }
}

#[test]
fn streams_are_cut_in_the_middle_and_say_so() {
    let mut bench = Bench::new("import os\nos.write(1, b'first\\n')\nfor _ in range(64): os.write(1, b'x' * 65536)\n");
    bench.capture.max_stream_bytes = 4096;
    let ran = bench.run();

    let stats = ran.stream("stdout.txt");
    assert!(stats.bytes_seen > 64 * 65536, "{stats:?}");
    assert_eq!(stats.bytes_kept, 4096);
    let stdout = bench.out("stdout.txt");
    assert!(
        stdout.starts_with("---- ncu-runner: overview: python3 eval.py profile cases.txt ----\nfirst\n"),
        "{stdout}"
    );
    let cut = format!("\n---- ncu-runner: {} bytes are left out here ----\n", stats.bytes_seen - stats.bytes_kept);
    assert!(stdout.contains(&cut), "{stdout}");
    assert!(stdout.ends_with("==WARNING== No kernels were profiled.\n"), "{stdout}");
}

#[test]
fn the_evaluators_log_is_drained_however_much_it_writes() {
    let mut bench = Bench::new(STARTER);
    bench.capture.max_stream_bytes = 4096;
    fs::write(
        bench.path("problems/eval.py"),
        "import os\nos.write(int(os.environ['POPCORN_FD']), b'k: v\\n' * 1000000)\n",
    )
    .unwrap();
    let ran = bench.run();
    assert_eq!(ran.exits()[1], ("capture", Some(0)), "{ran:?}");
    assert_eq!(ran.stream("popcorn.log").bytes_seen, 5_000_000);
    assert_eq!(ran.stream("popcorn.log").bytes_kept, 4096);
}

#[test]
fn steps_see_a_clean_environment() {
    let bench = Bench::new(
        "import os\nprint(*sorted(os.environ), flush=True)\nprint(os.environ['HOME'], os.getcwd(), flush=True)\n",
    );
    let mut command = bench.command(&[]);
    command.env("POPCORN_SEED", "7").env("AWS_SECRET_ACCESS_KEY", "secret").env("PYTHONPATH", "/nowhere");
    bench.run_with(&mut command);

    let stdout = bench.out("stdout.txt");
    for name in ["POPCORN_SEED", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH"] {
        assert!(!stdout.contains(name), "{stdout}");
    }
    assert!(stdout.contains("POPCORN_FD POPCORN_NCU"), "{stdout}");
    assert_eq!(stdout.matches("NCU_SERVICE_LAUNCHES_DIR").count(), 1, "only the overview has it: {stdout}");
    let places = format!("\n{0}/home {0}/work\n", bench.path("tmp").display());
    assert!(stdout.contains(&places), "{stdout}");
}
