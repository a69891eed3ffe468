//! What a submission or a request may not do.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use ncu_runner::protocol::{LandlockState, TaskFile};

use crate::bench::{Bench, STARTER};

#[test]
fn a_name_or_source_outside_its_folder_is_refused_before_anything_runs() {
    for (name, source) in [("../escaped.py", "task.py"), ("escaped.py", "../in/submission.py"), ("a/b", "task.py")] {
        let mut bench = Bench::new(STARTER);
        bench.capture.files.push(TaskFile { name: name.to_owned(), source: Some(source.to_owned()) });
        let ran = bench.run();
        assert_eq!(ran.output.status.code(), Some(70), "{ran:?}");
        assert!(ran.outcome.steps.is_empty());
        let error = ran.outcome.error.unwrap();
        assert!(error.contains(name) || error.contains(source), "{error}");
    }
}

#[test]
fn a_request_that_cannot_be_read_is_the_runners_own_trouble() {
    let bench = Bench::new(STARTER);
    bench.write_request_text(r#"{"task": "mine_bitcoin"}"#);
    let ran = bench.finish(&mut bench.command(&[]));
    assert_eq!(ran.output.status.code(), Some(70), "{ran:?}");
    assert!(ran.outcome.error.unwrap().contains("mine_bitcoin"));
}

#[test]
fn landlock_refuses_writes_elsewhere_and_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let attempts = format!(
        "import functools, socket\n\
         print = functools.partial(print, flush=True)  # the evaluator ends its child by a signal\n\
         for path in ['../../elsewhere', '../../in/x', '../../out/fine', '../fine', '/dev/null']:\n\
         \x20   try: open(path, 'w'); print('wrote', path)\n\
         \x20   except OSError as error: print('refused', path, error.errno)\n\
         try: socket.create_connection(('127.0.0.1', {})); print('connected')\n\
         except OSError as error: print('no connection', error.errno)\n",
        listener.local_addr().unwrap().port()
    );
    let bench = Bench::new(&attempts);
    let ran = bench.run();

    let stdout = bench.out("stdout.txt");
    for line in [
        "refused ../../elsewhere 13",
        "refused ../../in/x 13",
        "wrote ../../out/fine",
        "wrote ../fine",
        "wrote /dev/null",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
    // Kernels before 6.7 know Landlock, and nothing of TCP in it.
    match ran.outcome.landlock {
        LandlockState::Full => assert!(stdout.contains("no connection 13"), "{stdout}"),
        state => assert_eq!(state, LandlockState::Partial),
    }
}

#[test]
fn what_a_warm_up_changes_in_its_folder_is_not_there_in_the_capture() {
    let submission = format!(
        "{STARTER}\n\
         import os\n\
         if os.path.exists('planted'): raise SystemExit('planted by the warm-up')\n\
         for name in ('planted', 'eval.py', 'task.py'): open(name, 'w').write('raise SystemExit(5)')\n\
         os.mkdir(os.environ['HOME'] + '/Documents')\n"
    );
    let bench = Bench::new(&submission);
    let ran = bench.run();
    assert_eq!(ran.exits(), [("overview", Some(0)), ("capture", Some(0))], "{}", bench.out("stderr.txt"));
}

#[test]
fn planted_outputs_give_way_to_the_runners_own() {
    let submission = format!(
        "{STARTER}\n\
         import os\n\
         os.makedirs('../../out/outcome.json/deep')\n\
         os.symlink('/etc/passwd', '../../out/stdout.txt')\n\
         os.mkfifo('../../out/popcorn.log')\n"
    );
    let bench = Bench::new(&submission);
    let ran = bench.run();
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    for name in ["outcome.json", "stdout.txt", "popcorn.log"] {
        assert!(fs::symlink_metadata(bench.path("out").join(name)).unwrap().is_file(), "{name}");
    }
    assert!(bench.out("stdout.txt").starts_with("---- ncu-runner: overview"));
}

#[test]
fn a_table_of_launches_that_the_capture_plants_gives_way_to_the_overviews() {
    let planting = "import os\nif 'NCU_SERVICE_LAUNCHES_DIR' not in os.environ:\n\
        \x20   with open('../../out/launches.csv', 'w') as table: table.write('planted')\n\
        \x20   print('planted', flush=True)\n";
    let bench = Bench::new(&format!("{STARTER}\n{planting}"));
    let ran = bench.run();
    assert_eq!(ran.exits(), [("overview", Some(0)), ("capture", Some(0))], "{}", bench.out("stderr.txt"));
    assert!(bench.out("stdout.txt").contains("planted\n"));
    let table = bench.out("launches.csv");
    assert!(table.starts_with("\"Kernel Name\"") && table.contains("vector_add_kernel"), "{table}");
}

#[test]
fn folders_that_the_submission_closes_keep_the_runner_from_nothing() {
    let closing = "\nimport os\nfor folder in ('../launches', '../../out'):\n\
        \x20   if os.path.exists(folder): os.chmod(folder, 0)\n";
    let bench = Bench::new(&format!("{STARTER}{closing}"));
    // Root would not be kept out.
    let ran = bench.run_with(&mut bench.as_init());
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!((&ran.outcome.error, &ran.outcome.spoiled), (&None, &None));
    // It harms its own run.
    assert_eq!(ran.outcome.steps.len(), 2, "{ran:?}");
    let mode = fs::metadata(bench.path("out")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn what_the_warm_up_spoils_is_told_apart_from_the_runners_own_trouble() {
    // It stands for a full /tmp: what could be copied before the warm-up cannot be copied after it.
    let mut bench = Bench::new(&format!("{STARTER}\nimport os\nos.remove('../../problems/utils.py')\n"));
    bench.capture.landlock = false;
    let ran = bench.run();
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!((ran.exits(), &ran.outcome.error), (vec![("overview", Some(0))], &None));
    assert!(ran.outcome.spoiled.unwrap().contains("utils.py"));
    assert!(bench.out("stdout.txt").starts_with("---- ncu-runner: overview"));
}

#[test]
fn a_report_that_the_warm_up_plants_is_not_the_captures() {
    let planting = "
import os
if 'NCU_SERVICE_LAUNCHES_DIR' in os.environ:
    os.makedirs('../../out/elsewhere', exist_ok=True)
    PLANT
    open('../../out/profile/profile.ncu-rep', 'w').write('planted')
    print('planted', flush=True)
";
    for plant in ["os.makedirs('../../out/profile', exist_ok=True)", "os.symlink('elsewhere', '../../out/profile')"] {
        let bench = Bench::new(&planting.replace("PLANT", plant));
        let ran = bench.run();
        assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
        assert!(bench.out("stdout.txt").contains("planted\n"), "{}", bench.out("stderr.txt"));
        assert_ne!(ran.exits()[1], ("capture", Some(0)));
        let profile = bench.path("out/profile");
        assert!(fs::symlink_metadata(&profile).unwrap().is_dir(), "{plant}");
        assert_eq!(fs::read_dir(&profile).unwrap().count(), 0, "{plant}");
    }
}

#[test]
fn a_forged_marker_does_not_move_the_captures_part() {
    let forging = "
import os, sys
if 'NCU_SERVICE_LAUNCHES_DIR' in os.environ:
    for stream in (sys.stdout, sys.stderr):
        print('x' * FILL, '\\n---- ncu-runner: capture: ncu … python3 ----\\n==ERROR== forged', file=stream, flush=True)
else:
    for stream in (sys.stdout, sys.stderr): print('y' * FILL, 'the real one', file=stream, flush=True)
";
    for fill in [10, 5_000] {
        let mut bench = Bench::new(&format!("{STARTER}\n{}", forging.replace("FILL", &fill.to_string())));
        bench.capture.max_stream_bytes = 4_096;
        let ran = bench.run();
        for name in ["stdout.txt", "stderr.txt"] {
            let content = fs::read(bench.path("out").join(name)).unwrap();
            let offset = usize::try_from(ran.stream(name).capture_offset.unwrap()).unwrap();
            let (before, capture) = content.split_at(offset);
            let (before, capture) = (String::from_utf8_lossy(before), String::from_utf8_lossy(capture));
            assert!(capture.contains("the real one") && !capture.contains("forged"), "{name} {fill}: {capture}");
            assert!(!before.contains("the real one"), "{name} {fill}: {before}");
        }
        assert_eq!(ran.stream("popcorn.log").capture_offset, None);
    }
}

/// A daemon of the submission's that replaces the runner's outputs as fast as it can.
const VANDAL: &str = "
import os
def vandalise(out):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                for name in ('outcome.json', 'stdout.txt', 'popcorn.log'):
                    with open(out + 'forged', 'w') as file: file.write('forged')
                    os.rename(out + 'forged', out + name)
        os._exit(0)
    os.wait()
vandalise('../../out/')
";

#[test]
fn as_pid_1_nothing_of_the_submission_is_alive_when_the_outputs_are_written() {
    let bench = Bench::new(&format!("{STARTER}{VANDAL}"));
    let ran = bench.run_with(&mut bench.as_init());
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    assert_eq!(ran.exits(), [("overview", Some(0)), ("capture", Some(0))]);
    assert!(bench.out("stdout.txt").starts_with("---- ncu-runner: overview"));
    assert!(bench.out("popcorn.log").ends_with("check: pass\n"));
}

#[test]
fn as_pid_1_its_memory_and_environment_are_closed_to_the_submission() {
    let submission = "
for name in ('environ', 'mem', 'fd/1'):
    try: print('opened', open('/proc/1/' + name, 'rb'), flush=True)
    except OSError as error: print('closed', name, flush=True)
";
    let bench = Bench::new(submission);
    let ran = bench.run_with(&mut bench.as_init());
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    let stdout = bench.out("stdout.txt");
    assert!(!stdout.contains("opened"), "{stdout}");
    assert_eq!(stdout.matches("closed").count(), 6, "{stdout}");
}
