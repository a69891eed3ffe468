//! What a capture leaves behind.

use std::fs;
use std::time::{Duration, Instant};

use ncu_runner::protocol::{Progress, Stuck};
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
    let progress: Progress = serde_json::from_str(&bench.out("progress.json")).unwrap();
    assert_eq!((progress.step.as_str(), progress.launches_at_most.is_some()), ("capture", true));
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
fn a_submission_that_hangs_without_the_profiler_is_not_run_again_under_it() {
    let mut bench =
        Bench::new("import time\ndef custom_kernel(data):\n    print('begun', flush=True)\n    time.sleep(999)\n");
    bench.capture.warmup_timeout_secs = 5;
    let ran = bench.run();
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!(ran.exits(), [("overview", None)], "one limit, not two");
    assert!(ran.outcome.steps[0].timed_out && ran.outcome.stuck == Some(Stuck::InRange), "{ran:?}");
    assert!(bench.out("stdout.txt").ends_with("\nbegun\n"));
}

#[test]
fn a_hang_before_the_range_leaves_the_capture_its_try() {
    // Slow where it is not profiled, as a compiler is the first time.
    let submission =
        format!("import os, time\nif 'NCU_SERVICE_LAUNCHES_DIR' in os.environ: time.sleep(999)\n{STARTER}");
    let mut bench = Bench::new(&submission);
    bench.capture.warmup_timeout_secs = 2;
    let ran = bench.run();
    assert_eq!(ran.exits(), [("overview", None), ("capture", Some(0))], "{ran:?}");
    assert_eq!(ran.outcome.stuck, None);
}

#[test]
fn a_process_that_ends_in_the_range_is_told_and_leaves_the_capture_its_try() {
    // The evaluator waits for its answer for ever, with and without the profiler.
    for end in ["sys.exit(3)", "os.kill(os.getpid(), 11)"] {
        let mut bench = Bench::new(&format!("import os, sys\ndef custom_kernel(data): {end}\n"));
        (bench.capture.warmup_timeout_secs, bench.capture.capture_timeout_secs) = (5, 2);
        let ran = bench.run();
        assert_eq!(ran.exits(), [("overview", None), ("capture", None)], "{ran:?}");
        assert_eq!(ran.outcome.stuck, Some(Stuck::Died), "{end}");
        assert_eq!(bench.out("stderr.txt").contains("Fatal Python error: Segmentation fault"), end.contains("11"));
    }
}

#[test]
fn a_forged_state_of_the_range_spoils_its_authors_own_result_only() {
    let forge = |range: &str| {
        format!(
            "import os, time\nfolder = os.environ.get('NCU_SERVICE_LAUNCHES_DIR')\nif folder:\n    \
             open(folder + '/1', 'w').write(f'launches 2\\nprocess {{os.getpid()}}\\nlost 0\\nrange {range}\\nend\\n')\n    \
             time.sleep(999)\n{STARTER}"
        )
    };
    for (range, stuck) in [("1 0", Some(Stuck::InRange)), ("1 1", None), ("0 1", None), ("4294967296 0", None)] {
        let mut bench = Bench::new(&forge(range));
        bench.capture.warmup_timeout_secs = 4;
        assert_eq!(bench.run().outcome.stuck, stuck, "{range}");
    }
}

#[test]
fn a_lock_file_of_ncu_that_is_somebody_elses_does_not_matter() {
    // One that the image brings, and one that the submission makes before the capture.
    let submission = format!(
        "import os, tempfile\nif 'NCU_SERVICE_LAUNCHES_DIR' in os.environ:\n    \
         os.mkdir(os.path.join(tempfile.gettempdir(), 'nsight-compute-lock'))\n{STARTER}"
    );
    let bench = Bench::new(&submission);
    fs::create_dir(bench.path("tmp/nsight-compute-lock")).unwrap();
    let ran = bench.run();
    assert_eq!(ran.exits(), [("overview", Some(0)), ("capture", Some(0))], "{}", bench.out("stdout.txt"));
}

#[test]
fn a_child_of_the_submissions_own_is_profiled_where_it_opens_the_range() {
    let parent = r#"
import os, subprocess, sys
CHILD = """
import contextlib, sys, standin_gpu as gpu
with gpu.nvtx_range('custom_kernel') if sys.argv[1] == 'ranged' else contextlib.nullcontext():
    gpu.launch('void of_a_child(int)', 1, 32, lambda: None)
"""
def custom_kernel(data):
    subprocess.run([sys.executable, '-c', CHILD, 'KIND'], check=True)
    return [x + y for x, y in zip(*data)]
"#;
    let said = |kind: &str| {
        let bench = Bench::new(&parent.replace("KIND", kind));
        let ran = bench.run();
        assert_eq!(ran.exits(), [("overview", Some(0)), ("capture", Some(0))], "{}", bench.out("stderr.txt"));
        bench.out("stdout.txt")
    };
    let (ranged, plain) = (said("ranged"), said("plain"));
    assert!(ranged.contains("==PROF== Profiling \"of_a_child\""), "{ranged}");
    assert!(plain.contains("No kernels were profiled"), "{plain}");
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
