//! `docs/openapi.yaml` says what the code does. What every single answer is held against stands in `support::description`.

use std::collections::BTreeSet;

use ncu_api::app;
use ncu_api::error::MAX_FILE_BYTES;
use reqwest::Method;
use reqwest::header::HeaderName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::artifacts::profiled;
use crate::page;
use crate::support::outage::Wire;
use crate::support::{Answer, Form, Service, description, send};

#[tokio::test]
async fn every_path_and_method_of_the_router_is_described_and_no_other() {
    let routes: BTreeSet<String> = app::routes().into_iter().map(|(path, _)| path.to_owned()).collect();
    assert_eq!(routes, description::paths());
    let service = Service::start().await;
    for path in routes {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"] {
            let method: Method = method.parse().unwrap();
            let sent = path.replace("{id}", "0123456789abcdef0123456789abcdef").replace("{name}", "a.zip");
            let answer = send(service.request(method.clone(), &sent, None)).await;
            assert_eq!(answer.status != 405, description::takes(&path, &method), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_service_hands_out_its_description() {
    let service = Service::start().await;
    let answer = service.get("/openapi.yaml", "").await;
    assert_eq!(
        (answer.status, &answer.headers["content-type"]),
        (200.try_into().unwrap(), &"application/yaml".parse().unwrap())
    );
    assert_eq!(answer.bytes, include_bytes!("../../../docs/openapi.yaml"));
}

#[test]
fn the_description_holds_together() {
    description::holds_together();
}

#[tokio::test]
async fn every_described_answer_is_given() {
    let settings = [
        ("NCU_SERVICE_KERNELBOT_TIMEOUT_SECS", "1"),
        ("NCU_SERVICE_UPLOAD_TIMEOUT_SECS", "1"),
        ("NCU_SERVICE_MAX_JOBS_PER_USER", "1"),
    ];
    let service = Service::start_with(&settings).await;
    submissions(&service).await;
    reads(&service).await;
    page::every_described_answer(&service).await;
    // 500 is a defect, and a leaderboard whose files are broken.
    let all: BTreeSet<_> = description::operations()
        .into_iter()
        .filter(|&(_, ref path, status)| status != 500 || path == "/profile")
        .collect();
    let seen = description::seen();
    let missing: Vec<_> = all.difference(&seen).collect();
    assert!(missing.is_empty(), "described, and given to none of these requests: {missing:?}");
}

async fn submissions(service: &Service) {
    let file = |bytes: usize| Form::new().file("s.py", &vec![b'#'; bytes]);
    let to = |leaderboard: &str| file(1).text("leaderboard", leaderboard);
    for (cli_id, form, status) in [
        ("good-carol", Form::usual(), 202),
        ("good-carol", Form::usual(), 429),
        ("good-dave", to("nothing"), 404),
        ("good-dave", file(MAX_FILE_BYTES + 1), 413),
        ("good-dave", Form::new(), 422),
        ("good-dave", to("gone"), 500),
        ("ill-id", Form::usual(), 503),
        ("bad-id", Form::usual(), 401),
    ] {
        assert_eq!(service.submit(cli_id, form).await.status, status);
    }
    let post = || service.request(Method::POST, "/profile", Some("good-dave"));
    assert_eq!(send(post().body("x")).await.status, 415);
    assert_eq!(send(post().header("Content-Type", "multipart/form-data; boundary=x").body("y")).await.status, 400);
    assert_eq!(stalled_submission(service, "good-dave").await.status, 408);
    let open = Service::start_with(&[("NCU_SERVICE_REQUIRE_CLI_ID", "0")]).await;
    let page = Form::usual().onto(open.request(Method::POST, "/profile", None)).header("Origin", "http://x");
    assert_eq!(send(page).await.status, 403);
}

/// A submission of which no body comes.
async fn stalled_submission(service: &Service, cli_id: &str) -> Answer {
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let head = format!(
        "POST /profile HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Popcorn-Cli-Id: {cli_id}\r\n\
         Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 100\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
    let answer = Answer { status, headers, bytes: body.as_bytes().to_vec() };
    description::check(&Method::POST, "/profile", &answer);
    answer
}

async fn reads(service: &Service) {
    assert_eq!(service.end_all_jobs().await, 1);
    let (id, _) = profiled(service).await;
    let job = format!("/jobs/{id}");
    let body = service.get(&job, "good-alice").await.json();
    let artifact = body["artifacts"][0]["url"].as_str().unwrap().to_owned();
    let both = async |service: &Service, path: &str, cli_id: &str, status: u16| {
        for method in [Method::GET, Method::HEAD] {
            let answer: Answer = send(service.request(method, path, Some(cli_id))).await;
            assert_eq!(answer.status, status, "{path}");
        }
    };
    both(service, "/health", "", 200).await;
    both(service, "/openapi.yaml", "", 200).await;
    for path in [&job, &artifact] {
        both(service, path, "good-alice", 200).await;
        both(service, path, "good-bob", 404).await;
        both(service, path, "", 401).await;
    }
    sqlx::query("UPDATE runs SET artifact_expired_at = now()").execute(&service.pool).await.unwrap();
    both(service, &artifact, "good-alice", 410).await;
    let wire = Wire::to("127.0.0.1:1".to_owned()).await;
    let nowhere = format!("postgres://nobody@{}/nothing", wire.address);
    let settings = [("NCU_SERVICE_DATABASE_URL", nowhere.as_str()), ("NCU_SERVICE_DATABASE_PATIENCE_SECS", "1")];
    let away = Service::start_with(&settings).await;
    both(&away, &job, "good-alice", 503).await;
    both(&away, &artifact, "good-alice", 503).await;
}
