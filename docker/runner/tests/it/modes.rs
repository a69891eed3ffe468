//! Which launches a report holds, from the overview of a program to the options of `ncu`.

use std::collections::BTreeSet;
use std::fs;

use ncu_runner::protocol::{CaptureMode, Choice, Overview, Stuck};

use crate::bench::{Bench, Ran};

/// Launches 40 small kernels, then a heavy one.
const SET_UP_FIRST: &str = "
import time, standin_gpu as gpu
def custom_kernel(data):
    for index in range(40):
        gpu.launch(f'void set_up_{index}(float *)', 1, 32, lambda: None)
    gpu.launch('void heavy<float>(float *)', 132, 256, time.sleep, 0.2)
    a, b = data
    return [x + y for x, y in zip(a, b)]
";

fn captured(submission: &str, mode: CaptureMode, max_launches: u32) -> (Bench, Ran) {
    let mut bench = Bench::new(submission);
    (bench.capture.selection.mode, bench.capture.selection.max_launches) = (mode, max_launches);
    let ran = bench.run();
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}\n{}", bench.out("stderr.txt"));
    (bench, ran)
}

fn overview(ran: &Ran) -> &Overview {
    ran.outcome.overview.as_ref().unwrap()
}

fn choice(ran: &Ran) -> &Choice {
    ran.outcome.choice.as_ref().unwrap()
}

#[test]
fn a_window_of_set_up_says_how_little_of_the_time_it_covers() {
    let (bench, ran) = captured(SET_UP_FIRST, CaptureMode::Window, 10);
    assert_eq!(bench.kernels(), (0..10).map(|index| format!("set_up_{index}")).collect::<Vec<_>>());
    assert_eq!((overview(&ran).launches, overview(&ran).kernels), (41, 41));
    assert!(choice(&ran).coverage.unwrap() < 0.1, "{ran:?}");
}

#[test]
fn hot_holds_the_heavy_kernel_alone_however_much_set_up_comes_first() {
    let (bench, ran) = captured(SET_UP_FIRST, CaptureMode::Hot, 10);
    assert_eq!(bench.kernels(), ["heavy"]);
    assert!(choice(&ran).mode == CaptureMode::Hot && choice(&ran).coverage.unwrap() > 0.9, "{ran:?}");
    let top = &overview(&ran).top;
    assert_eq!((top.len(), top[0].kernel.as_str(), top[0].count), (Overview::MAX_TOP, "void heavy<float>()", 1));
    let argv = ran.outcome.steps[1].argv.join(" ");
    assert!(
        argv.ends_with(
            "--kernel-name-base mangled --kernel-name regex:^(_Z5heavyIfEvv)$ --filter-mode per-launch-config --launch-count 1 \
             python3 eval.py profile cases.txt"
        ),
        "{argv}"
    );
    let table = bench.out("launches.csv");
    assert!(table.starts_with("\"Kernel Name\",\"Grid Size\",") && table.lines().count() == 42, "{table}");
    assert!(
        table.lines().nth(1).unwrap().starts_with("\"void heavy<float>()\",\"(132, 1, 1)\",\"(256, 1, 1)\",1,"),
        "{table}"
    );
}

#[test]
fn distinct_holds_each_kernel_once_and_the_heavy_one_where_there_is_room() {
    let (bench, ran) = captured(SET_UP_FIRST, CaptureMode::Distinct, 64);
    assert_eq!(bench.kernels().into_iter().collect::<BTreeSet<_>>().len(), 41);
    assert_eq!(bench.kernels().len(), 41);
    assert_eq!(choice(&ran).coverage, Some(1.0));
    assert!(ran.outcome.steps[1].argv.windows(2).any(|pair| pair == ["--launch-count", "41"]), "{ran:?}");
}

#[test]
fn the_heavy_kernel_behind_twenty_thousand_launches_is_captured() {
    let submission = "
import time, standin_gpu as gpu
def custom_kernel(data):
    for index in range(10000):
        gpu.launch('tick(int)', index % 7 + 1, 32, lambda: None)
        gpu.launch('tock(int)', 1, 32, lambda: None)
    gpu.launch('gemm(float *)', 132, 256, time.sleep, 3)
    a, b = data
    return [x + y for x, y in zip(a, b)]
";
    for mode in [CaptureMode::Hot, CaptureMode::Distinct] {
        let (bench, ran) = captured(submission, mode, 10);
        assert_eq!((bench.kernels(), choice(&ran).mode), (vec!["gemm".to_owned()], mode));
        assert_eq!(choice(&ran).fallback, None);
        assert!(choice(&ran).coverage.unwrap() > 0.5);
        assert_eq!((overview(&ran).launches, overview(&ran).kernels), (20_001, 3));
        assert!(!overview(&ran).is_partial);
        // One row for each launch size.
        assert_eq!(bench.out("launches.csv").lines().count(), 1 + 7 + 1 + 1);
    }
}

