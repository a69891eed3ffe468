//! What no HTTP library sends.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::form::BOUNDARY;
use crate::support::{Form, Service};

/// A connection that has sent the head of a submission.
async fn submission(service: &Service, content_type: &str, length: Option<usize>) -> TcpStream {
    submission_of("good-raw", service, content_type, length).await
}

async fn submission_of(cli_id: &str, service: &Service, content_type: &str, length: Option<usize>) -> TcpStream {
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let length = length.map_or_else(String::new, |length| format!("Content-Length: {length}\r\n"));
    let head = format!(
        "POST /profile HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Popcorn-Cli-Id: {cli_id}\r\n\
         Content-Type: {content_type}\r\n{length}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

fn form_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

const BROKEN: &str = "{\"detail\":\"The upload broke off or is not a well-formed multipart form: submit again.\"}";

#[tokio::test]
async fn a_form_that_breaks_off_is_refused() {
    let service = Service::start().await;
    let whole = Form::usual().bytes();
    for cut in [0, 1, 40, 100, 150, whole.len() - 10] {
        let mut stream = submission(&service, &form_type(), Some(cut)).await;
        stream.write_all(&whole[..cut]).await.unwrap();
        let answer = answer(stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with(BROKEN), "{cut}: {answer}");
    }
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_before_its_content_length_is_refused() {
    let service = Service::start().await;
    let whole = Form::usual().bytes();
    let mut stream = submission(&service, &form_type(), Some(whole.len() + 100)).await;
    stream.write_all(&whole[..whole.len() - 10]).await.unwrap();
    stream.shutdown().await.unwrap();
    // Whether the answer still gets out is the connection's matter; nothing is queued in any case.
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let answer = String::from_utf8_lossy(&bytes);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn a_request_without_a_length_has_no_form() {
    let service = Service::start().await;
    let answer = answer(submission(&service, &form_type(), None).await).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with(BROKEN), "{answer}");
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn bad_boundaries_and_part_headers_are_refused() {
    let service = Service::start().await;
    let long = format!("multipart/form-data; boundary={}", "b".repeat(5000));
    let good = form_type();
    let header = format!("--{BOUNDARY}\r\nContent-Disposition: \0\r\n\r\nx\r\n--{BOUNDARY}--\r\n");
    let endless = format!("--{BOUNDARY}\r\nX: {}", "x".repeat(1_000_000));
    let nameless = format!("--{BOUNDARY}\r\nX-Other: y\r\n\r\nx\r\n--{BOUNDARY}--\r\n");
    for (kind, body, status) in [
        ("multipart/form-data; boundary=", Form::usual().bytes(), 400),
        ("multipart/form-data; boundary=\"", Form::usual().bytes(), 400),
        (long.as_str(), Form::usual().bytes(), 400),
        (good.as_str(), header.into_bytes(), 400),
        (good.as_str(), endless.into_bytes(), 400),
        (good.as_str(), nameless.into_bytes(), 422),
    ] {
        let mut stream = submission(&service, kind, Some(body.len())).await;
        stream.write_all(&body).await.unwrap();
        let answer = answer(stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains("\"detail\""), "{answer}");
    }
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn an_upload_that_stalls_is_ended_at_the_limit() {
    let service = Service::start_with(&[("NCU_SERVICE_UPLOAD_TIMEOUT_SECS", "1")]).await;
    let whole = Form::usual().bytes();
    let mut stream = submission(&service, &form_type(), Some(whole.len())).await;
    stream.write_all(&whole[..50]).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(30), answer(stream)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("longer than 1 seconds"), "{answer}");
    assert_eq!(service.jobs().await, 0);
    // Its place is free again.
    service.accepted("good-alice").await;
}

#[tokio::test]
async fn a_client_that_reads_only_after_it_has_sent_everything_still_learns_why_it_is_refused() {
    let service = Service::start().await;
    // More than the buffers of both ends hold.
    let body = Form::new().file("s.py", &vec![b'#'; 20 << 20]).text("leaderboard", "qr_v2").bytes();
    for (cli_id, status) in [("bad-raw", 401), ("good-raw", 413)] {
        let mut stream = submission_of(cli_id, &service, &form_type(), Some(body.len())).await;
        stream.write_all(&body).await.unwrap();
        let answer = answer(stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains("\"detail\""), "{answer}");
    }
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn two_cli_ids_are_none() {
    let service = Service::start().await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let head = "POST /profile HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Popcorn-Cli-Id: good-one\r\n\
                X-Popcorn-Cli-Id: good-two\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = answer(stream).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}
