//! `GET /jobs` and `DELETE /jobs/{id}`: nobody loses a job with its id, and whoever has enough of one ends it.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::artifacts::profiled;
use crate::support::{Answer, Form, Service, send};

async fn delete(service: &Service, path: &str, cli_id: &str) -> Answer {
    send(service.request(Method::DELETE, path, Some(cli_id))).await
}

/// The ids on a page.
fn ids(page: &Value) -> Vec<&str> {
    page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_client_that_was_killed_after_its_submission_finds_the_job_and_fetches_its_profile() {
    let service = Service::start().await;
    // The client is gone before it has read the answer; another's job is beside it.
    let (id, content) = profiled(&service).await;
    service.accepted("good-bob").await;

    let page = service.get("/jobs", "good-alice").await.json();
    assert_eq!(ids(&page), [&id]);
    let job = &page["jobs"][0];
    assert_eq!((&job["status"], &job["shapes"], &job["archives"]), (&"succeeded".into(), &1.into(), &1.into()));
    assert_eq!(job["file_name"], "submission.py");
    // Of the file that every form of these tests holds.
    assert_eq!(job["file_sha256"], "e421ebba027f6fafd833e641df7a34b1b13a397692d1964535e674c97eb4cce4");
    let body = service.get(job["url"].as_str().unwrap(), "good-alice").await.json();
    // As often as one likes, until its time is over.
    for _ in 0..3 {
        let archive = service.get(body["artifacts"][0]["url"].as_str().unwrap(), "good-alice").await;
        assert!(archive.bytes == content);
    }
}

#[tokio::test]
async fn the_newest_job_comes_first_and_a_cursor_leads_through_all_of_them_once() {
    let service = Service::start().await;
    let mut submitted = Vec::new();
    for _ in 0..5 {
        submitted.push(service.accepted("good-alice").await);
    }
    service.accepted("good-bob").await;
    submitted.reverse();
    let mut seen: Vec<String> = Vec::new();
    let mut path = "/jobs?limit=2".to_owned();
    for pages in 1.. {
        let page = service.get(&path, "good-alice").await.json();
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        // One that is submitted meanwhile moves nothing.
        service.accepted("good-alice").await;
        let Some(cursor) = page["next_cursor"].as_str() else {
            assert_eq!(pages, 3);
            break;
        };
        path = format!("/jobs?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, submitted);
}

#[tokio::test]
async fn a_list_is_filtered_by_state_leaderboard_and_time() {
    let service = Service::start().await;
    let (done, _) = profiled(&service).await;
    let waiting = service.accepted("good-alice").await;
    let listed = async |query: &str| {
        let page = service.get(&format!("/jobs?{query}"), "good-alice").await.json();
        ids(&page).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed("status=succeeded").await, [done.as_str()]);
    assert_eq!(listed("status=queued&leaderboard=qr_v2").await, [waiting.as_str()]);
    assert!(listed("leaderboard=other%00").await.is_empty());
    let created_at = service.get(&format!("/jobs/{waiting}"), "good-alice").await.json()["created_at"].clone();
    // With the plus of its zone as clients often send it.
    let since = created_at.as_str().unwrap();
    assert_eq!(listed(&format!("since={since}")).await, [waiting.as_str()]);
    assert_eq!(listed(&format!("since={}", since.replace('+', "%2B"))).await, [waiting.as_str()]);

    let foreign = service.accepted("good-bob").await;
    for wrong in [
        "status=done".to_owned(),
        "since=yesterday".to_owned(),
        "limit=0".to_owned(),
        "limit=101".to_owned(),
        "limit=x".to_owned(),
        "cursor=x".to_owned(),
        format!("cursor={foreign}"),
        "limit=1&limit=2".to_owned(),
    ] {
        let answer = service.get(&format!("/jobs?{wrong}"), "good-alice").await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
        assert!(answer.detail().ends_with('.'), "{wrong}");
    }
}

#[tokio::test]
async fn a_job_that_waits_ends_at_once_when_its_owner_cancels_it() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    let path = format!("/jobs/{id}");
    assert_eq!(delete(&service, &path, "good-bob").await.status, StatusCode::NOT_FOUND);
    assert_eq!(service.get(&path, "good-alice").await.json()["status"], "queued");

    for _ in 0..2 {
        let answer = delete(&service, &path, "good-alice").await;
        assert_eq!(answer.status, StatusCode::OK, "to cancel twice is no error");
        let body = answer.json();
        assert_eq!((&body["status"], &body["cancelled"]), (&"failed".into(), &true.into()));
        assert!(body["error"].as_str().unwrap().contains("cancelled"), "{body}");
    }
    assert!(service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().is_none());
    // It has made room for another one.
    assert_eq!(service.get("/jobs", "good-alice").await.json()["jobs"][0]["cancelled"], true);
}

#[tokio::test]
async fn a_job_that_runs_is_to_end_and_one_that_has_ended_stays_as_it_is() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    let path = format!("/jobs/{id}");
    let claim = service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    let answer = delete(&service, &path, "good-alice").await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let body = answer.json();
    assert_eq!(
        (&body["status"], &body["cancelled"], &body["cancel_requested"]),
        (&"running".into(), &false.into(), &true.into())
    );
    service.queue.finish_cancelled(claim.id, claim.token).await.unwrap();
    assert_eq!(delete(&service, &path, "good-alice").await.status, StatusCode::OK);

    let (done, _) = profiled(&service).await;
    let answer = delete(&service, &format!("/jobs/{done}"), "good-alice").await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(answer.detail(), "The job has ended already and is succeeded: there is nothing to cancel.");
    assert_eq!(service.get(&format!("/jobs/{done}"), "good-alice").await.json()["cancelled"], json!(false));
}

#[tokio::test]
async fn whoever_cancels_makes_room_for_the_next_submission() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_JOBS_PER_USER", "1")]).await;
    let id = service.accepted("good-alice").await;
    assert_eq!(service.submit("good-alice", Form::usual()).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(delete(&service, &format!("/jobs/{id}"), "good-alice").await.status, StatusCode::OK);
    service.accepted("good-alice").await;
}
