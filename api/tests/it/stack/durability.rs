//! Parts of the stack that die: the job ends once, with one archive a shape, and no container is left.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use super::engine::{abandon_container, containers, has_container};
use super::harness::{Stack, repository, signal, text};
use super::{GOOD, SLOW};

/// The job's end, after whatever happened to it: every shape once, nothing left over.
async fn ends_once(stack: &Stack, job: &str) -> serde_json::Value {
    let body = stack.ended(job).await;
    assert_eq!(body["status"], "succeeded", "{body:#}");
    assert_eq!(body["artifacts"].as_array().unwrap().len(), 3);
    assert_eq!(stack.stored_archives(), 3, "no shape was stored twice");
    stack.no_container_is_left(job).await;
    body
}

#[tokio::test]
async fn a_worker_killed_in_mid_shape_loses_nothing() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(SLOW, &[]).await;
    stack.shape_runs(&job, 1).await;
    worker.kill().await.unwrap();
    let _next = stack.worker(&[]);
    let body = ends_once(&stack, &job).await;
    assert_eq!(body["attempt"], 1);
    assert_eq!(stack.attempts().await, [1, 1, 1]);
}

#[tokio::test]
async fn a_worker_that_drains_ends_its_shape_and_the_next_one_goes_on() {
    let stack = Stack::start().await;
    let mut worker = stack.draining_worker();
    let job = stack.submit(SLOW, &[]).await;
    stack.shape_runs(&job, 0).await;
    signal(&worker, "-TERM").await;
    assert!(worker.wait().await.unwrap().success());
    let body = stack.poll(&job).await;
    assert_eq!((&body["status"], &body["queue_position"]), (&"queued".into(), &1.into()));
    assert_eq!(body["runs"][0]["status"], "succeeded", "the shape in progress was ended, not dropped");
    assert_eq!(containers(&job).await, "");

    let _next = stack.worker(&[]);
    ends_once(&stack, &job).await;
    assert_eq!(stack.attempts().await, [1, 2, 2]);
}

#[tokio::test]
async fn a_killed_api_is_a_pause_to_a_client_and_nothing_to_the_job() {
    let mut stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(SLOW, &[]).await;
    stack.shape_runs(&job, 0).await;
    stack.kill_api().await;
    stack.start_api().await;
    let body = ends_once(&stack, &job).await;
    assert_eq!(body["attempt"], 1);
}

#[tokio::test]
async fn an_outage_of_postgres_fails_no_poll_and_loses_no_shape() {
    let server = Server::start().await;
    let stack = Stack::start_on(server.url.clone()).await;
    // A lease that outlasts the outage, as the default does.
    let _worker = stack.worker(&[("NCU_SERVICE_LEASE_SECS", "30")]);
    let job = stack.submit(SLOW, &[]).await;
    stack.shape_runs(&job, 0).await;
    server.control("stop").await;
    // Polls go on through the outage, as a client's do; none may be answered with anything but 2xx.
    let polls = async {
        loop {
            assert_eq!(stack.poll(&job).await["status"], "running");
            sleep(Duration::from_secs(1)).await;
        }
    };
    let outage = async {
        sleep(Duration::from_secs(10)).await;
        server.control("start").await;
    };
    tokio::select! {
        () = outage => {}
        () = polls => {}
    }
    let body = ends_once(&stack, &job).await;
    assert_eq!(body["attempt"], 1, "the lease outlasted the outage");
}

#[tokio::test]
async fn two_workers_share_the_queue_and_no_job_runs_twice() {
    let stack = Stack::start().await;
    let _workers = [stack.worker(&[]), stack.worker(&[])];
    let mut jobs = Vec::new();
    for _ in 0..4 {
        jobs.push(stack.submit(SLOW, &[("benchmark_index", "0")]).await);
    }
    let mut captures = Vec::new();
    for job in &jobs {
        let body = stack.ended(job).await;
        assert_eq!(body["attempt"], 1);
        captures.push(capture_times(&stack, &body["artifacts"][0]).await);
    }
    // They share one pretended GPU.
    captures.sort();
    for pair in captures.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two captures at once: {captures:?}");
    }
    let query = "SELECT count(DISTINCT worker) FROM jobs";
    let workers: i64 = sqlx::query_scalar(query).fetch_one(&stack.pool().await).await.unwrap();
    assert_eq!(workers, 2);
    assert_eq!(stack.stored_archives(), 4);
}

