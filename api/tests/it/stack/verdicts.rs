//! Submissions that fail: each ends with a sentence for its author, and the next job is fine.

use serde_json::Value;

use super::GOOD;
use super::harness::{Stack, text};

/// Profiles one shape of a submission, and then an honest one.
async fn verdict(source: &str) -> (Stack, Value) {
    verdict_on(Stack::start().await, source, &[]).await
}

async fn verdict_on(stack: Stack, source: &str, worker: &[(&str, &str)]) -> (Stack, Value) {
    let _worker = stack.worker(worker);
    let (job, honest) = (
        stack.submit(source, &[("benchmark_index", "0")]).await,
        stack.submit(GOOD, &[("benchmark_index", "0")]).await,
    );
    let body = stack.ended(&job).await;
    assert_eq!(stack.ended(&honest).await["status"], "succeeded", "the next job is fine");
    stack.no_container_is_left(&job).await;
    (stack, body)
}

fn error(body: &Value) -> &str {
    body["error"].as_str().unwrap()
}

#[tokio::test]
async fn a_wrong_answer_is_profiled_and_said() {
    const WRONG: &str = "
import standin_gpu
def custom_kernel(data):
    return standin_gpu.launch('void wrong(float *)', 8, 128, lambda a, b: a, *data)
";
    let (stack, body) = verdict(WRONG).await;
    assert_eq!(body["status"], "succeeded", "a profile of a wrong kernel is what its author needs");
    assert_eq!((&body["runs"][0]["exit_code"], &body["runs"][0]["error_kind"]), (&112.into(), &"wrong_answer".into()));
    let sentence = body["runs"][0]["error"].as_str().unwrap();
    assert!(sentence.starts_with("The evaluator found the answer wrong: "), "{sentence}");
    let mut archive = stack.archive(&body["artifacts"][0]).await;
    assert!(text(&mut archive, "ncu-details.txt").contains("void wrong"));
    assert_eq!(body["runs"][0]["output_tail"], Value::Null, "the archive has all of it");
}

#[tokio::test]
async fn a_submission_that_does_not_import_fails_with_its_own_error() {
    let (_, body) = verdict("import no_such_module\n").await;
    assert_eq!(body["status"], "failed");
    assert_eq!(error(&body), "The submission failed: ModuleNotFoundError: No module named 'no_such_module'.");
    assert_eq!(body["artifacts"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn a_submission_that_raises_fails_with_the_line_that_says_why() {
    let source =
        "def custom_kernel(data):\n    print('step \\x1b[1m1', flush=True)\n    raise ValueError('shape 7 is odd')\n";
    let (_, body) = verdict(source).await;
    assert_eq!(error(&body), "The submission failed: ValueError: shape 7 is odd.");
    assert_eq!(body["error_kind"], "submission");
    let tail = body["runs"][0]["output_tail"].as_str().unwrap();
    assert!(tail.starts_with("step [1m1\n") && tail.ends_with("\nValueError: shape 7 is odd"), "{tail}");
    assert!(tail.contains("Traceback (most recent call last):\n") && !tail.contains("==PROF=="), "{tail}");
}

#[tokio::test]
async fn a_submission_that_launches_nothing_never_succeeds() {
    let (_, body) = verdict("def custom_kernel(data):\n    return [x + y for x, y in zip(*data)]\n").await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"failed".into(), &"empty_capture".into()));
    assert!(error(&body).starts_with("No kernel was captured"), "{body:#}");
}

#[tokio::test]
async fn a_filter_that_matches_nothing_is_named() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[("benchmark_index", "0"), ("ncu_kernel_name", "no_such_kernel")]).await;
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"failed".into(), &"empty_capture".into()));
    assert!(error(&body).contains(r#"the name filter "no_such_kernel" matches none"#), "{body:#}");
}

#[tokio::test]
async fn counters_that_are_no_numbers_never_succeed() {
    const BLIND: &str = "
import standin_gpu
def custom_kernel(data):
    add = lambda a, b: [x + y for x, y in zip(a, b)]
    return standin_gpu.launch('void add(float *)', 8, 128, add, *data, counters=False)
";
    let (_, body) = verdict(BLIND).await;
    assert_eq!(body["status"], "failed");
    assert!(error(&body).contains("no counter"), "{body:#}");
}

#[tokio::test]
async fn a_submission_that_never_ends_is_timed_out() {
    const ENDLESS: &str = "
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def custom_kernel(data):
    print('waiting', flush=True)
    while True:
        time.sleep(1)
";
    let limits = [("NCU_SERVICE_WARMUP_TIMEOUT_SECS", "5"), ("NCU_SERVICE_CAPTURE_TIMEOUT_SECS", "5")];
    let stack = Stack::start().await;
    stack.limit_captures(5);
    let (_, body) = verdict_on(stack, ENDLESS, &limits).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"timed_out".into(), &"timeout".into()), "{body:#}");
    assert!(error(&body).starts_with("custom_kernel did not return within 5 s"), "{body:#}");
    assert!(error(&body).ends_with("It printed last: waiting."), "{body:#}");
    assert_eq!(body["runs"][0]["output_tail"], "waiting");
}

#[tokio::test]
async fn a_submission_whose_process_ends_is_not_called_slow() {
    const CRASHING: &str = "
import os
def custom_kernel(data):
    os.kill(os.getpid(), 11)
";
    let limits = [("NCU_SERVICE_WARMUP_TIMEOUT_SECS", "5"), ("NCU_SERVICE_CAPTURE_TIMEOUT_SECS", "5")];
    let stack = Stack::start().await;
    stack.limit_captures(5);
    let (_, body) = verdict_on(stack, CRASHING, &limits).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"failed".into(), &"submission".into()), "{body:#}");
    assert!(error(&body).starts_with("The submission's process ended before custom_kernel returned"), "{body:#}");
    assert!(error(&body).ends_with("Fatal Python error: Segmentation fault (submission.py, line 4)."), "{body:#}");
}

