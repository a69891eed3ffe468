//! `POST /profile` with and without `fresh`: who wants a new measurement gets one, and who does not need not wait.

use jobs::queue::WorkerState;
use reqwest::{Method, StatusCode};

use crate::artifacts::profiled;
use crate::support::{Answer, Form, Service, send};

/// A stored result of good-alice, and a worker that would make the same; its job and archive.
async fn stored(service: &Service) -> (String, Vec<u8>) {
    let (id, content) = profiled(service).await;
    note_made_with(service).await;
    (id, content)
}

async fn note_made_with(service: &Service) {
    let problem = service.app.problem("qr_v2".to_owned()).await.unwrap();
    let version = service.app.problem_version(problem).await.unwrap();
    let noted = sqlx::query("UPDATE runs SET setup = 'setup', problem_version = $1").bind(version);
    noted.execute(&service.pool).await.unwrap();
    service.queue.heartbeat("w", "host", WorkerState::Idle, None, None).await.unwrap();
    service.queue.note_setup("w", "setup").await.unwrap();
}

fn form() -> Form {
    Form::usual().text("benchmark_index", "0")
}

async fn submit(service: &Service, query: &str, form: Form) -> Answer {
    send(form.onto(service.request(Method::POST, &format!("/profile{query}"), Some("good-alice")))).await
}

/// Takes the result that is stored already.
pub async fn taken(service: &Service) {
    note_made_with(service).await;
    assert_eq!(submit(service, "?fresh=0", form()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_stored_result_answers_whoever_takes_one_and_its_archive_is_there() {
    let service = Service::start().await;
    let (first, content) = stored(&service).await;
    for (query, form) in
        [("", form().text("fresh", "0")), ("?fresh=0", form()), ("?fresh=1", form().text("fresh", "0"))]
    {
        let answer = submit(&service, query, form).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}");
        let accepted = answer.json();
        assert_eq!((&accepted["cached"], &accepted["status"]), (&true.into(), &"succeeded".into()));
        let id = accepted["job_id"].as_str().unwrap();
        assert_ne!(id, first, "it has a time of its own");
        // What an old client does with it: poll once, download.
        let body = service.get(&format!("/jobs/{id}"), "good-alice").await.json();
        assert_eq!(
            (&body["status"], &body["cached"], &body["error"]),
            (&"succeeded".into(), &true.into(), &serde_json::Value::Null)
        );
        assert!(body["measured_at"].is_string());
        let archive = service.get(body["artifacts"][0]["url"].as_str().unwrap(), "good-alice").await;
        assert!(archive.bytes == content);
    }
}

#[tokio::test]
async fn a_client_that_knows_of_no_stored_results_measures_again_and_is_told_of_one() {
    let service = Service::start().await;
    let (first, _) = stored(&service).await;
    let answer = submit(&service, "", form()).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert_eq!((&answer.json()["cached"], &answer.json()["same_as"]), (&false.into(), &first.into()));
    let answer = submit(&service, "", form().text("fresh", "1")).await;
    assert_eq!((answer.status, &answer.json()["same_as"]), (StatusCode::ACCEPTED, &serde_json::Value::Null));
    let answer = submit(&service, "", form().text("fresh", "yes")).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn nobody_is_answered_by_anothers_result_unless_the_operator_allows_it() {
    let take = || form().text("fresh", "0");
    let service = Service::start().await;
    stored(&service).await;
    assert_eq!(service.submit("good-bob", take()).await.status, StatusCode::ACCEPTED);
    let shared = Service::start_with(&[("NCU_SERVICE_SHARE_RESULTS", "1")]).await;
    let (_, content) = stored(&shared).await;
    let told = shared.submit("good-bob", form()).await.json();
    assert_eq!(told["same_as"], serde_json::Value::Null, "another's job is nothing to ask for");
    let answer = shared.submit("good-bob", take()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let job = format!("/jobs/{}", answer.json()["job_id"].as_str().unwrap());
    let body = shared.get(&job, "good-bob").await.json();
    assert!(shared.get(body["artifacts"][0]["url"].as_str().unwrap(), "good-bob").await.bytes == content);
    assert_eq!(shared.get(&job, "good-alice").await.status, StatusCode::NOT_FOUND);
}
