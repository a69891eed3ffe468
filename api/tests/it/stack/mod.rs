//! The whole stack, from a POST to the archive, with everything real but the GPU.

mod admin;
mod adoption;
mod captures;
mod durability;
mod engine;
mod faults;
mod harness;
mod own_jobs;
mod secrets;
mod telemetry;
mod verdicts;

use harness::{CLI_ID, Stack, text};
use serde_json::json;

/// Launches one kernel, and is right.
const GOOD: &str = "
import standin_gpu
def add(a, b):
    return [x + y for x, y in zip(a, b)]
def custom_kernel(data):
    return standin_gpu.launch('void add<float>(float *)', 8, 128, add, *data)
";

/// The same, slowly: for tests that do something in mid-shape.
const SLOW: &str = "
import time
import standin_gpu
def add(a, b):
    time.sleep(3)
    return [x + y for x, y in zip(a, b)]
def custom_kernel(data):
    return standin_gpu.launch('void add<float>(float *)', 8, 128, add, *data)
";

#[tokio::test]
async fn every_shape_becomes_a_zip_that_holds_what_clients_extract() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[]).await;
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["error"]), (&"succeeded".into(), &serde_json::Value::Null), "{body:#}");

    let names: Vec<&str> =
        body["artifacts"].as_array().unwrap().iter().map(|artifact| artifact["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "profile.0-size-1024-seed-31232.zip",
            "profile.1-size-4096-seed-4052.zip",
            "profile.2-size-16384-seed-2146.zip"
        ]
    );
    for (index, artifact) in body["artifacts"].as_array().unwrap().iter().enumerate() {
        let mut archive = stack.archive(artifact).await;
        let mut entries: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
        entries.sort();
        assert_eq!(
            entries,
            [
                "benchmark.json",
                "command.json",
                "digest.json",
                "digest.md",
                "launches.csv",
                "manifest.json",
                "ncu-details.csv",
                "ncu-details.txt",
                "ncu-raw.csv",
                "popcorn.log",
                "profile/profile.ncu-rep",
                "report.html",
                "stderr.txt",
                "stdout.txt"
            ]
        );
        assert!(text(&mut archive, "ncu-details.txt").starts_with('['));
        assert!(text(&mut archive, "ncu-details.csv").starts_with("\"ID\","));
        assert!(text(&mut archive, "popcorn.log").contains("check: pass"));
        let manifest: serde_json::Value = serde_json::from_str(&text(&mut archive, "manifest.json")).unwrap();
        assert_eq!(manifest["benchmark"], body["requested_benchmarks"][index]["config"]);
        assert_eq!(manifest["job_id"], job.as_str());
        assert_eq!(manifest["simulated"], true, "a stand-in never passes for a GPU");
        assert_eq!(manifest["landlock"], "full");
        let evaluator = manifest["problem_files"].as_array().unwrap().iter().find(|file| file["name"] == "eval.py");
        let source = stack.problems().join(evaluator.unwrap()["source"].as_str().unwrap());
        let digest = std::process::Command::new("sha256sum").arg(source).output().unwrap();
        let digest = String::from_utf8(digest.stdout).unwrap();
        assert_eq!(evaluator.unwrap()["sha256"].as_str(), digest.split(' ').next());
        let phases = manifest["phases"].as_array().unwrap().iter().map(|phase| phase["name"].as_str().unwrap());
        assert_eq!(phases.collect::<Vec<_>>(), ["gpu_wait", "container", "export"]);
        assert!(manifest["measured_clocks"]["sm"]["max_mhz"].as_f64().unwrap() > 0.0, "{manifest}");
        assert_eq!((&manifest["limits_hit"], &manifest["gpus"]), (&json!([]), &json!([])), "no GPU, and no limit met");
        assert_eq!((&manifest["clock_control"], &manifest["warm_calls"]), (&"base".into(), &0.into()));
        assert_eq!(body["runs"][index]["simulated"], true);
        is_digested(&body["runs"][index], &mut archive);
        for entry in entries {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut archive.by_name(&entry).unwrap(), &mut bytes).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(CLI_ID), "{entry} holds the credential");
        }
    }
    stack.no_container_is_left(&job).await;
}