#[tokio::test]
async fn a_submission_that_hangs_under_the_profiler_only_is_timed_out() {
    // The stand-in sets this for its children; ncu's own variables tell a submission the same.
    const SHY: &str = "
import os, time
import standin_gpu
def custom_kernel(data):
    while 'STANDIN_NCU_TRACE_DIR' in os.environ:
        print('under the profiler', flush=True)
        time.sleep(1)
    return standin_gpu.launch('void add(float *)', 8, 128, lambda a, b: [x + y for x, y in zip(a, b)], *data)
";
    let stack = Stack::start().await;
    stack.limit_captures(5);
    let (_, body) = verdict_on(stack, SHY, &[("NCU_SERVICE_CAPTURE_TIMEOUT_SECS", "5")]).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"timed_out".into(), &"timeout".into()), "{body:#}");
    assert!(error(&body).starts_with("The capture did not end within 5 s"), "{body:#}");
    assert!(error(&body).ends_with("It printed last: under the profiler."), "{body:#}");
    assert!(body["runs"][0]["output_tail"].as_str().unwrap().starts_with("under the profiler"), "{body:#}");
}

#[tokio::test]
async fn a_profiler_that_saves_more_gpu_memory_than_there_is_memory_names_the_limit() {
    const HEAVY: &str = "
import standin_gpu
def custom_kernel(data):
    add = lambda a, b: [x + y for x, y in zip(a, b)]
    return standin_gpu.launch('void add(float *)', 8, 128, add, *data, saved_bytes=2 << 30)
";
    let (_, body) = verdict(HEAVY).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"failed".into(), &"limit".into()), "{body:#}");
    assert!(
        error(&body).contains("memory limit of 512 MiB of host memory, in which ncu also saves device memory"),
        "{body:#}"
    );
}

#[tokio::test]
async fn the_memory_limit_is_named() {
    const GREEDY: &str = "
def custom_kernel(data):
    hoard = bytearray(2 << 30)
    hoard[::4096] = b'x' * len(hoard[::4096])
    return hoard
";
    let (_, body) = verdict(GREEDY).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"failed".into(), &"limit".into()), "{body:#}");
    assert!(error(&body).contains("memory limit of 512 MiB"), "{body:#}");
}

#[tokio::test]
async fn links_planted_in_the_output_bring_nothing_of_the_host_along() {
    const PLANTER: &str = "
import os
for name in ('outcome.json', 'stdout.txt', 'stderr.txt', 'popcorn.log', 'ncu-details.txt', 'launches.csv'):
    os.symlink('/etc/passwd', '/out/' + name)
import standin_gpu
def custom_kernel(data):
    return standin_gpu.launch('void add(float *)', 8, 128, lambda a, b: [x + y for x, y in zip(a, b)], *data)
";
    // The import outside the profiler plants them; the evaluator's own import then fails on the first one that stands.
    let tolerant = PLANTER.replace("    os.symlink", "    os.path.lexists('/out/' + name) or os.symlink");
    let (stack, body) = verdict(&tolerant).await;
    assert_eq!(body["status"], "succeeded", "{body:#}");
    let mut archive = stack.archive(&body["artifacts"][0]).await;
    for name in ["stdout.txt", "stderr.txt", "popcorn.log", "ncu-details.txt", "launches.csv"] {
        let content = text(&mut archive, name);
        assert!(!content.is_empty() && !content.contains("root:"), "{name}: {content}");
    }
}

#[tokio::test]
async fn trouble_of_ours_with_one_shape_leaves_the_others_profiled() {
    // What ncu prints when the host keeps the counters from it, for one shape only.
    const TROUBLED: &str = "
import standin_gpu
def add(a, b):
    if len(a) == 1024:
        raise RuntimeError('==ERROR== ERR_NVGPUCTRPERM')
    return [x + y for x, y in zip(a, b)]
def custom_kernel(data):
    return standin_gpu.launch('void add(float *)', 8, 128, add, *data)
";
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(TROUBLED, &[]).await;
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"failed".into(), &"service_fault".into()), "{body:#}");
    assert_eq!(body["attempt"], 3, "a fault of ours is tried again");
    let indexes: Vec<_> = body["artifacts"].as_array().unwrap().iter().map(|a| a["benchmark_index"].clone()).collect();
    assert_eq!(indexes, [1, 2]);
    assert_eq!(stack.attempts().await, [3, 1, 1], "the others were done in the first attempt");
}

#[tokio::test]
async fn a_shape_that_fails_does_not_stop_the_others() {
    const PICKY: &str = "
import standin_gpu
def add(a, b):
    if len(a) == 4096:
        raise ValueError('not this size')
    return [x + y for x, y in zip(a, b)]
def custom_kernel(data):
    return standin_gpu.launch('void add(float *)', 8, 128, add, *data)
";
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(PICKY, &[]).await;
    let body = stack.ended(&job).await;
    assert_eq!(body["status"], "failed");
    assert_eq!(
        error(&body),
        "Shape 1: The submission failed: ValueError: not this size. Profiles of 2 of 3 shapes are there."
    );
    let indexes: Vec<_> = body["artifacts"].as_array().unwrap().iter().map(|a| a["benchmark_index"].clone()).collect();
    assert_eq!(indexes, [0, 2]);
}
