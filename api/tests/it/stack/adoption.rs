//! Workers that die, stop or freeze in mid-shape: their capture runs on, and the next worker delivers it. A container that is
//! the same has the same start, to the nanosecond.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::ids::JobId;
use jobs::queue::Queue;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::GOOD;
use super::captures::{Capture, captures};
use super::durability::{Server, capture_times};
use super::engine::{containers, docker};
use super::harness::{Stack, signal};

/// Long enough for a worker to come and go meanwhile.
pub const LONG: &str = "
import time
import standin_gpu
def add(a, b):
    time.sleep(6)
    return [x + y for x, y in zip(a, b)]
def custom_kernel(data):
    return standin_gpu.launch('void add<float>(float *)', 8, 128, add, *data)
";

pub const ONE_SHAPE: [(&str, &str); 1] = [("benchmark_index", "0")];

/// No crowded machine makes a living worker lose this lease.
pub const LONG_LEASE: [(&str, &str); 1] = [("NCU_SERVICE_LEASE_SECS", "600")];

/// The job's end: one archive, by the given capture, in the first attempt, and nothing is left.
async fn is_delivered(stack: &Stack, job: &str, capture: &Capture) -> Value {
    let body = stack.ended(job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &1.into()), "{body:#}");
    let started_at: DateTime<Utc> = capture.started_at.parse().unwrap();
    assert_eq!(capture_times(stack, &body["artifacts"][0]).await.0, started_at, "another container's result");
    assert_eq!(body["artifacts"].as_array().unwrap().len(), 1);
    stack.no_container_is_left(job).await;
    body
}

#[tokio::test]
async fn the_container_of_a_worker_that_was_killed_is_waited_for_by_the_next_one() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&LONG_LEASE);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    let _next = stack.worker(&LONG_LEASE);
    is_delivered(&stack, &job, &capture).await;
    assert_eq!((stack.number("adoption").await, stack.number("faults").await), (1, 0));
    assert_eq!(stack.stored_archives(), 1);
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_leaves_at_once_and_its_container_stays() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&LONG_LEASE);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    let told = Instant::now();
    signal(&worker, "-TERM").await;
    assert!(worker.wait().await.unwrap().success());
    // Two seconds are meant; what is tested is that it does not wait for a capture of half a minute.
    assert!(told.elapsed() < Duration::from_secs(10), "it took {:?}", told.elapsed());
    assert_eq!(stack.poll(&job).await["status"], "running");
    assert_eq!(captures(&job, &[]).await, std::slice::from_ref(&capture));

    // The first one's lease would have held for ten minutes.
    let _next = stack.worker(&LONG_LEASE);
    is_delivered(&stack, &job, &capture).await;
    assert_eq!((stack.number("adoption").await, stack.number("losses").await), (1, 0));
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_before_its_capture_has_begun_puts_the_job_back() {
    let stack = Stack::start().await;
    // Somebody else has the GPU.
    std::fs::create_dir_all(stack.gpu_locks()).unwrap();
    let lock = std::fs::File::create(stack.gpu_locks().join("none.lock")).unwrap();
    lock.lock().unwrap();
    let mut worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &ONE_SHAPE).await;
    stack.shape_runs(&job, 0).await;
    signal(&worker, "-TERM").await;
    assert!(worker.wait().await.unwrap().success());
    let body = stack.poll(&job).await;
    assert_eq!((&body["status"], &body["queue_position"]), (&"queued".into(), &1.into()));

    drop(lock);
    let _next = stack.worker(&[]);
    assert_eq!(stack.ended(&job).await["status"], "succeeded");
}

#[tokio::test]
async fn a_capture_that_ended_while_no_worker_was_there_is_delivered() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    stack.capture_ends(&job).await;
    // However long that was.
    sqlx::query("UPDATE jobs SET lease_until = now() - interval '1 day'").execute(&stack.pool().await).await.unwrap();
    let _next = stack.worker(&[]);
    is_delivered(&stack, &job, &capture).await;
}

#[tokio::test]
async fn a_capture_that_went_down_with_its_host_is_made_again_and_blames_nobody() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    docker(&["kill", &capture.id]).await;
    let _next = stack.worker(&[]);
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &2.into()), "{body:#}");
    stack.no_container_is_left(&job).await;
}

#[tokio::test]
async fn a_worker_killed_in_an_export_leaves_the_capture_to_the_next_one() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    while containers(&job).await.lines().count() < 2 {
        sleep(Duration::from_millis(20)).await;
        if captures(&job, &[]).await.is_empty() {
            // This machine exports faster than it lists containers, and the shape is over.
            break;
        }
    }
    worker.kill().await.unwrap();
    let _next = stack.worker(&[]);
    is_delivered(&stack, &job, &capture).await;
}

#[tokio::test]
async fn a_container_that_was_made_and_never_started_is_replaced() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    // As if it had died a moment earlier: the same container, not started.
    let format = "{{.Name}}{{range $key, $value := .Config.Labels}} {{$key}}={{$value}}{{end}}";
    let marks = docker(&["container", "inspect", "--format", format, &capture.id]).await;
    let image = docker(&["container", "inspect", "--format", "{{.Image}}", &capture.id]).await;
    docker(&["rm", "-f", &capture.id]).await;
    let mut words = marks.split_whitespace();
    let name = words.next().unwrap().trim_start_matches('/');
    let labels = words.filter(|word| word.contains('=')).flat_map(|word| ["--label", word]);
    let create: Vec<&str> = ["create", "--name", name].into_iter().chain(labels).chain([image.trim()]).collect();
    docker(&create).await;

    let _next = stack.worker(&[]);
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &1.into()), "{body:#}");
    stack.no_container_is_left(&job).await;
}

