//! `GET /health`.

use std::time::Duration;

use jobs::admin::{self, Command};
use jobs::ids::JobId;
use jobs::queue::{Actor, WorkerState};
use serde_json::json;

use crate::support::outage::Wire;
use crate::support::{Service, send};
use reqwest::{Method, StatusCode};

#[tokio::test]
async fn health_needs_no_cli_id_and_lists_the_capture_options() {
    let service = Service::start().await;
    let answer = send(service.request(Method::GET, "/health", None)).await;
    assert_eq!(answer.status, StatusCode::OK);
    let expected = json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": {"request_capture_options": [
            "ncu_capture", "ncu_clock_control", "ncu_kernel_name", "ncu_kernel_name_base", "ncu_launch_count", "ncu_warm_calls",
        ]},
        // A temporary folder is no checkout.
        "problems": {"revision": null, "dirty": null},
        "database": "ok",
        "workers": {"alive": 0, "ready": 0, "busy": 0},
        "paused": false,
        "detail": "No worker is alive, so jobs wait: start ncu-worker run.",
    });
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn health_counts_the_workers_that_are_alive_and_those_that_take_jobs() {
    let service = Service::start().await;
    let beat = async |name: &str, state: WorkerState, job: Option<JobId>| {
        service.queue.heartbeat(name, "host", state, job, Some("GPU 0000:19:00.0: Xid 79")).await.unwrap();
    };
    let health = async || send(service.request(Method::GET, "/health", None)).await.json();
    for (name, state) in [
        ("ill", WorkerState::Quarantined),
        ("lacking", WorkerState::Unready),
        ("leaving", WorkerState::Draining),
        ("gone", WorkerState::Stopped),
    ] {
        beat(name, state, None).await;
    }
    let body = health().await;
    assert_eq!(body["workers"], json!({"alive": 3, "ready": 0, "busy": 0}));
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.starts_with("No worker takes jobs now") && !detail.contains("0000:19"), "{detail}");

    beat("waiting", WorkerState::Idle, None).await;
    beat("working", WorkerState::Busy, Some(JobId::random())).await;
    beat("dead", WorkerState::Idle, None).await;
    let dead = "UPDATE workers SET last_seen_at = now() - interval '31 seconds' WHERE name = 'dead'";
    sqlx::query(dead).execute(&service.pool).await.unwrap();
    let body = health().await;
    assert_eq!(body["workers"], json!({"alive": 5, "ready": 2, "busy": 1}));
    assert_eq!((&body["status"], &body["detail"]), (&json!("ok"), &json!(null)));
}

#[tokio::test]
async fn health_still_answers_200_with_the_capabilities_when_the_database_is_away() {
    let wire = Wire::to("127.0.0.1:1".to_owned()).await;
    let url = format!("postgres://nobody@{}/nothing", wire.address);
    let service = Service::start_with(&[("NCU_SERVICE_DATABASE_URL", &url)]).await;
    let answer = send(service.request(Method::GET, "/health", None)).await;
    assert_eq!(answer.status, StatusCode::OK);
    let body = answer.json();
    assert_eq!((&body["status"], &body["database"]), (&json!("degraded"), &json!("unavailable")));
    assert_eq!(body["capabilities"]["request_capture_options"].as_array().unwrap().len(), 6);
    assert_eq!((&body["workers"], &body["detail"]), (&json!(null), &json!("The database is away; polls wait for it.")));
}

#[tokio::test]
async fn a_paused_queue_takes_submissions_and_says_so_in_the_health_and_in_each_job_that_waits() {
    let service = Service::start().await;
    service.queue.heartbeat("w", "host", WorkerState::Idle, None, None).await.unwrap();
    let operator = Actor::new("an operator").unwrap();
    let order = async |command| admin::run(&service.queue, &operator, &command).await.unwrap();
    let running = service.accepted("good-1").await;
    service.queue.claim("w", Duration::from_mins(1)).await.unwrap().unwrap();
    order(Command::Pause { reason: Some("a new driver".to_owned()) }).await;

    let id = service.accepted("good-1").await;
    let health = send(service.request(Method::GET, "/health", None)).await.json();
    assert_eq!((&health["status"], &health["paused"]), (&json!("ok"), &json!(true)));
    assert_eq!(health["detail"], "The queue is paused: jobs are accepted and wait until an operator resumes it.");
    let job = service.get(&format!("/jobs/{id}"), "good-1").await.json();
    assert_eq!((&job["status"], &job["queue_position"], &job["error"]), (&json!("queued"), &json!(1), &json!(null)));
    let notice = "The queue is paused by its operator: the job keeps its place and starts when it is resumed.";
    assert_eq!(job["notice"], notice);
    assert_eq!(service.get(&format!("/jobs/{running}"), "good-1").await.json()["notice"], json!(null));

    order(Command::Resume).await;
    assert_eq!(service.get(&format!("/jobs/{id}"), "good-1").await.json()["notice"], json!(null));
    let health = send(service.request(Method::GET, "/health", None)).await.json();
    assert_eq!((&health["paused"], &health["detail"]), (&json!(false), &json!(null)));
}
