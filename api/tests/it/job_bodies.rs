//! `GET /jobs/{id}`: names, types and order of what users' tools parse.

use std::time::Duration;

use chrono::DateTime;
use jobs::queue::{ClockControl, ErrorKind, KernelTime, PendingRun, RunEnd, State, StoredArtifact};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{Form, Service};

/// Takes the timestamps out, after a look at their form, so that the rest can be compared as a whole.
fn without_times(mut body: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    match value {
                        Value::String(at) if key.ends_with("_at") => {
                            assert!(DateTime::parse_from_rfc3339(at).is_ok() && at.ends_with("+00:00"), "{at}");
                            "a time".clone_into(at);
                        }
                        _ => strip(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut body);
    body
}

#[tokio::test]
async fn a_queued_job_has_every_field_that_tools_parse() {
    let service = Service::start().await;
    let form = Form::usual().text("benchmark_index", "1").text("ncu_launch_count", "3");
    let id = service.submit("good-alice", form).await.json()["job_id"].as_str().unwrap().to_owned();
    let answer = service.get(&format!("/jobs/{id}"), "good-alice").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/json");
    let shape = json!({"n": 64, "batch": 40, "cond": 1});
    let expected = json!({
        "id": id,
        "status": "queued",
        "queue_position": 1,
        "error": null,
        "leaderboard": "qr_v2",
        "problem_dir": "linalg/qr_v2",
        "created_at": "a time",
        "started_at": null,
        "ended_at": null,
        "requested_benchmarks": [{"index": 1, "config": shape}],
        "runs": [{
            "benchmark_index": 1, "benchmark": shape, "status": "queued", "exit_code": null, "error": null,
            "artifact_name": null, "error_kind": null, "output_tail": null, "simulated": false, "clock_control": null,
            "launches": [], "coverage": null, "summary": null, "started_at": null, "ended_at": null, "artifact_expired_at": null,
        }],
        "artifacts": [],
        "error_kind": null,
        "attempt": 0,
        "options": {"ncu_launch_count": 3},
        "simulated": false,
        "cached": false,
        "measured_at": null,
        "cancelled": false,
        "cancel_requested": false,
        "version": 1,
        "estimated_start_at": null,
        "estimated_start_range": null,
        "estimated_end_at": null,
        "estimated_end_range": null,
        "progress": null,
        "notice": null,
        "attempts": [],
        "observed_at": "a time",
    });
    // As text: the order of the keys, those of the shape above all, is part of it.
    assert_eq!(
        serde_json::to_string_pretty(&without_times(answer.json())).unwrap(),
        serde_json::to_string_pretty(&expected).unwrap()
    );
}

#[tokio::test]
async fn a_job_of_which_one_shape_failed_names_the_shape_and_offers_the_others_zips() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    let claim = service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    for PendingRun { benchmark_index: index, shape, .. } in &claim.pending {
        let run = claim.lease_of(*index);
        service.queue.start_run(run).await.unwrap();
        let failed = *index == 2;
        let stored = StoredArtifact { path: format!("p/{index}"), bytes: 7, sha256: [1; 32] };
        let end = RunEnd {
            state: if failed { State::Failed } else { State::Succeeded },
            exit_code: Some(i32::from(failed)),
            error: failed.then(|| (ErrorKind::Submission, "It does not compile.".to_owned())),
            output_tail: failed.then(|| "one line\nanother".to_owned()),
            simulated: true,
            clock_control: (!failed).then_some(ClockControl::Base),
            launches: if failed {
                Vec::new()
            } else {
                vec![KernelTime { kernel: "geqr2(float*)".to_owned(), count: 3, total_ns: 900, share: 0.9 }]
            },
            coverage: (!failed).then_some(0.9),
            digest: None,
            artifact: (!failed).then(|| (shape.artifact_name(*index), stored)),
        };
        service.queue.finish_run(run, &end).await.unwrap();
    }
    service.queue.finish(claim.id, claim.token).await.unwrap();

    let body = without_times(service.get(&format!("/jobs/{id}"), "good-alice").await.json());
    assert_eq!((&body["status"], &body["queue_position"]), (&json!("failed"), &Value::Null));
    assert!(body["error"].as_str().unwrap().contains("It does not compile."), "{body}");
    assert_eq!((&body["started_at"], &body["ended_at"]), (&json!("a time"), &json!("a time")));
    assert_eq!((&body["attempt"], &body["simulated"]), (&json!(1), &json!(true)));
    let held = json!({"attempt": 1, "adoption": 0, "outcome": "ended", "started_at": "a time", "ended_at": "a time"});
    assert_eq!(body["attempts"], json!([held]));
    let name = "profile.0-n-32-batch-20-cond-1.zip";
    assert_eq!(
        body["artifacts"][0],
        json!({
            "name": name, "url": format!("/jobs/{id}/artifacts/{name}"), "benchmark_index": 0,
            "benchmark": {"n": 32, "batch": 20, "cond": 1}, "bytes": 7,
        })
    );
    assert_eq!(body["artifacts"].as_array().unwrap().len(), 2);
    // The times are the overview's, which locks no clocks, whatever the report was made with.
    let hot = json!([{"kernel": "geqr2(float*)", "count": 3, "total_ns": 900, "share": 0.9, "clock_control": "none"}]);
    let run = &body["runs"][0];
    assert_eq!((&run["launches"], &run["coverage"], &run["clock_control"]), (&hot, &json!(0.9), &json!("base")));
    assert_eq!(
        body["runs"][2],
        json!({
            "benchmark_index": 2, "benchmark": {"n": 512, "batch": 640, "cond": 2}, "status": "failed", "exit_code": 1,
            "error": "It does not compile.", "artifact_name": null, "error_kind": "submission",
            "output_tail": "one line\nanother", "simulated": true, "clock_control": null, "launches": [], "coverage": null, "summary": null,
            "started_at": "a time", "ended_at": "a time", "artifact_expired_at": null,
        })
    );
}