#[tokio::test]
async fn a_container_whose_job_was_cancelled_meanwhile_is_removed() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    assert!(Queue::new(stack.pool().await).cancel(job.parse::<JobId>().unwrap()).await.unwrap());
    let _next = stack.worker(&[]);
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["error_kind"]), (&"failed".into(), &"cancelled".into()));
    stack.no_container_is_left(&job).await;
}

#[tokio::test]
async fn a_container_whose_job_began_anew_elsewhere_is_removed() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let old = stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    let pool = stack.pool().await;
    sqlx::query("UPDATE jobs SET lease_until = now() - interval '1 day'").execute(&pool).await.unwrap();
    assert_eq!(Queue::new(pool).reap(Some(Duration::ZERO)).await.unwrap().requeued, 1);
    let _next = stack.worker(&[]);
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &2.into()), "{body:#}");
    let new = capture_times(&stack, &body["artifacts"][0]).await;
    assert!(new.0 > old.started_at.parse::<DateTime<Utc>>().unwrap());
    stack.no_container_is_left(&job).await;
}

#[tokio::test]
async fn of_two_workers_that_start_at_once_one_adopts() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&LONG_LEASE);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    let _next = [stack.worker(&LONG_LEASE), stack.worker(&LONG_LEASE)];
    is_delivered(&stack, &job, &capture).await;
    assert_eq!((stack.number("adoption").await, stack.stored_archives()), (1, 1));
}

#[tokio::test]
async fn a_worker_that_was_frozen_comes_back_to_write_and_kill_nothing() {
    let stack = Stack::start().await;
    let frozen = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    signal(&frozen, "-STOP").await;
    let _next = stack.worker(&[]);
    stack.holds("SELECT adoption > 0 FROM jobs").await;
    signal(&frozen, "-CONT").await;
    is_delivered(&stack, &job, &capture).await;
    assert_eq!(stack.stored_archives(), 1);
}

#[tokio::test]
async fn a_worker_that_was_frozen_past_the_end_of_its_capture_is_no_trouble_to_the_adopter() {
    let stack = Stack::start().await;
    let frozen = stack.worker(&[]);
    let job = stack.submit(LONG, &[]).await;
    let capture = stack.capture_runs(&job).await;
    signal(&frozen, "-STOP").await;
    stack.capture_ends(&job).await;
    let _next = stack.worker(&[]);
    stack.until(&job, |body| body["runs"][0]["status"] == "succeeded").await;
    // It holds the turn on the GPU, which the other shapes need.
    signal(&frozen, "-CONT").await;
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &1.into()), "{body:#}");
    let started_at: DateTime<Utc> = capture.started_at.parse().unwrap();
    assert_eq!(capture_times(&stack, &body["artifacts"][0]).await.0, started_at);
    assert_eq!(stack.stored_archives(), 3);
    stack.no_container_is_left(&job).await;
}

#[tokio::test]
async fn the_next_capture_waits_for_one_whose_worker_was_killed() {
    let stack = Stack::start().await;
    let mut first = stack.worker(&[]);
    let early = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&early).await;
    let _second = stack.worker(&[]);
    let late = stack.submit(GOOD, &ONE_SHAPE).await;
    stack.shape_runs(&late, 0).await;
    first.kill().await.unwrap();
    let early = is_delivered(&stack, &early, &capture).await;
    let late = stack.ended(&late).await;
    assert_eq!((&late["status"], &late["attempt"]), (&"succeeded".into(), &1.into()), "{late:#}");
    let early = capture_times(&stack, &early["artifacts"][0]).await;
    let late = capture_times(&stack, &late["artifacts"][0]).await;
    assert!(early.1 <= late.0, "two captures at once: {early:?} {late:?}");
}

#[tokio::test]
async fn the_capture_of_another_services_dead_worker_is_waited_for_and_left_to_it() {
    let (stack, other) = (Stack::start().await, Stack::start().await);
    let mut worker = stack.worker(&[]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    worker.kill().await.unwrap();
    let locks = stack.gpu_locks();
    let _stranger = other.worker(&[("NCU_SERVICE_GPU_LOCK_DIR", locks.to_str().unwrap())]);
    let theirs = other.submit(GOOD, &ONE_SHAPE).await;
    let theirs = capture_times(&other, &other.ended(&theirs).await["artifacts"][0]).await;

    let _next = stack.worker(&[]);
    let body = is_delivered(&stack, &job, &capture).await;
    let ours = capture_times(&stack, &body["artifacts"][0]).await;
    assert!(ours.1 <= theirs.0, "two captures at once: {ours:?} {theirs:?}");
}

#[tokio::test]
async fn a_worker_that_drains_hands_its_shape_over_when_it_is_told_to_stop_again() {
    let stack = Stack::start().await;
    let mut worker = stack.draining_worker();
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    while worker.try_wait().unwrap().is_none() {
        signal(&worker, "-TERM").await;
        sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(captures(&job, &[]).await, std::slice::from_ref(&capture));
    let _next = stack.worker(&[]);
    is_delivered(&stack, &job, &capture).await;
}

#[tokio::test]
async fn an_outage_of_postgres_that_outlasts_the_lease_loses_no_capture() {
    let server = Server::start().await;
    let stack = Stack::start_on(server.url.clone()).await;
    let _worker = stack.worker(&[("NCU_SERVICE_LEASE_SECS", "3")]);
    let job = stack.submit(LONG, &ONE_SHAPE).await;
    let capture = stack.capture_runs(&job).await;
    server.control("stop").await;
    sleep(Duration::from_secs(6)).await;
    server.control("start").await;
    is_delivered(&stack, &job, &capture).await;
}
