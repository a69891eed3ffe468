//! What owners do with their jobs while a worker runs them.

use tokio::time::Instant;

use super::engine::containers;
use super::harness::{PATIENCE, Stack};
use super::{GOOD, harness};

/// Longer than any test waits.
const ENDLESS: &str = "
import time
def custom_kernel(data):
    time.sleep(600)
";

#[tokio::test]
async fn a_running_job_that_its_owner_cancels_ends_with_its_container_at_once() {
    let stack = Stack::start().await;
    // With this lease the next renewal is far away: only the request itself can end it soon.
    let _worker = stack.worker(&[("NCU_SERVICE_LEASE_SECS", "300")]);
    let job = stack.submit(ENDLESS, &[("benchmark_index", "0")]).await;
    let deadline = Instant::now() + PATIENCE;
    while containers(&job).await.is_empty() {
        assert!(Instant::now() < deadline, "no container");
        tokio::time::sleep(harness::POLL).await;
    }
    let began = Instant::now();
    assert_eq!(stack.cancel(&job).await, 202);
    let body = stack.ended(&job).await;
    assert!(began.elapsed().as_secs() < 60, "it took {:?}", began.elapsed());
    assert_eq!((&body["status"], &body["cancelled"]), (&"failed".into(), &true.into()));
    assert!(body["error"].as_str().unwrap().contains("cancelled"), "{body:#}");
    assert_eq!(body["attempts"][0]["outcome"], "cancelled");
    stack.no_container_is_left(&job).await;
    let next = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    assert_eq!(stack.ended(&next).await["status"], "succeeded", "the worker is free again");
}

#[tokio::test]
async fn the_events_of_a_job_tell_its_phases_and_the_next_one_knows_its_wait() {
    let stack = Stack::start().await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &[("benchmark_index", "0")]).await;
    // The stream ends with the job.
    let events = stack.events(&job).await;
    let at = |text: &str| events.find(text).unwrap_or_else(|| panic!("no {text} in {events}"));
    let order = [
        r#""status":"queued""#,
        r#""status":"running""#,
        r#""phase":"export""#,
        r#""phase":"store""#,
        r#""status":"succeeded""#,
    ];
    assert!(order.map(at).is_sorted(), "{events}");

    let next = stack.submit(ENDLESS, &[("benchmark_index", "0")]).await;
    let body = stack.until(&next, |body| body["estimated_end_at"].is_string()).await;
    let range = &body["estimated_end_range"];
    assert!(range["earliest"].as_str() <= body["estimated_end_at"].as_str(), "{body:#}");
    assert!(range["latest"].as_str() >= body["estimated_end_at"].as_str(), "{body:#}");
    stack.cancel(&next).await;
    let body = stack.ended(&next).await;
    assert_eq!((&body["estimated_end_at"], &body["progress"]), (&serde_json::Value::Null, &serde_json::Value::Null));
}
