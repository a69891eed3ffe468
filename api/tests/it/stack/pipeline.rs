//! What happens at once to the shapes of a job: the GPU has one, the one before it is exported and the one after it is prepared.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::adoption::LONG_LEASE;
use super::durability::capture_times;
use super::engine::{containers, docker};
use super::harness::{Stack, signal, text};
use super::{GOOD, SLOW};
use tokio::time::{Duration, Instant, sleep};

/// What the engine did with the containers of a job, in order, as `create 0 capture`; of its end only the program's.
async fn events(job: &str, since: DateTime<Utc>) -> Vec<String> {
    let label = format!("label=ncu-service.job={job}");
    let (since, until) = (since.timestamp().to_string(), (Utc::now().timestamp() + 1).to_string());
    let format = "{{.Action}} {{index .Actor.Attributes \"ncu-service.benchmark\"}} {{index .Actor.Attributes \"ncu-service.role\"}}";
    let list = ["events", "--since", &since, "--until", &until, "--filter", "type=container", "--filter", &label];
    let events = docker(&[&list[..], &["--format", format]].concat()).await;
    let told = ["create ", "start ", "die "];
    events.lines().filter(|event| told.iter().any(|action| event.starts_with(action))).map(str::to_owned).collect()
}

/// Asserts that all of these happened, in this order, whatever happened in between.
fn in_order(events: &[String], wanted: &[&str]) {
    let mut rest = events.iter();
    for one in wanted {
        assert!(rest.any(|event| event == one), "{wanted:?} is not the order of {events:#?}");
    }
}

/// The container that is made for a shape and waits for its turn.
async fn prepared(job: &str) -> String {
    let deadline = Instant::now() + super::harness::PATIENCE;
    let label = format!("label=ncu-service.job={job}");
    loop {
        let list = ["ps", "-aq", "--no-trunc", "--filter", &label, "--filter", "status=created"];
        let found = docker(&[&list[..], &["--filter", "label=ncu-service.benchmark=1"]].concat()).await;
        if let Some(id) = found.lines().next() {
            return id.to_owned();
        }
        assert!(Instant::now() < deadline, "no container is prepared");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_shape_is_exported_and_the_one_after_next_prepared_while_the_next_has_the_gpu() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let since = Utc::now();
    let job = stack.submit(SLOW, &[]).await;
    let body = stack.ended(&job).await;
    assert_eq!(body["status"], "succeeded", "{body:#}");
    let events = events(&job, since).await;
    // Prepared while the one before has the GPU, and not started before that has left it.
    in_order(&events, &["start 0 capture", "create 1 capture", "die 0 capture", "start 1 capture"]);
    in_order(&events, &["start 1 capture", "create 2 capture", "die 1 capture", "start 2 capture", "die 2 capture"]);
    // The export of one and the capture of the next overlap.
    for (behind, next) in [(0, 1), (1, 2)] {
        let (export, capture) = (format!("die {behind} export"), format!("start {next} capture"));
        in_order(&events, &[&capture, &export]);
        in_order(&events, &[&export, &format!("die {next} capture")]);
    }
    let ends: Vec<DateTime<Utc>> =
        body["runs"].as_array().unwrap().iter().map(|run| run["ended_at"].as_str().unwrap().parse().unwrap()).collect();
    assert!(ends.is_sorted(), "shapes are recorded in order: {ends:?}");
    stack.no_container_is_left(&job).await;
}

#[tokio::test]
async fn the_manifest_tells_when_each_part_of_a_shapes_work_began_and_what_it_took() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[]).await;
    let body = stack.ended(&job).await;
    for artifact in body["artifacts"].as_array().unwrap() {
        let mut archive = stack.archive(artifact).await;
        let manifest: Value = serde_json::from_str(&text(&mut archive, "manifest.json")).unwrap();
        let phases = manifest["phases"].as_array().unwrap();
        let span = |name: &str| {
            let phase =
                phases.iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("{name}: {phases:?}"));
            let start = phase["start_seconds"].as_f64().unwrap();
            (start, start + phase["seconds"].as_f64().unwrap())
        };
        let in_turn = ["prepare", "gpu_wait", "start", "container", "collect", "take_report", "export"].map(span);
        // Two clocks: the engine's and the worker's.
        assert!(in_turn.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 0.01), "{phases:?}");
        let (container, overview, ncu) = (span("container"), span("overview"), span("ncu"));
        assert!(container.0 <= overview.0 && overview.1 <= ncu.0 && ncu.1 <= container.1, "{phases:?}");
        assert!(span("create").1 <= span("prepare").1, "{phases:?}");
    }
}

#[tokio::test]
async fn a_container_that_was_prepared_goes_with_its_worker_and_its_shape_is_profiled_by_the_next() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&LONG_LEASE);
    let job = stack.submit(SLOW, &[]).await;
    let waiting = prepared(&job).await;
    assert_eq!(stack.poll(&job).await["runs"][1]["status"], "queued", "it has not begun");
    worker.kill().await.unwrap();
    let _next = stack.worker(&LONG_LEASE);
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &1.into()), "{body:#}");
    stack.no_container_is_left(&job).await;
    assert_eq!(docker(&["ps", "-aq", "--no-trunc", "--filter", &format!("id={waiting}")]).await, "");
    assert_eq!(stack.stored_archives(), 3);
}

#[tokio::test]
async fn a_container_that_was_prepared_goes_when_its_job_is_put_back() {
    let stack = Stack::start().await;
    let mut worker = stack.draining_worker();
    let job = stack.submit(SLOW, &[]).await;
    prepared(&job).await;
    signal(&worker, "-TERM").await;
    assert!(worker.wait().await.unwrap().success());
    let body = stack.poll(&job).await;
    assert_eq!((&body["status"], &body["runs"][0]["status"]), (&"queued".into(), &"succeeded".into()), "{body:#}");
    assert_eq!(containers(&job).await, "");
}

#[tokio::test]
async fn a_worker_with_the_next_shape_ready_leaves_the_gpu_to_one_that_waits() {
    let stack = Stack::start().await;
    let _first = stack.worker(&[]);
    let long = stack.submit(SLOW, &[]).await;
    stack.capture_runs(&long).await;
    let short = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    let _second = stack.worker(&[]);
    let (short, ended) = (stack.ended(&short).await, stack.ended(&long).await);
    assert_eq!((&short["status"], &ended["status"]), (&"succeeded".into(), &"succeeded".into()));
    let waited_from: DateTime<Utc> = short["runs"][0]["started_at"].as_str().unwrap().parse().unwrap();
    let waited_to = capture_times(&stack, &short["artifacts"][0]).await.0;
    let mut turns_meanwhile = 0;
    for artifact in ended["artifacts"].as_array().unwrap() {
        let started_at = capture_times(&stack, artifact).await.0;
        turns_meanwhile += usize::from(waited_from < started_at && started_at < waited_to);
    }
    assert!(turns_meanwhile <= 1, "the long job's shapes took {turns_meanwhile} turns before the one that waited");
    stack.no_container_is_left(&long).await;
}
