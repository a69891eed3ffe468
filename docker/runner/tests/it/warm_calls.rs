//! Calls of the submission before the one that is captured.

use std::fs;
use std::process::Command;

use ncu_runner::protocol::{CaptureMode, Stuck};

use crate::bench::{Bench, Ran, STARTER};

/// Sets up with three kernels on its first call in a process; counts its calls on stderr.
const COLD: &str = "
import sys, standin_gpu as gpu
calls = 0
def custom_kernel(data):
    global calls
    calls += 1
    print('call', calls, file=sys.stderr, flush=True)
    for index in range(3 if calls == 1 else 0):
        gpu.launch(f'void set_up_{index}(float *)', 1, 32, lambda: None)
    a, b = data
    return gpu.launch('void add(float *)', 8, 128, lambda: [x + y for x, y in zip(a, b)])
";

fn ran(submission: impl AsRef<[u8]>, warm_calls: u32) -> (Bench, Ran) {
    let mut bench = Bench::new("");
    fs::write(bench.path("in/submission.py"), submission).unwrap();
    bench.capture.warm_calls = warm_calls;
    // A pool waits for ever for a child whose task made no sense.
    bench.capture.warmup_timeout_secs = 10;
    let ran = bench.run();
    assert_eq!(ran.output.status.code(), Some(0), "{ran:?}");
    (bench, ran)
}

