//! `/admin`: who gets in, what is done, what is recorded.

use std::time::Instant;

use jobs::queue::WorkerState;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Service, send};

const TOKEN: &str = "a-token-of-more-than-thirty-two-characters";

async fn open() -> Service {
    Service::start_with(&[("NCU_SERVICE_ADMIN_TOKEN", TOKEN)]).await
}

/// An order of somebody who has the token and says who it is.
async fn order(service: &Service, method: Method, path: &str, body: Option<Value>) -> Answer {
    let request = service.request(method, path, None).bearer_auth(TOKEN).header("X-Admin-Actor", "ann");
    send(match body {
        Some(body) => request.body(body.to_string()),
        None => request,
    })
    .await
}

async fn post(service: &Service, path: &str) -> Answer {
    order(service, Method::POST, path, None).await
}

async fn get(service: &Service, path: &str) -> Value {
    let answer = order(service, Method::GET, path, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json()
}

async fn log(service: &Service) -> Vec<String> {
    let log = "SELECT concat_ws('|', actor, action, target, outcome, details) FROM admin_log ORDER BY id";
    sqlx::query_scalar(log).fetch_all(&service.pool).await.unwrap()
}

#[tokio::test]
async fn without_a_token_in_the_settings_there_is_nothing_under_admin() {
    let service = Service::start().await;
    for (method, path) in [
        (Method::GET, "/admin"),
        (Method::GET, "/admin/queue"),
        (Method::POST, "/admin/queue/pause"),
        (Method::POST, "/admin/prune"),
        (Method::DELETE, "/admin/jobs"),
    ] {
        let answer = order(&service, method, path, None).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(answer.detail(), "There is nothing at this path: the service has /health, /profile and /jobs.");
    }
    assert_eq!(log(&service).await, Vec::<String>::new());
    assert!(!service.queue.is_paused().await.unwrap());
}

#[tokio::test]
async fn whoever_lacks_the_token_is_told_so_after_a_while_and_recorded_whatever_the_path() {
    let service = open().await;
    let requests: [(Method, &str, Option<&str>); 5] = [
        (Method::POST, "/admin/queue/pause", None),
        (Method::POST, "/admin/queue/pause", Some("Bearer wrong")),
        (Method::DELETE, "/admin/queue/pause", Some("Bearer ")),
        (Method::GET, "/admin/nonsense", Some(TOKEN)),
        (Method::GET, "/admin", Some("Basic YTpi")),
    ];
    let start = Instant::now();
    for (method, path, authorization) in requests {
        let mut request = service.request(method, path, Some("good-1"));
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        let answer = send(request).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}: {answer:?}");
        let sentence = "Orders under /admin need the operators' token in the header Authorization: Bearer …";
        assert_eq!(answer.detail(), sentence);
    }
    assert!(start.elapsed().as_secs() >= 5, "{:?}", start.elapsed());
    let (no, wrong) = ("no token", "wrong token");
    let expected = [
        ("/admin/queue/pause", no),
        ("/admin/queue/pause", wrong),
        ("/admin/queue/pause", no),
        ("/admin/nonsense", no),
        ("/admin", no),
    ];
    assert_eq!(log(&service).await, expected.map(|(path, why)| format!("http|http|{path}|refused|{why}")));
    assert!(!service.queue.is_paused().await.unwrap());
    // Who has it does not wait for those who have not.
    assert_eq!(get(&service, "/admin/queue").await["queued"], 0);
}

#[tokio::test]
async fn a_flood_of_wrong_tokens_is_turned_away_and_the_record_stays_small() {
    let service = open().await;
    let request = || send(service.request(Method::GET, "/admin/queue", None).bearer_auth("wrong"));
    let mut statuses = std::collections::HashMap::new();
    let mut turned_away = 0;
    let mut requests: futures_util::stream::FuturesUnordered<_> = (0..40).map(|_| request()).collect();
    // Those that are turned away come back first.
    while turned_away < 20 {
        let answer = futures_util::StreamExt::next(&mut requests).await.unwrap();
        *statuses.entry(answer.status).or_insert(0) += 1;
        turned_away = *statuses.get(&StatusCode::TOO_MANY_REQUESTS).unwrap_or(&0);
    }
    assert_eq!(get(&service, "/admin/queue").await["running"], 0, "who has the token is let in meanwhile");
    assert!(log(&service).await.len() < 20);
}