#[test]
fn hot_takes_the_heaviest_sizes_of_a_kernel_that_has_many() {
    let submission = "
import time, standin_gpu as gpu
def custom_kernel(data):
    for size in range(1, 31):
        gpu.launch('solve(float *)', size, 64, time.sleep, 1 if size == 25 else 0.001)
    a, b = data
    return [x + y for x, y in zip(a, b)]
";
    let (bench, ran) = captured(submission, CaptureMode::Hot, 3);
    assert_eq!(bench.kernels(), ["solve"; 3]);
    let details = bench.out("ncu-details.txt");
    assert!(details.contains("(25, 1, 1)"), "{details}");
    assert_eq!(choice(&ran).coverage, Some(1.0));
}

#[test]
fn hostile_names_are_data_in_the_filter_in_the_table_and_in_the_outcome() {
    let submission = r#"
import time, standin_gpu as gpu
NAMES = ['new\nline', '"quoted", with, commas', ')$|^(.*', '--launch-count', "it's", 'caf\u00e9', '%41', '=1+1']
def custom_kernel(data):
    for name in NAMES:
        gpu.launch(name, 1, 32, time.sleep, 0.02)
    gpu.launch('quick(int)', 1, 32, lambda: None)
    a, b = data
    return [x + y for x, y in zip(a, b)]
"#;
    let (bench, ran) = captured(submission, CaptureMode::Hot, 10);
    let argv = &ran.outcome.steps[1].argv;
    let filter = &argv[argv.iter().position(|word| word == "--kernel-name").unwrap() + 1];
    let inner = filter.strip_prefix("regex:^(").unwrap().strip_suffix(")$").unwrap();
    assert!(inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.|".contains(&byte)), "{filter}");
    assert!(!inner.contains("quick") && choice(&ran).coverage.unwrap() > 0.8, "{ran:?}");

    let table = fs::read(bench.path("out/launches.csv")).unwrap();
    let mut rows = csv::Reader::from_reader(table.as_slice());
    let names: BTreeSet<String> = rows.records().map(|row| row.unwrap()[0].to_owned()).collect();
    for name in ["new line", "\"quoted\", with, commas", ")$|^(.*", "'--launch-count", "it's", "café", "%41", "'=1+1"]
    {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn ten_thousand_kernels_stay_bounded() {
    let submission = "
import standin_gpu as gpu
def custom_kernel(data):
    for index in range(10000):
        gpu.launch(f'void kernel_{index}(float *)', 1, 32, lambda: None)
    a, b = data
    return [x + y for x, y in zip(a, b)]
";
    let (bench, ran) = captured(submission, CaptureMode::Distinct, 10);
    assert_eq!(overview(&ran).launches, 10_000);
    assert!(overview(&ran).is_partial);
    let table = bench.out("launches.csv");
    assert_eq!(table.lines().count(), 1 + 4096 + 1);
    assert!(table.contains("\"(other kernels)\",\"(0, 0, 0)\",\"(0, 0, 0)\",5904,"), "{table}");
    assert_eq!(bench.kernels().len(), 10);
}

#[test]
fn an_overview_that_fails_falls_back_to_the_window_and_says_so() {
    // Dies where it is not profiled by ncu.
    let submission = "
import os, standin_gpu as gpu
def custom_kernel(data):
    if 'NCU_SERVICE_LAUNCHES_DIR' in os.environ: os._exit(3)
    gpu.launch('late(int)', 1, 32, lambda: None)
    a, b = data
    return [x + y for x, y in zip(a, b)]
";
    let mut bench = Bench::new(submission);
    bench.capture.selection.mode = CaptureMode::Hot;
    // A pool waits for ever for a child that is gone.
    bench.capture.warmup_timeout_secs = 2;
    let ran = bench.run();
    assert_eq!(bench.kernels(), ["late"]);
    assert!(ran.outcome.steps[0].timed_out && ran.outcome.overview.is_none(), "{ran:?}");
    assert_eq!(choice(&ran).mode, CaptureMode::Window);
    assert!(choice(&ran).fallback.as_ref().unwrap().contains("saw no launch"), "{ran:?}");
    assert_eq!(ran.outcome.stuck, Some(Stuck::Died), "its process is gone, and the tracer may be to blame");
    assert!(!bench.path("out/launches.csv").exists());
}

#[test]
fn a_forged_overview_is_only_numbers_and_names() {
    let submission = "
import os, standin_gpu as gpu
def custom_kernel(data):
    gpu.launch('true_one(int)', 1, 32, lambda: None)
    folder = os.environ.get('NCU_SERVICE_LAUNCHES_DIR')
    if folder:
        forged = 'launches 2\\nprocess 1\\nlost 0\\nrange 1 0\\nkernel 5 0 18446744073709551615 1 1 1 1 1 1 x|--help%00%0A--launch-count\\nrun 0 5\\nend\\n'
        open(folder + '/0', 'w').write(forged)
        os.mkfifo(folder + '/1')
        os.symlink('/etc/passwd', folder + '/2')
        open(folder + '/3', 'w').truncate(1 << 40)
    a, b = data
    return [x + y for x, y in zip(a, b)]
";
    let (bench, ran) = captured(submission, CaptureMode::Hot, 10);
    let argv = ran.outcome.steps[1].argv.join(" ");
    assert!(
        argv.contains("regex:^(x...help....launch.count)$ --filter-mode per-launch-config --launch-count 1 python3"),
        "{argv}"
    );
    assert_eq!(overview(&ran).total_ns, u64::MAX);
    assert!(bench.out("stdout.txt").contains("No kernels were profiled"));
}