#[tokio::test]
async fn an_idle_worker_takes_a_job_while_another_worker_is_busy() {
    let stack = Stack::start().await;
    let _busy = stack.worker(&[]);
    let long = stack.submit(SLOW, &[]).await;
    stack.shape_runs(&long, 0).await;
    // It arrives while the only worker there is has its hands full, so its ticket may lie in that worker's.
    let short = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    let _idle = stack.worker(&[]);
    assert_eq!(stack.ended(&short).await["status"], "succeeded");
    assert_eq!(stack.poll(&long).await["status"], "running", "the short job did not wait for the long one");
    // A stack that is dropped in mid-shape would leave its container to nobody.
    assert_eq!(stack.ended(&long).await["status"], "succeeded");
    stack.no_container_is_left(&long).await;
}

/// Start and end of the container that a capture ran in.
pub async fn capture_times(stack: &Stack, artifact: &serde_json::Value) -> (DateTime<Utc>, DateTime<Utc>) {
    let mut archive = stack.archive(artifact).await;
    let manifest: serde_json::Value = serde_json::from_str(&text(&mut archive, "manifest.json")).unwrap();
    let time = |name: &str| manifest["container"][name].as_str().unwrap().parse().unwrap();
    (time("started_at"), time("ended_at"))
}

#[tokio::test]
async fn a_container_that_a_dead_worker_left_on_the_gpu_is_removed_by_the_next_capture() {
    let stack = Stack::start().await;
    let name = format!("ncu-abandoned-{}", std::process::id());
    abandon_container(&name).await;
    std::fs::create_dir(stack.gpu_locks()).unwrap();
    std::fs::write(stack.gpu_locks().join("none.lock"), &name).unwrap();

    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    assert_eq!(stack.ended(&job).await["status"], "succeeded");
    assert!(!has_container(&name).await);
    assert_eq!(std::fs::read_to_string(stack.gpu_locks().join("none.lock")).unwrap(), "");
}

#[tokio::test]
async fn a_worker_whose_gpu_is_in_quarantine_takes_no_job_until_it_is_lifted() {
    let stack = Stack::start().await;
    std::fs::create_dir(stack.gpu_locks()).unwrap();
    std::fs::write(stack.gpu_locks().join("none.quarantine"), "Xid 79, fallen off the bus").unwrap();
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    assert_eq!(stack.worker_is("quarantined").await, "GPU none: Xid 79, fallen off the bus");
    let body = stack.poll(&job).await;
    assert_eq!((&body["status"], &body["queue_position"]), (&"queued".into(), &1.into()));

    stack.lift_quarantine().await;
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &1.into()));
}

#[tokio::test]
async fn a_worker_that_lacks_something_says_what_and_leaves_the_job_to_others() {
    let stack = Stack::start().await;
    let _unready = stack.worker(&[("NCU_SERVICE_WORKER_IMAGE", "ncu-service-nowhere:1")]);
    let job = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    let note = stack.worker_is("unready").await;
    assert!(note.starts_with("worker image: ncu-service-nowhere:1"), "{note}");
    assert_eq!(stack.poll(&job).await["status"], "queued");

    let _ready = stack.worker(&[]);
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &1.into()));
}

/// A Postgres of a test's own, to be stopped.
pub struct Server {
    folder: TempDir,
    pub url: String,
}

impl Server {
    pub async fn start() -> Self {
        let mut server = Self { folder: tempfile::tempdir().unwrap(), url: String::new() };
        let url = server.control("start").await;
        url.trim().clone_into(&mut server.url);
        server
    }

    pub async fn control(&self, command: &str) -> String {
        let script = repository().join("scripts/postgres");
        let output = Command::new(script)
            .arg(command)
            .env("NCU_SERVICE_RUN_DIR", self.folder.path().join("run"))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let script = repository().join("scripts/postgres");
        let run = self.folder.path().join("run");
        // A test that failed may have left it stopped.
        let _ = std::process::Command::new(script).arg("stop-hard").env("NCU_SERVICE_RUN_DIR", run).status();
    }
}