#[tokio::test]
async fn the_queue_is_paused_and_resumed_and_the_use_recorded_by_name() {
    let service = open().await;
    let reason = Some(json!({"reason": "a new driver"}));
    let answer = order(&service, Method::POST, "/admin/queue/pause", reason).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert!(answer.json()["detail"].as_str().unwrap().starts_with("The queue is paused"));
    let status = get(&service, "/admin/queue").await;
    assert_eq!((&status["paused_by"], &status["pause_reason"]), (&json!("http ann"), &json!("a new driver")));

    let again = post(&service, "/admin/queue/pause").await;
    assert_eq!(
        (again.status, again.detail()),
        (StatusCode::CONFLICT, "The queue is paused already: status says by whom.".to_owned())
    );
    assert_eq!(post(&service, "/admin/queue/resume").await.status, StatusCode::OK);
    assert_eq!(get(&service, "/admin/queue").await["paused_at"], json!(null));
    let lines = log(&service).await;
    assert_eq!(lines[0], "http ann|pause|done|a new driver");
    assert_eq!(lines[2], "http ann|pause|refused|The queue is paused already: status says by whom.");
    assert_eq!(lines.len(), 5);
}

#[tokio::test]
async fn jobs_are_listed_shown_moved_cancelled_and_queued_again() {
    let service = open().await;
    let (first, second) = (service.accepted("good-1").await, service.accepted("good-2").await);
    let moved =
        order(&service, Method::POST, &format!("/admin/jobs/{second}/priority"), Some(json!({"priority": 2}))).await;
    assert_eq!(moved.json()["detail"], "The job has priority 2 and is number 1 in the queue.");
    let listed = get(&service, "/admin/jobs").await;
    let ids: Vec<&str> = listed["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [second.as_str(), first.as_str()]);

    let shown = get(&service, &format!("/admin/jobs/{first}")).await;
    assert_eq!((&shown["queue_position"], &shown["has_source"]), (&json!(2), &json!(true)));
    assert!(!shown.to_string().contains("custom_kernel"), "the source is not shown");

    assert_eq!(post(&service, &format!("/admin/jobs/{first}/cancel")).await.status, StatusCode::OK);
    let ended = get(&service, "/admin/jobs?ended=true&limit=5").await;
    assert_eq!((&ended["jobs"][0]["id"], &ended["jobs"][0]["note"]), (&json!(first), &json!("cancelled")));
    assert_eq!(service.get(&format!("/jobs/{first}"), "good-1").await.json()["status"], "failed");
    assert_eq!(post(&service, &format!("/admin/jobs/{first}/requeue")).await.status, StatusCode::OK);
    let body = service.get(&format!("/jobs/{first}"), "good-1").await.json();
    assert_eq!((&body["status"], &body["error"], &body["queue_position"]), (&json!("queued"), &json!(null), &json!(2)));
}

#[tokio::test]
async fn workers_are_ordered_to_drain_and_to_lift_a_quarantine_and_one_prunes() {
    let service = open().await;
    service.queue.heartbeat("gpu-1-aa", "gpu-1", WorkerState::Quarantined, None, Some("GPU 0: Xid 79")).await.unwrap();
    for path in ["/admin/workers/gpu-1/drain", "/admin/workers/gpu-1-aa/unquarantine", "/admin/prune"] {
        assert_eq!(post(&service, path).await.status, StatusCode::OK, "{path}");
    }
    let orders = service.queue.orders("gpu-1-aa").await.unwrap();
    assert!(orders.drain && orders.lift_quarantine);
    assert!(service.queue.take_prune_order().await.unwrap());
    let status = get(&service, "/admin/queue").await;
    assert_eq!(status["workers"][0]["note"], "GPU 0: Xid 79");
}

#[tokio::test]
async fn what_is_no_order_is_refused_in_a_sentence_and_recorded() {
    let service = open().await;
    let id = service.accepted("good-1").await;
    let priority = format!("/admin/jobs/{id}/priority");
    let cases = [
        (Method::GET, "/admin", None, 404, "There is no such order: /admin has queue, jobs, workers and prune."),
        (
            Method::POST,
            "/admin/nonsense",
            None,
            404,
            "There is no such order: /admin has queue, jobs, workers and prune.",
        ),
        (
            Method::GET,
            "/admin/prune",
            None,
            405,
            "This order does not take that method: what only shows is GET, everything else POST.",
        ),
        (Method::GET, "/admin/jobs/nonsense", None, 404, "There is no job of this id."),
        (Method::POST, "/admin/jobs/00000000000000000000000000000000/cancel", None, 404, "There is no job of this id."),
        (
            Method::POST,
            "/admin/workers/nobody/drain",
            None,
            404,
            "There is no worker alive whose name starts so: status lists them.",
        ),
        (
            Method::POST,
            "/admin/workers/a%00b/drain",
            None,
            404,
            "There is no worker alive whose name starts so: status lists them.",
        ),
        (Method::GET, "/admin/jobs?limit=-1", None, 422, "The list takes ?ended=true and ?limit=N."),
        (
            Method::POST,
            priority.as_str(),
            Some(json!({"priority": "high"})),
            422,
            "The body is expected as JSON like {\"priority\": 1}.",
        ),
        (Method::POST, priority.as_str(), None, 422, "The body is expected as JSON like {\"priority\": 1}."),
        (
            Method::POST,
            "/admin/queue/pause",
            Some(json!({"why": "x"})),
            422,
            "The body is expected as JSON like {\"reason\": \"a new driver\"}.",
        ),
        (
            Method::POST,
            "/admin/queue/pause",
            Some(json!({"reason": "x".repeat(20_000)})),
            422,
            "The body is expected as JSON like {\"reason\": \"a new driver\"}.",
        ),
    ];
    let count = cases.len();
    for (method, path, body, status, sentence) in cases {
        let answer = order(&service, method, path, body).await;
        assert_eq!((answer.status.as_u16(), answer.detail()), (status, sentence.to_owned()), "{path}");
    }
    let lines = log(&service).await;
    assert_eq!(lines.len(), count, "{lines:#?}");
    assert!(lines.iter().all(|line| line.starts_with("http ann|") && line.contains("|refused|")), "{lines:#?}");
    assert!(!service.queue.is_paused().await.unwrap());
}

#[tokio::test]
async fn a_name_that_cannot_be_printed_is_recorded_as_what_can_be() {
    let service = open().await;
    let request = service.request(Method::GET, "/admin/queue", None).bearer_auth(TOKEN);
    let name = reqwest::header::HeaderValue::from_bytes(b"a\tb").unwrap();
    assert_eq!(send(request.header("X-Admin-Actor", name)).await.status, StatusCode::OK);
    assert_eq!(log(&service).await, ["http a b|status|done"]);
}

#[tokio::test]
async fn every_order_of_the_document_exists() {
    let service = open().await;
    let id = service.accepted("good-1").await;
    service.queue.heartbeat("gpu-1-aa", "gpu-1", WorkerState::Quarantined, None, None).await.unwrap();
    let document = include_str!("../../../docs/operating.md");
    let orders: Vec<&str> =
        document.lines().filter(|line| line.contains(" /admin/") && line.starts_with("| `")).collect();
    assert_eq!(orders.len(), 11, "{orders:#?}");
    for order_line in orders {
        let (method, path) = order_line.split('`').nth(1).unwrap().split_once(' ').unwrap();
        let path = path.replace("JOB", &id).replace("WORKER", "gpu-1").replace("limit=N", "limit=3");
        let body = path.ends_with("/priority").then(|| json!({"priority": 1}));
        let answer = order(&service, method.parse().unwrap(), &path, body).await;
        assert!(answer.status == StatusCode::OK || answer.status == StatusCode::CONFLICT, "{order_line}: {answer:?}");
    }
}