/// What a report says stands in the archive, at length and in short, and in the body of the job.
fn is_digested(run: &serde_json::Value, archive: &mut zip::ZipArchive<std::io::Cursor<Vec<u8>>>) {
    let digest: serde_json::Value = serde_json::from_str(&text(archive, "digest.json")).unwrap();
    let kernel = &digest["kernels"][0];
    assert_eq!((&kernel["short_name"], &kernel["launch"]["block"]), (&json!("add"), &json!([128, 1, 1])), "{digest:#}");
    // The raw page has what the details page has not.
    assert_eq!(kernel["stalls"][0]["reason"], "long_scoreboard", "{digest:#}");
    assert_eq!(kernel["roofline"][0]["precision"], "fp32", "{digest:#}");
    let findings = text(archive, "ncu-details.txt").lines().filter(|line| line.starts_with("    OPT   ")).count();
    assert_eq!(digest["finding_counts"]["opt"], json!(findings));
    let summary = &run["summary"];
    assert_eq!((&summary["kernels"][0]["name"], &summary["launches"]), (&json!("add"), &json!(1)), "{run:#}");
    assert_eq!(summary["kernels"][0]["duration_ns"], kernel["duration_ns"]);
    let markdown = text(archive, "digest.md");
    assert!(markdown.contains("`add` (8, 1, 1)x(128, 1, 1)") && markdown.contains("Simulated"), "{markdown}");
    assert!(text(archive, "report.html").starts_with("<!DOCTYPE html>"));
}

#[tokio::test]
async fn the_revision_of_the_problems_is_in_the_health_and_in_each_manifest() {
    let stack = Stack::start().await;
    let commit = stack.commit_problems().await;
    let worker = stack.worker(&[]);
    assert_eq!(revision(&stack).await, serde_json::json!({"commit": commit, "dirty": false}));
    stack.health_is("problems", serde_json::json!({"revision": commit, "dirty": false})).await;

    stack.limit_captures(61);
    stack.health_is("problems", serde_json::json!({"revision": commit, "dirty": true})).await;
    // A worker that does not remember either what git said before.
    drop(worker);
    let _next = stack.worker(&[]);
    assert_eq!(revision(&stack).await, serde_json::json!({"commit": commit, "dirty": true}));
}

/// Profiles one shape; the revision in its manifest.
async fn revision(stack: &Stack) -> serde_json::Value {
    let job = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    let body = stack.ended(&job).await;
    let mut archive = stack.archive(&body["artifacts"][0]).await;
    let mut manifest: serde_json::Value = serde_json::from_str(&text(&mut archive, "manifest.json")).unwrap();
    manifest["reference_kernels"].take()
}

#[tokio::test]
async fn the_health_tells_whether_anybody_works() {
    let stack = Stack::start().await;
    let health = stack.health().await;
    assert_eq!((&health["status"], &health["workers"]["alive"]), (&"ok".into(), &0.into()));
    assert!(health["detail"].as_str().unwrap().starts_with("No worker is alive"), "{health}");

    let mut unready = stack.worker(&[("NCU_SERVICE_WORKER_IMAGE", "ncu-service-nowhere:1")]);
    stack.worker_is("unready").await;
    let health = stack.health().await;
    assert_eq!(health["workers"], serde_json::json!({"alive": 1, "ready": 0, "busy": 0}));
    assert!(health["detail"].as_str().unwrap().starts_with("No worker takes jobs now"), "{health}");

    let _ready = stack.worker(&[]);
    stack.worker_is("idle").await;
    let health = stack.health().await;
    assert_eq!((&health["workers"]["ready"], &health["detail"]), (&1.into(), &serde_json::Value::Null));

    // One that has ended counts no more.
    harness::signal(&unready, "-TERM").await;
    unready.wait().await.unwrap();
    assert_eq!(stack.health().await["workers"], serde_json::json!({"alive": 1, "ready": 1, "busy": 0}));
}

#[tokio::test]
async fn one_index_profiles_one_shape() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[("benchmark_index", "1")]).await;
    let body = stack.ended(&job).await;
    assert_eq!(body["artifacts"].as_array().unwrap().len(), 1);
    assert_eq!(body["artifacts"][0]["benchmark_index"], 1);
}

