//! The whole stack, from a POST to the archive, with everything real but the GPU.

mod adoption;
mod durability;
mod harness;
mod verdicts;

use harness::{CLI_ID, Stack, text};

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
                "launches.csv",
                "manifest.json",
                "ncu-details.csv",
                "ncu-details.txt",
                "popcorn.log",
                "profile/profile.ncu-rep",
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
        assert_eq!(body["runs"][index]["simulated"], true);
        for entry in entries {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut archive.by_name(&entry).unwrap(), &mut bytes).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(CLI_ID), "{entry} holds the credential");
        }
    }
    stack.no_container_is_left(&job).await;
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
