//! `POST /profile`, accepted.

use jobs::ids::Owner;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{Form, Service};

#[tokio::test]
async fn a_submission_is_queued_with_every_shape_in_the_order_of_task_yml() {
    let service = Service::start().await;
    let source = "#!POPCORN leaderboard qr_v2\n# é\r\ndef custom_kernel(data): return data\r\n";
    let form = Form::new().file("dir/my kernel.py", source.as_bytes()).text("leaderboard", "qr_v2");
    let answer = service.submit("good-alice", form).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let body = answer.json();
    let id = body["job_id"].as_str().unwrap();
    assert_eq!(body, json!({"job_id": id, "status": "queued", "queue_position": 1, "cached": false, "same_as": null}));
    assert!(id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{id}");

    let claim = service.queue.claim("a worker", std::time::Duration::from_mins(1)).await.unwrap().unwrap();
    assert_eq!(claim.id.to_string(), id);
    assert_eq!((claim.file_name.as_str(), claim.source.as_str()), ("my kernel.py", source));
    assert_eq!((claim.leaderboard.as_str(), claim.problem_dir.as_str()), ("qr_v2", "linalg/qr_v2"));
    let specs: Vec<(u32, String)> = claim.pending.iter().map(|run| (run.benchmark_index, run.shape.spec())).collect();
    let expected = ["n: 32; batch: 20; cond: 1", "n: 64; batch: 40; cond: 1", "n: 512; batch: 640; cond: 2"];
    assert_eq!(specs, (0..).zip(expected.map(str::to_owned)).collect::<Vec<_>>());

    let owner: Vec<u8> = sqlx::query_scalar("SELECT owner FROM jobs").fetch_one(&service.pool).await.unwrap();
    assert_eq!(owner, Owner::from_credential("good-alice").as_bytes());
}

#[tokio::test]
async fn one_index_and_the_capture_options_reach_the_job() {
    let service = Service::start().await;
    let form = Form::usual()
        .text("benchmark_index", "2")
        .text("ncu_kernel_name", "regex:^geqr2")
        .text("ncu_kernel_name_base", "mangled")
        .text("ncu_launch_count", "4")
        .text("ncu_capture", "hot")
        .text("ncu_clock_control", "none")
        .text("ncu_warm_calls", "3");
    assert_eq!(service.submit("new-bob", form).await.status, StatusCode::ACCEPTED);
    let claim = service.queue.claim("a worker", std::time::Duration::from_mins(1)).await.unwrap().unwrap();
    assert_eq!(claim.pending.iter().map(|run| run.benchmark_index).collect::<Vec<_>>(), [2]);
    let options: Value = serde_json::to_value(&claim.options).unwrap();
    let expected = json!({
        "ncu_capture": "hot", "ncu_clock_control": "none", "ncu_kernel_name": "regex:^geqr2",
        "ncu_kernel_name_base": "mangled", "ncu_launch_count": 4, "ncu_warm_calls": 3,
    });
    assert_eq!(options, expected);
}

#[tokio::test]
async fn a_file_of_exactly_the_limit_is_accepted() {
    let service = Service::start().await;
    let form = Form::new().file("submission.py", &vec![b'#'; 1_000_000]).text("leaderboard", "qr_v2");
    assert_eq!(service.submit("good-alice", form).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn small_fields_of_newer_clients_are_ignored() {
    let service = Service::start().await;
    let form = Form::usual().text("client_version", "9.9.9").text("mode", "profile");
    assert_eq!(service.submit("good-alice", form).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn positions_count_the_jobs_ahead_of_everybody() {
    let service = Service::start().await;
    for position in 1..=3 {
        let answer = service.submit(&format!("good-{position}"), Form::usual()).await;
        assert_eq!(answer.json()["queue_position"], position);
    }
}
