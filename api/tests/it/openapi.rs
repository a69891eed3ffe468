//! `docs/openapi.yaml` says what the code does. What every single answer is held against stands in `support::description`.

use std::collections::BTreeSet;
use std::time::Duration;

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
    // The last part of a path can have slashes here, and a description has no word for that.
    let routes: BTreeSet<String> = app::routes().into_iter().map(|(path, _)| path.replace("{*", "{")).collect();
    assert_eq!(routes, description::paths());
    let service = Service::start().await;
    for path in routes {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"] {
            let method: Method = method.parse().unwrap();
            let sent = path
                .replace("{id}", "0123456789abcdef0123456789abcdef")
                .replace("{name}", "a.zip")
                .replace("{entry}", "a/b");
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
    crate::reuse::taken(service).await;
    let body = service.get(&job, "good-alice").await.json();
    let artifact = body["artifacts"][0]["url"].as_str().unwrap().to_owned();
    let both = async |service: &Service, path: &str, cli_id: &str, status: u16| {
        for method in [Method::GET, Method::HEAD] {
            let answer: Answer = send(service.request(method, path, Some(cli_id))).await;
            assert_eq!(answer.status, status, "{path}");
        }
    };
    let (entry, events) = (format!("{artifact}/deep/a.bin"), format!("{job}/events"));
    both(service, "/health", "", 200).await;
    both(service, "/openapi.yaml", "", 200).await;
    let (report, compare) = (format!("{job}/report"), format!("{job}/compare/{id}"));
    for path in [&job, &events, &artifact, &entry, &report, &compare] {
        both(service, path, "good-alice", 200).await;
        both(service, path, "good-bob", 404).await;
        both(service, path, "", 401).await;
    }
    both(service, "/jobs", "good-alice", 200).await;
    both(service, "/jobs", "", 401).await;
    for path in ["/jobs?limit=x", &format!("{job}?wait=x"), &format!("{events}?after=x")] {
        both(service, path, "good-alice", 422).await;
    }
    both(service, &format!("{events}?after={}", body["version"]), "good-alice", 204).await;
    for path in [&artifact, &entry] {
        let tag = service.get(path, "good-alice").await.headers["etag"].clone();
        for method in [Method::GET, Method::HEAD] {
            let known = service.request(method, path, Some("good-alice")).header("If-None-Match", &tag);
            assert_eq!(send(known).await.status, 304, "{path}");
        }
    }
    for (range, status) in [("bytes=1-2", 206), ("bytes=99999999-", 416)] {
        let part = service.request(Method::GET, &artifact, Some("good-alice")).header("Range", range);
        assert_eq!(send(part).await.status, status);
    }
    cancellations(service, &job).await;
    sqlx::query("UPDATE runs SET artifact_expired_at = now()").execute(&service.pool).await.unwrap();
    both(service, &artifact, "good-alice", 410).await;
    both(service, &entry, "good-alice", 410).await;
    let crowded =
        Service::start_with(&[("NCU_SERVICE_MAX_WAITERS", "1"), ("NCU_SERVICE_MAX_WAITERS_PER_USER", "1")]).await;
    let waiting = format!("/jobs/{}/events", crowded.accepted("good-alice").await);
    let _held = crowded.request(Method::GET, &waiting, Some("good-alice")).send().await.unwrap();
    both(&crowded, &waiting, "good-alice", 429).await;
    sqlx::query("DELETE FROM digests").execute(&service.pool).await.unwrap();
    both(service, &compare, "good-alice", 409).await;
    let wire = Wire::to("127.0.0.1:1".to_owned()).await;
    let nowhere = format!("postgres://nobody@{}/nothing", wire.address);
    let settings = [("NCU_SERVICE_DATABASE_URL", nowhere.as_str()), ("NCU_SERVICE_DATABASE_PATIENCE_SECS", "1")];
    let away = Service::start_with(&settings).await;
    for path in ["/jobs", &job, &events, &artifact, &entry, &report, &compare] {
        both(&away, path, "good-alice", 503).await;
    }
    assert_eq!(send(away.request(Method::DELETE, &job, Some("good-alice"))).await.status, 503);
}

async fn cancellations(service: &Service, ended: &str) {
    let waiting = format!("/jobs/{}", service.accepted("good-erin").await);
    let running = format!("/jobs/{}", service.accepted("good-frank").await);
    for (path, cli_id, status) in
        [(ended, "good-alice", 409), (ended, "good-bob", 404), (ended, "", 401), (&waiting, "good-erin", 200)]
    {
        assert_eq!(send(service.request(Method::DELETE, path, Some(cli_id))).await.status, status, "{path}");
    }
    service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    assert_eq!(send(service.request(Method::DELETE, &running, Some("good-frank"))).await.status, 202);
}
