//! Things around the worker that fail for a while: no finished capture is thrown away for it, and nothing is blamed on users.

use std::time::Duration;

use tokio::time::sleep;

use super::GOOD;
use super::harness::Stack;

#[tokio::test]
async fn a_store_that_fails_for_a_while_costs_no_capture() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    // A file where the folder of all archives should be: the store's probe does not meet it, an archive does.
    let in_the_way = stack.artifacts().join("jobs");
    std::fs::write(&in_the_way, "").unwrap();
    let job = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    while !stack.log_of("ncu-worker").contains("a write failed; trying again") {
        assert_eq!(stack.poll(&job).await["error"], serde_json::Value::Null);
        sleep(Duration::from_millis(100)).await;
    }
    std::fs::remove_file(&in_the_way).unwrap();
    let body = stack.ended(&job).await;
    assert_eq!((&body["status"], &body["attempt"]), (&"succeeded".into(), &1.into()), "{body:#}");
    stack.archive(&body["artifacts"][0]).await;
}

#[tokio::test]
async fn a_store_that_takes_nothing_keeps_jobs_in_the_queue_and_the_worker_says_why() {
    let stack = Stack::start().await;
    let probe = stack.artifacts().join("probe");
    std::fs::create_dir_all(stack.artifacts()).unwrap();
    std::fs::write(&probe, "").unwrap();
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    assert!(stack.worker_is("unready").await.contains("artifact store"));
    let body = stack.poll(&job).await;
    assert_eq!((&body["status"], &body["queue_position"]), (&"queued".into(), &1.into()));
}