#[tokio::test]
async fn a_requests_options_choose_the_kernels() {
    const TWO: &str = "
import standin_gpu
def custom_kernel(data):
    standin_gpu.launch('void set_up(int)', 1, 32, lambda: None)
    return standin_gpu.launch('void add<float>(float *)', 8, 128, lambda a, b: [x + y for x, y in zip(a, b)], *data)
";
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job =
        stack.submit(TWO, &[("benchmark_index", "0"), ("ncu_kernel_name", "add"), ("ncu_launch_count", "1")]).await;
    let body = stack.ended(&job).await;
    let mut archive = stack.archive(&body["artifacts"][0]).await;
    let details = text(&mut archive, "ncu-details.txt");
    assert!(details.contains("add<float>") && !details.contains("set_up"), "{details}");
    assert_eq!(body["options"]["ncu_kernel_name"], "add");
}

/// Sets up with two kernels on its first call in a process.
const COLD: &str = "
import standin_gpu
is_cold = True
def custom_kernel(data):
    global is_cold
    if is_cold:
        standin_gpu.launch('void fill_workspace(float *)', 1, 32, lambda: None)
        standin_gpu.launch('void fill_pointers(float *)', 1, 32, lambda: None)
    is_cold = False
    return standin_gpu.launch('void add<float>(float *)', 8, 128, lambda a, b: [x + y for x, y in zip(a, b)], *data)
";

#[tokio::test]
async fn a_warm_call_keeps_the_set_up_of_a_first_call_out_of_the_report() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[("NCU_SERVICE_NCU_WARM_CALLS", "1")]);
    let all = [("benchmark_index", "0"), ("ncu_capture", "window")];
    let warm = stack.submit(COLD, &all).await;
    let cold = stack.submit(COLD, &[all.as_slice(), &[("ncu_warm_calls", "0")]].concat()).await;
    for (job, warm_calls, kernels) in [(warm, 1, 1), (cold, 0, 3)] {
        let body = stack.ended(&job).await;
        assert_eq!(body["status"], "succeeded", "{body:#}");
        let mut archive = stack.archive(&body["artifacts"][0]).await;
        let details = text(&mut archive, "ncu-details.txt");
        assert!(details.contains("void add<float>"), "{details}");
        assert_eq!(details.contains("void fill_"), warm_calls == 0, "{details}");
        for file in ["manifest.json", "command.json"] {
            let json: serde_json::Value = serde_json::from_str(&text(&mut archive, file)).unwrap();
            assert_eq!(json["warm_calls"], warm_calls, "{file}");
        }
        let manifest: serde_json::Value = serde_json::from_str(&text(&mut archive, "manifest.json")).unwrap();
        assert_eq!(
            (&manifest["captured_launches"], &manifest["overview"]["launches"]),
            (&kernels.into(), &kernels.into())
        );
        assert_eq!(manifest["submission"]["bytes"], COLD.len(), "the submission is the user's own");
    }
}

#[tokio::test]
async fn a_duration_stands_beside_the_clocks_that_it_was_measured_with() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[("NCU_SERVICE_NCU_CLOCK_CONTROL", "none")]);
    let operators = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    let own = stack.submit(GOOD, &[("benchmark_index", "0"), ("ncu_clock_control", "base")]).await;
    for (job, clocks) in [(operators, "none"), (own, "base")] {
        let body = stack.ended(&job).await;
        assert_eq!(body["runs"][0]["clock_control"], clocks, "{body:#}");
        assert_eq!(body["runs"][0]["launches"][0]["clock_control"], "none", "the overview locks none");
        let mut archive = stack.archive(&body["artifacts"][0]).await;
        let manifest: serde_json::Value = serde_json::from_str(&text(&mut archive, "manifest.json")).unwrap();
        assert_eq!(manifest["clock_control"], clocks);
        assert_eq!(manifest["overview"]["clock_control"], "none");
        let command: serde_json::Value = serde_json::from_str(&text(&mut archive, "command.json")).unwrap();
        let words: Vec<&str> = command["ncu"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        assert!(words.windows(2).any(|pair| pair == ["--clock-control", clocks]), "{words:?}");
        assert!(words.windows(2).any(|pair| pair == ["--graph-profiling", "node"]), "{words:?}");
        let table = text(&mut archive, "launches.csv");
        let mut lines = table.lines().map(|line| line.rsplit(',').nth(1).unwrap());
        assert_eq!((lines.next(), lines.next()), (Some("\"Clock Control\""), Some("\"none\"")), "{table}");
    }
}
