//! The stand-in ncu does with its options what the real one does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Launches two kernels in turn inside the range, and one outside it.
const TARGET: &str = "
import sys, standin_gpu as gpu
gpu.launch('void outside()', 1, 1, print, 'ran')
with gpu.nvtx_range('custom_kernel'):
    for name in ['void ns::first<float>(float *)', 'second(int)'] * 2:
        gpu.launch(name, (2, 3), 32, lambda: None)
sys.exit(int(sys.argv[1]))
";

fn ncu(folder: &TempDir, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn command(folder: &TempDir, args: &[&str]) -> Command {
    let dev = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev");
    let mut command = Command::new(dev.join("ncu"));
    command
        .args(args)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PYTHONPATH", &dev)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder);
    command
}

/// Captures with these options, and lists the kernels of the report in order.
fn captured(options: &[&str]) -> Vec<String> {
    captured_of(TARGET, options)
}

fn captured_of(target: &str, options: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut args = options.to_vec();
    args.extend(["-f", "-o", "r.ncu-rep", "python3", "-c", target, "0"]);
    let capture = ncu(&folder, &args);
    assert!(capture.status.success(), "{capture:?}");
    if !folder.path().join("r.ncu-rep").exists() {
        assert!(String::from_utf8_lossy(&capture.stdout).contains("==WARNING== No kernels were profiled.\n"));
        return Vec::new();
    }
    let text = ncu(&folder, &["--import", "r.ncu-rep", "--page", "details"]).stdout;
    let lines = String::from_utf8(text).unwrap();
    lines.lines().filter_map(|line| Some(line.strip_prefix("  ")?.split_once(" (2, 3, 1)x")?.0.to_owned())).collect()
}

#[test]
fn filters_choose_launches_as_the_real_ncu_does() {
    let (first, second) = ("void ns::first<float>(float *)", "second(int)");
    let range = ["--nvtx", "--nvtx-include", "custom_kernel/"];
    let cases: [(&[&str], &[&str]); 10] = [
        (&[], &[first, second, first, second]),
        (&["--launch-count", "3"], &[first, second, first]),
        (&["--launch-skip", "1", "--launch-count", "2"], &[second, first]),
        // Counts the launch outside the range too.
        (&["--launch-skip-before-match", "2"], &[second, first, second]),
        (&["--kernel-name", "first"], &[first, first]),
        (&["--kernel-name", "regex:^sec"], &[second, second]),
        (&["--kernel-name-base", "demangled", "--kernel-name", "second(int)"], &[second, second]),
        (&["--kernel-name-base", "mangled", "--kernel-name", "regex:^(_Z5firstIfEvv)$"], &[first, first]),
        (&["--kernel-id", ":::2"], &[first, second]),
        (&["--kernel-name", "third"], &[]),
    ];
    for (options, expected) in cases {
        assert_eq!(captured(&[&range, options].concat()), expected, "{options:?}");
    }
    assert!(captured(&["--nvtx", "--nvtx-include", "another_range/"]).is_empty());
}

#[test]
fn an_invocation_and_a_launch_size_are_counted_for_each_name_of_the_base() {
    let target = "
import standin_gpu as gpu
with gpu.nvtx_range('custom_kernel'):
    for block in 32, 64:
        for kind in 'float', 'int', 'float':
            gpu.launch(f'void ns::apply<{kind}>({kind} *)', (2, 3), block, lambda: None)
";
    let names =
        |options: &[&str]| captured_of(target, &[&["--nvtx", "--nvtx-include", "custom_kernel/"], options].concat());
    let (float, int) = ("void ns::apply<float>(float *)", "void ns::apply<int>(int *)");
    let mangled = ["--kernel-name-base", "mangled"];
    // To the function's name alone they are one kernel.
    assert_eq!(names(&["--kernel-id", ":::1"]), [float]);
    assert_eq!(names(&[&mangled[..], &["--kernel-id", ":::1"]].concat()), [float, int]);
    let sizes = ["--filter-mode", "per-launch-config", "--launch-count", "1"];
    assert_eq!(names(&sizes), [float, float]);
    assert_eq!(names(&[&mangled[..], &sizes].concat()), [float, int, float, int]);
}

#[test]
fn a_child_process_is_profiled_where_all_processes_are() {
    let folder = tempfile::tempdir().unwrap();
    let parent = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1], '0'])\n";
    let captured = |options: &[&str]| {
        let range = ["--nvtx", "--nvtx-include", "custom_kernel/"];
        let program = ["-f", "-o", "r.ncu-rep", "python3", "-c", parent, TARGET];
        let capture = ncu(&folder, &[&range, options, &program].concat());
        assert!(capture.status.success(), "{capture:?}");
        String::from_utf8(capture.stdout).unwrap().matches("==PROF== Profiling").count()
    };
    assert_eq!(captured(&["--target-processes", "all"]), 4);
    assert_eq!(captured(&["--target-processes", "application-only"]), 0);
    assert_eq!(captured(&[]), 0);
}

#[test]
fn a_lock_file_that_is_somebody_elses_stops_it() {
    let folder = tempfile::tempdir().unwrap();
    // A folder of the name refuses even root.
    std::fs::create_dir(folder.path().join("nsight-compute-lock")).unwrap();
    let capture = command(&folder, &["-f", "-o", "r.ncu-rep", "true"]).env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(capture.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&capture.stdout).starts_with("==ERROR== InterprocessLockFailed"), "{capture:?}");
}

#[test]
fn the_programs_exit_code_is_told_and_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let capture = ncu(&folder, &["--check-exit-code", "yes", "-f", "-o", "r.ncu-rep", "python3", "-c", TARGET, "112"]);
    assert_eq!(capture.status.code(), Some(112));
    assert!(
        String::from_utf8_lossy(&capture.stdout).contains("==ERROR== The application returned an error code (112).\n")
    );
}

#[test]
fn exports_have_the_real_formats_and_say_that_they_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    ncu(&folder, &["-f", "-o", "r.ncu-rep", "python3", "-c", TARGET, "0"]);
    let export = |args: &[&str]| String::from_utf8(ncu(&folder, args).stdout).unwrap();

    let text = export(&["--import", "r.ncu-rep", "--page", "details"]);
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with('[') && head.contains("] python3") && head.ends_with("@127.0.0.1"), "{head}");
    assert_eq!(lines.next(), Some("  void outside() (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC 9.0"));
    assert!(text.contains("    INF   This report is simulated: "));
    assert!(text.contains("\n    Section: GPU Speed Of Light Throughput\n    ----"));
    for line in text.lines().filter(|line| line.starts_with("    OPT") || line.starts_with("          ")) {
        assert_eq!(line.len(), 120, "{line}");
    }

    let csv = export(&["--import", "r.ncu-rep", "--page", "details", "--csv"]);
    assert!(csv.starts_with("\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"thread Domain:Push/Pop_Range:"));
    let duration = csv.lines().find(|line| line.contains("\"Duration\"")).unwrap();
    assert!(duration.ends_with(',') && duration.starts_with("\"0\","), "{duration}");
}

#[test]
fn a_file_that_is_no_report_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("r.ncu-rep");
    std::fs::write(&path, "NVR\0[]").unwrap();
    let export = ncu(&folder, &["--import", "r.ncu-rep", "--page", "details"]);
    assert_eq!(export.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&export.stdout).starts_with("==ERROR== Failed to load report file"));
}