/// Lines of stderr of the capture's own step.
fn capture_stderr(bench: &Bench) -> Vec<String> {
    let stderr = bench.out("stderr.txt");
    let (_, capture) = stderr.split_once("---- ncu-runner: capture: ").unwrap();
    capture.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_warm_call_keeps_the_set_up_of_a_first_call_out_of_the_report() {
    let (bench, cold) = ran(COLD, 0);
    assert_eq!(capture_stderr(&bench), ["call 1"]);
    assert_eq!(bench.kernels(), ["set_up_0", "set_up_1", "set_up_2", "add"]);
    assert_eq!(cold.outcome.overview.unwrap().launches, 4);

    let (bench, warm) = ran(COLD, 2);
    assert_eq!(warm.exits(), [("overview", Some(0)), ("capture", Some(0))]);
    assert_eq!(capture_stderr(&bench), ["call 1", "call 2", "call 3"]);
    assert!(bench.out("popcorn.log").ends_with("check: pass\n"));
    assert_eq!(bench.kernels(), ["add"]);
    // The overview chooses what is captured, so it is of a warm call too.
    assert_eq!(warm.outcome.overview.unwrap().launches, 1);
}

#[test]
fn a_warm_call_that_hangs_is_not_run_again_under_the_profiler() {
    let mut bench = Bench::new("import time\ndef custom_kernel(data): time.sleep(999)\n");
    (bench.capture.warm_calls, bench.capture.warmup_timeout_secs) = (1, 5);
    let ran = bench.run();
    assert_eq!(ran.exits(), [("overview", None)], "one limit, not two");
    assert_eq!(ran.outcome.stuck, Some(Stuck::InRange));
}

#[test]
fn what_the_evaluator_launches_in_the_range_before_the_call_stays_in_the_report() {
    // As evaluators do that copy the input inside the range.
    let mut bench = Bench::new(COLD);
    bench.capture.warm_calls = 1;
    let path = bench.path("problems/eval.py");
    let eval = fs::read_to_string(&path).unwrap();
    let call = "output = custom_kernel(given)";
    assert!(eval.contains(call));
    let copying = "import standin_gpu; output = custom_kernel(standin_gpu.launch('copy(int)', 1, 32, lambda: given))";
    fs::write(&path, eval.replace(call, copying)).unwrap();
    let ran = bench.run();
    assert_eq!(bench.kernels(), ["copy", "add"]);
    assert_eq!(ran.outcome.overview.unwrap().launches, 2);
}

#[test]
fn a_warm_call_gets_an_input_of_its_own() {
    let greedy = "
import standin_gpu as gpu
def custom_kernel(data):
    a, b = data
    out = gpu.launch('void add(float *)', 8, 128, lambda: [x + y for x, y in zip(a, b)])
    a.clear(); b.clear()
    return out
";
    let (bench, ran) = ran(greedy, 3);
    assert_eq!(ran.exits()[1], ("capture", Some(0)), "{}", bench.out("popcorn.log"));
}

#[test]
fn every_container_is_copied_and_every_tensor_cloned() {
    let program = r#"
import collections, os, sys
sys.path.insert(0, sys.argv[1])
import torch
class Tensor(torch.Tensor):
    clones = 0
    def clone(self):
        Tensor.clones += 1
        return Tensor()
from ncu_service_warm_calls import cloned
Pair = collections.namedtuple("Pair", "left right")
tensor, other = Tensor(), object()
value = {"a": [tensor, (tensor, 7)], "b": Pair(tensor, other), "c": None}
copy = cloned(value)
assert Tensor.clones == 3 and copy is not value and copy["a"] is not value["a"]
assert tensor not in (copy["a"][0], copy["a"][1][0], copy["b"].left)
assert type(copy["b"]) is Pair and copy["b"].right is other and copy["a"][1][1] == 7 and copy["c"] is None
"#;
    let (bench, _) = ran(COLD, 1);
    let work = bench.path("tmp/work");
    let output =
        Command::new("python3").args(["-c", program]).arg(&work).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_warm_call_that_raises_is_noted_and_the_call_that_counts_is_made() {
    let once_bitten = COLD.replace("    a, b = data", "    a, b = data\n    if calls == 1: raise ValueError('cold')");
    let (bench, ran) = ran(once_bitten, 2);
    assert_eq!(capture_stderr(&bench), ["call 1", "ncu-service: a warm call failed: ValueError: cold", "call 2"]);
    assert_eq!(ran.exits()[1], ("capture", Some(0)));
    assert_eq!(bench.kernels(), ["add"]);

    // One that always raises ends with the error of the call that counts.
    let (bench, ran) = self::ran("def custom_kernel(data):\n    raise ValueError('always')\n", 1);
    assert_eq!(ran.exits()[1], ("capture", Some(1)));
    assert_eq!(capture_stderr(&bench).last().unwrap(), "ValueError: always");
}

#[test]
fn hot_and_distinct_choose_from_what_a_warm_call_launches() {
    for mode in [CaptureMode::Hot, CaptureMode::Distinct] {
        let mut bench = Bench::new(COLD);
        (bench.capture.warm_calls, bench.capture.selection.mode) = (1, mode);
        bench.run();
        assert_eq!(bench.kernels(), ["add"], "{mode:?}");
    }
}

#[test]
fn a_submission_that_calls_itself_is_warmed_once() {
    let recursive = "
import standin_gpu as gpu
depth = 0
def custom_kernel(data):
    global depth
    depth += 1
    if depth % 3: return custom_kernel(data)
    return gpu.launch('void add(float *)', 8, 128, lambda a, b: [x + y for x, y in zip(a, b)], *data)
";
    let (bench, _) = ran(recursive, 1);
    assert_eq!(bench.kernels(), ["add"]);
}

#[test]
fn whatever_a_source_ends_with_a_warm_call_can_follow() {
    let of_a_class = "class Callable:\n    def __call__(self, data, inner=custom_kernel):\n        return inner(data)\n\
                      custom_kernel = Callable()";
    let sources = [
        COLD.to_owned(),
        COLD.trim_end().to_owned(),
        format!("{COLD}# no end of line"),
        format!("{COLD}# a backslash \\"),
        COLD.replace('\n', "\r\n"),
        COLD.trim_end().replace('\n', "\r\n"),
        format!("{COLD}# caf\u{e9} \u{4e16}\u{754c}"),
        format!("\u{feff}{COLD}NAME = '\u{3bb}'\n"),
        format!("# coding: latin-1\n{COLD}NAME = '\u{e9}'\n"),
        format!("{COLD}if True:\n    pass;"),
        format!("{COLD}{of_a_class}"),
        // What a submission makes of Python's own names is its own affair.
        format!("{COLD}len = tuple = list = dict = isinstance = type = Exception = torch = None\n"),
    ];
    let launched = r#"
import standin_gpu, torch
for source in sources:
    module, ranges = load(source), []
    standin_gpu._overview.note = lambda name, *_: ranges.append((name, standin_gpu._stack()[:]))
    with torch.cuda.nvtx.range("custom_kernel"):
        assert module.custom_kernel(([1.0], [2.0])) == [3.0]
    results.append([name for name, inside in ranges if inside == ["custom_kernel"]])
    assert len(ranges) == 5, ranges
"#;
    for (source, inside) in sources.iter().zip(tried(&sources, launched)) {
        assert_eq!(inside, ["_Z3addv"], "{source:?}");
    }
}

#[test]
fn no_line_of_the_submission_moves() {
    let (bench, _) = ran(STARTER, 1);
    let staged = fs::read_to_string(bench.path("tmp/work/submission.py")).unwrap();
    let tail = staged.strip_prefix(STARTER).unwrap();
    assert!(
        tail.starts_with("\n# ---- Appended by ncu-service") && tail.is_ascii() && tail.lines().count() == 6,
        "{tail}"
    );
}

#[test]
fn a_source_that_is_wrong_gets_the_same_error_with_warm_calls() {
    let sources = [
        "import no_such_module\n",
        "raise ImportError('as it is')\n",
        // It ends in the middle of something.
        "def custom_kernel(data):\n    return (data,\n",
        "values = [1, 2\n",
        "call(a, b",
        "@decorated\n",
        "def custom_kernel(data):\n",
        "if True:\n",
        "try:\n    pass\n",
        "value = \n",
        "text = 'open\n",
        "value = 1 +",
    ]
    .map(str::to_owned);
    let errors = r#"
import traceback
for source in sources:
    for loaded in load(source), load(source, tail=""):
        results.append(traceback.format_exception_only(loaded)[-1:])
"#;
    for (source, pair) in sources.iter().zip(tried(&sources, errors).chunks(2)) {
        assert_eq!(pair[0], pair[1], "{source:?}");
        assert!(pair[0][0].contains("Error: "), "{pair:?}");
    }
}

#[test]
fn a_submission_without_custom_kernel_ends_with_the_evaluators_own_error() {
    for (source, error) in [
        (
            "def another(data):\n    return data\n",
            "ImportError: cannot import name 'custom_kernel' from 'submission' (",
        ),
        ("custom_kernel = 7\n", "TypeError: 'int' object is not callable"),
    ] {
        let (bench, ran) = ran(source, 1);
        assert_eq!(ran.exits()[1], ("capture", Some(1)));
        let last = capture_stderr(&bench).pop().unwrap();
        assert!(last.starts_with(error), "{last}");
    }
}

/// Runs a Python program over submissions as they are staged for one warm call: `load(source)` is the module, or the error
/// of its import. What the program appends to `results`, lists of strings, is returned.
fn tried(sources: &[String], program: &str) -> Vec<Vec<String>> {
    const LOAD: &str = r#"
import importlib.util, json, sys
work, tail_after = sys.argv[1], sys.argv[2]
staged = open(work + "/submission.py").read()
assert staged.startswith(tail_after)
def load(source, tail=staged.removeprefix(tail_after)):
    with open(work + "/submission.py", "wb") as file:
        file.write((source + tail).encode())
    spec = importlib.util.spec_from_file_location("submission", work + "/submission.py")
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        return error
    return module
sources, results = json.load(sys.stdin), []
"#;
    let (bench, _) = ran(STARTER, 1);
    let program = format!("{LOAD}{program}print(json.dumps(results))");
    let mut command = Command::new("python3");
    command.args(["-c", &program]).arg(bench.path("tmp/work")).arg(STARTER);
    command.env("PATH", "/usr/bin:/bin").env("PYTHONPATH", bench.path("tmp/work"));
    fs::write(bench.path("sources.json"), serde_json::to_vec(sources).unwrap()).unwrap();
    let output = command.stdin(fs::File::open(bench.path("sources.json")).unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(stdout.lines().next_back().unwrap()).unwrap()
}
