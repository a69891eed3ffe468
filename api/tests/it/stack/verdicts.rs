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
    let (_, body) = verdict("def custom_kernel(data):\n    raise ValueError('shape 7 is odd')\n").await;
    assert_eq!(error(&body), "The submission failed: ValueError: shape 7 is odd.");
    assert_eq!(body["error_kind"], "submission");
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
    while True:
        time.sleep(1)
";
    let stack = Stack::start().await;
    stack.limit_captures(5);
    let (_, body) = verdict_on(stack, ENDLESS, &[("NCU_SERVICE_CAPTURE_TIMEOUT_SECS", "5")]).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"timed_out".into(), &"timeout".into()), "{body:#}");
    assert!(error(&body).contains("did not end within 5 s"), "{body:#}");
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
async fn a_forged_report_is_refused() {
    // It looks for a writable place to plant links where the collector reads.
    const FORGER: &str = "
import os
for name in ('outcome.json', 'stdout.txt', 'ncu-details.txt'):
    try:
        os.symlink('/etc/shadow', '/out/' + name)
    except OSError:
        pass
try:
    os.symlink('/etc', '/out/profile')
except OSError:
    pass
import standin_gpu
def custom_kernel(data):
    return standin_gpu.launch('void add(float *)', 8, 128, lambda a, b: [x + y for x, y in zip(a, b)], *data)
";
    let (stack, body) = verdict(FORGER).await;
    for artifact in body["artifacts"].as_array().unwrap() {
        let mut archive = stack.archive(artifact).await;
        assert!(!text(&mut archive, "stdout.txt").contains("root:"), "a host file is in the archive");
    }
    assert!(["succeeded", "failed"].contains(&body["status"].as_str().unwrap()));
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
