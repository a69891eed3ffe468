//! What an operator orders by `ncu-worker admin`, and what the stack makes of it.

use serde_json::Value;
use tokio::time::timeout;

use super::harness::{PATIENCE, Stack};
use super::{GOOD, SLOW};

const ONE_SHAPE: [(&str, &str); 1] = [("benchmark_index", "0")];

#[tokio::test]
async fn a_paused_queue_starts_nothing_and_a_resumed_one_at_once() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    stack.worker_is("idle").await;
    assert!(stack.admin(&["pause", "--reason", "a new driver"]).await.starts_with("The queue is paused"));
    let job = stack.submit(GOOD, &ONE_SHAPE).await;
    // The worker has taken its ticket in vain.
    stack.holds("SELECT count(*) = 0 FROM apalis.jobs WHERE status NOT IN ('Done', 'Failed', 'Killed')").await;
    let body = stack.poll(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"queued".into(), &0.into()));
    assert!(body["notice"].as_str().unwrap().starts_with("The queue is paused"), "{body:#}");

    let status: Value = serde_json::from_str(&stack.admin(&["--json", "status"]).await).unwrap();
    assert_eq!((&status["pause_reason"], &status["queued"]), (&"a new driver".into(), &1.into()), "{status:#}");
    assert_eq!(stack.admin(&["resume"]).await, "The queue is resumed.");
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["notice"]), (&"succeeded".into(), &Value::Null), "{body:#}");
    stack
        .holds(
            "SELECT array_agg(action ORDER BY id) = '{pause,status,resume}' AND bool_and(actor = 'ann') FROM admin_log",
        )
        .await;
}

#[tokio::test]
async fn a_worker_that_an_operator_drains_ends_its_shape_and_then_itself_and_another_does_the_rest() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[]);
    let job = stack.submit(SLOW, &[]).await;
    stack.shape_runs(&job, 0).await;
    let host = host_name().await;
    assert!(stack.admin(&["drain", &host]).await.contains("ends after its shape"));
    let status = timeout(PATIENCE, worker.wait()).await.unwrap().unwrap();
    assert!(status.success());
    let body = stack.poll(&job).await;
    assert_eq!((&body["status"], &body["attempts"][0]["outcome"]), (&"queued".into(), &"released".into()), "{body:#}");
    assert_eq!(body["runs"][0]["status"], "succeeded");

    let _next = stack.worker(&[]);
    assert_eq!(stack.ended(&job).await["status"], "succeeded");
}

#[tokio::test]
async fn a_worker_that_still_waits_for_its_engine_is_drained_too() {
    let stack = Stack::start().await;
    let mut worker = stack.worker(&[("NCU_SERVICE_DOCKER_HOST", "unix:///nowhere/docker.sock")]);
    stack.worker_is("unready").await;
    stack.admin(&["drain", &host_name().await]).await;
    assert!(timeout(PATIENCE, worker.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn a_quarantine_is_lifted_from_afar_and_what_is_past_its_time_is_pruned_on_order() {
    let stack = Stack::start().await;
    std::fs::create_dir(stack.gpu_locks()).unwrap();
    std::fs::write(stack.gpu_locks().join("none.quarantine"), "Xid 79, fallen off the bus").unwrap();
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &ONE_SHAPE).await;
    stack.worker_is("quarantined").await;
    assert!(stack.admin(&["unquarantine", &host_name().await]).await.contains("lifts the quarantine"));
    assert_eq!(stack.ended(&job).await["status"], "succeeded");
    assert!(!stack.gpu_locks().join("none.quarantine").exists());

    assert_eq!(stack.stored_archives(), 1);
    sqlx::query("UPDATE jobs SET ended_at = now() - interval '20 days'").execute(&stack.pool().await).await.unwrap();
    stack.admin(&["prune"]).await;
    stack.holds("SELECT artifact_deleted_at IS NOT NULL FROM runs WHERE artifact_name IS NOT NULL").await;
    assert_eq!(stack.stored_archives(), 0);
    // The job is known, and can be done again.
    assert!(stack.admin(&["requeue", &job]).await.contains("1 of its shapes"));
    let body = stack.until(&job, |body| body["status"] == "succeeded").await;
    assert_eq!(body["attempt"], 2, "{body:#}");
    stack.archive(&body["artifacts"][0]).await;
}

#[tokio::test]
async fn what_cannot_be_done_is_one_sentence_and_an_exit_status() {
    let stack = Stack::start().await;
    let (code, said) = stack.admin_refused(&["cancel", "00000000000000000000000000000000"]).await;
    assert_eq!((code, said.trim()), (Some(1), "ncu-worker: There is no job of this id."));
    let (code, said) = stack.admin_refused(&["cancel", "nonsense"]).await;
    assert!(code == Some(2) && said.contains("a job id is 32 hexadecimal digits"), "{said}");
    stack.holds("SELECT count(*) = 1 AND bool_and(outcome = 'refused') FROM admin_log").await;
    assert_eq!(stack.admin(&["list"]).await, "no jobs");
}

/// How this host calls itself: its workers' names start so.
async fn host_name() -> String {
    let output = tokio::process::Command::new("uname").arg("-n").output().await.unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
