//! `GET /jobs/{id}/report` and `GET /jobs/{id}/compare/{other}`, and the short digest in the body of a job.

use std::time::Duration;

use jobs::digest::{Digest, Overview, Pages, Provenance};
use jobs::queue::{ClockControl, RunEnd, State, StoredArtifact};
use reqwest::Method;
use serde_json::json;

use crate::support::{Answer, Form, Service, run_end, send};

const CSV: &str = include_str!("../../../jobs/tests/fixtures/h200-qr_v2-0/ncu-details.csv");

/// The digest of a real report, as a shape of that job.
pub fn digest(job: &str, index: u32) -> Digest {
    let provenance: Provenance = serde_json::from_value(json!({
        "job_id": job, "leaderboard": "qr_v2", "benchmark_index": index, "benchmark": {"n": 32 + index, "batch": 20},
        "file_name": "submission.py", "submission_sha256": "00", "reference_kernels": null, "gpus": ["NVIDIA H200"],
        "driver_version": null, "clock_control": "base", "capture_mode": "window", "coverage": 1.0, "warm_calls": 0,
        "ncu_version": null, "service": "ncu-service", "captured_at": "2026-11-30T12:00:00Z",
    }))
    .unwrap();
    Digest::new(Pages::read(CSV.as_bytes()).unwrap(), &Overview::default(), 4, false, provenance)
}

/// A job of this user of which every shape has the report of the fixture, as it is after a change.
async fn reported(service: &Service, cli_id: &str, change: impl Fn(&mut Digest)) -> String {
    let id = service.accepted(cli_id).await;
    let claim = service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    for pending in &claim.pending {
        let run = claim.lease_of(pending.benchmark_index);
        service.queue.start_run(run).await.unwrap();
        let mut made = digest(&id, pending.benchmark_index);
        change(&mut made);
        let stored = StoredArtifact { path: format!("p/{id}/{}", pending.benchmark_index), bytes: 7, sha256: [1; 32] };
        let end = RunEnd {
            clock_control: Some(ClockControl::Base),
            coverage: Some(1.0),
            digest: Some(Box::new(made)),
            artifact: Some((pending.shape.artifact_name(pending.benchmark_index), stored)),
            ..run_end(State::Succeeded)
        };
        service.queue.finish_run(run, &end).await.unwrap();
        // A write that may not have gone through is made again.
        service.queue.finish_run(run, &end).await.unwrap();
    }
    service.queue.finish(claim.id, claim.token).await.unwrap();
    id
}

fn html(answer: &Answer) -> String {
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("script"), "{policy}");
    String::from_utf8(answer.bytes.clone()).unwrap()
}

#[tokio::test]
async fn the_body_of_a_job_has_each_report_in_short_and_its_page_has_them_whole() {
    let service = Service::start().await;
    let id = reported(&service, "good-alice", |_| {}).await;
    let body = service.get(&format!("/jobs/{id}"), "good-alice").await.json();
    let summary = &body["runs"][1]["summary"];
    assert_eq!((&summary["launches"], &summary["finding_counts"]["opt"]), (&json!(4), &json!(41)), "{body}");
    let first = &summary["kernels"][0];
    assert_eq!((&first["name"], &first["duration_ns"]), (&json!("geqr2_batch_kernel_shmem"), &json!(364_480.0)));
    assert_eq!((&first["bound"], &first["share"]), (&json!("launch"), &json!(null)));

    let page = html(&service.get(&format!("/jobs/{id}/report"), "good-alice").await);
    assert_eq!(page.matches("<section class=\"shape\"").count(), 3);
    assert_eq!(page.matches("<span class=\"kind\">").count(), 3 * 52);

    // Nobody else learns whether there is such a job.
    let (foreign, none) = (format!("/jobs/{id}/report"), format!("/jobs/{}/report", "0".repeat(32)));
    let (foreign, none) = (service.get(&foreign, "good-bob").await, service.get(&none, "good-bob").await);
    assert_eq!((foreign.status.as_u16(), foreign.detail()), (404, none.detail()));
}

#[tokio::test]
async fn a_job_without_a_report_yet_has_a_page_that_says_so_and_compares_with_nothing() {
    let service = Service::start().await;
    let answer = service.submit("good-alice", Form::usual()).await.json();
    let id = answer["job_id"].as_str().unwrap();
    let page = html(&service.get(&format!("/jobs/{id}/report"), "good-alice").await);
    assert!(page.contains("No shape of this job has a report."), "{page}");
    let refused = service.get(&format!("/jobs/{id}/compare/{id}"), "good-alice").await;
    assert_eq!(refused.status.as_u16(), 409);
    assert!(refused.detail().contains("no report to compare"));
}

#[tokio::test]
async fn two_jobs_of_one_owner_compare_as_json_and_as_a_page() {
    let service = Service::start().await;
    let first = reported(&service, "good-alice", |_| {}).await;
    let second = reported(&service, "good-alice", |made| made.kernels[3].duration_ns = Some(182_240.0)).await;
    let path = format!("/jobs/{first}/compare/{second}");

    let found = service.get(&path, "good-alice").await.json();
    assert_eq!(found["jobs"][1]["job_id"], json!(second));
    let kernel = &found["shapes"][2]["kernels"][3];
    let change = json!({"first": 364_480.0, "second": 182_240.0, "percent": -50.0, "trend": "better"});
    assert_eq!((&kernel["name"], &kernel["changes"]["duration_ns"]), (&json!("geqr2_batch_kernel_shmem"), &change));

    let get = |path: &str, accept: &'static str| {
        send(service.request(Method::GET, path, Some("good-alice")).header("Accept", accept))
    };
    for answer in [get(&path, "text/html,*/*;q=0.8").await, get(&format!("{path}.html"), "*/*").await] {
        assert!(html(&answer).contains("-50.0 % better"));
    }
    let json = get(&format!("{path}.json"), "text/html").await;
    assert_eq!(json.json(), found);
    for (path, cli_id) in [
        (path.as_str(), "good-bob"),
        (&format!("/jobs/{first}/compare/{}", "0".repeat(32)), "good-alice"),
        (&format!("/jobs/{first}/compare/nothing"), "good-alice"),
        (&format!("{path}.pdf"), "good-alice"),
    ] {
        assert_eq!(service.get(path, cli_id).await.status.as_u16(), 404, "{path}");
    }
}

#[tokio::test]
async fn what_says_nothing_about_the_submission_is_refused_with_what_to_do() {
    let service = Service::start().await;
    let first = reported(&service, "good-alice", |_| {}).await;
    let gpu = reported(&service, "good-alice", |made| made.provenance.gpus = vec!["NVIDIA B200".to_owned()]).await;
    let clocks = reported(&service, "good-alice", |made| made.provenance.clock_control = ClockControl::None).await;
    for (other, advice) in [(gpu, "submit both to the same kind"), (clocks, "the same ncu_clock_control")] {
        let refused = service.get(&format!("/jobs/{first}/compare/{other}"), "good-alice").await;
        assert_eq!(refused.status.as_u16(), 409);
        assert!(refused.detail().contains(advice), "{}", refused.detail());
    }
}
