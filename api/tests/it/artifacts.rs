//! `GET /jobs/{id}/artifacts/{name}`.

use std::time::Duration;

use jobs::queue::{RunEnd, State};
use reqwest::{Method, StatusCode};

use crate::reports;
use crate::support::{Answer, Form, Service, send};

const NAME: &str = "profile.0-n-32-batch-20-cond-1.zip";

/// A job of good-alice with one archive of three megabytes; returns its id and the archive.
pub async fn profiled(service: &Service) -> (String, Vec<u8>) {
    let form = Form::usual().text("benchmark_index", "0");
    assert_eq!(service.submit("good-alice", form).await.status, StatusCode::ACCEPTED);
    let claim = service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let file = service.folder.path().join("zip");
    std::fs::write(&file, &content).unwrap();
    let stored = service.app.store.put_file(&format!("jobs/{}/1/{NAME}", claim.id), &file).await.unwrap();
    let run = claim.lease_of(0);
    service.queue.start_run(run).await.unwrap();
    let end = RunEnd {
        state: State::Succeeded,
        exit_code: Some(0),
        error: None,
        output_tail: None,
        simulated: false,
        clock_control: None,
        launches: Vec::new(),
        coverage: None,
        digest: Some(Box::new(reports::digest(&claim.id.to_string(), 0))),
        artifact: Some((NAME.to_owned(), stored)),
    };
    service.queue.finish_run(run, &end).await.unwrap();
    service.queue.finish(claim.id, claim.token).await.unwrap();
    (claim.id.to_string(), content)
}

fn headers(answer: &Answer) -> [&str; 4] {
    ["content-type", "content-length", "content-disposition", "x-content-type-options"]
        .map(|name| answer.headers[name].to_str().unwrap())
}

#[tokio::test]
async fn an_archive_comes_whole_with_its_length_and_name() {
    let service = Service::start().await;
    let (id, content) = profiled(&service).await;
    let url = service.get(&format!("/jobs/{id}"), "good-alice").await.json()["artifacts"][0]["url"].clone();
    let answer = service.get(url.as_str().unwrap(), "good-alice").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.bytes == content);
    let disposition = format!("attachment; filename=\"{NAME}\"");
    assert_eq!(headers(&answer), ["application/zip", "3000000", &disposition, "nosniff"]);

    let head = send(service.request(Method::HEAD, url.as_str().unwrap(), Some("good-alice"))).await;
    assert_eq!((head.status, headers(&head), head.bytes.len()), (StatusCode::OK, headers(&answer), 0));
}

#[tokio::test]
async fn no_other_name_and_no_other_owner_reaches_a_file() {
    let service = Service::start().await;
    let (id, _) = profiled(&service).await;
    let names = [
        "other.zip",
        "..",
        "%2e%2e",
        "..%2f..%2fzip",
        "%2e%2e%2fzip",
        "a%00b",
        "%ff",
        "profile.0*",
        "PROFILE.0-n-32-batch-20-cond-1.zip",
    ];
    for (name, cli_id) in names.map(|name| (name, "good-alice")).into_iter().chain([(NAME, "good-mallory")]) {
        let answer = service.get(&format!("/jobs/{id}/artifacts/{name}"), cli_id).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{name}");
        assert!(answer.detail().ends_with('.'), "{name}");
    }
}

#[tokio::test]
async fn an_archive_that_the_store_lost_is_our_fault_and_says_nothing_of_where_it_was() {
    let service = Service::start().await;
    let (id, _) = profiled(&service).await;
    std::fs::remove_dir_all(service.folder.path().join("artifacts")).unwrap();
    let answer = service.get(&format!("/jobs/{id}/artifacts/{NAME}"), "good-alice").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.detail(), "The profile cannot be read from the store at this moment: try again in a minute.");
}

#[tokio::test]
async fn an_archive_that_has_expired_is_gone_and_its_job_says_so() {
    let service = Service::start().await;
    let (id, _) = profiled(&service).await;
    sqlx::query("UPDATE runs SET artifact_expired_at = now()").execute(&service.pool).await.unwrap();
    let answer = service.get(&format!("/jobs/{id}/artifacts/{NAME}"), "good-alice").await;
    assert_eq!(answer.status, StatusCode::GONE);
    assert_eq!(answer.detail(), "This profile has expired and was removed: submit again for a new one.");
    let others = service.get(&format!("/jobs/{id}/artifacts/{NAME}"), "good-bob").await;
    assert_eq!(others.status, StatusCode::NOT_FOUND);

    let body = service.get(&format!("/jobs/{id}"), "good-alice").await.json();
    assert_eq!((&body["status"], body["artifacts"].as_array().unwrap().len()), (&"succeeded".into(), 0));
    assert_eq!(body["runs"][0]["artifact_name"], NAME);
    assert!(body["runs"][0]["artifact_expired_at"].is_string(), "{body}");
}
