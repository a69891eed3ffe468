//! What a connection may cost.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::form::BOUNDARY;
use crate::support::{Form, Service};

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

async fn connect(service: &Service) -> TcpStream {
    TcpStream::connect(service.address).await.unwrap()
}

/// Everything up to the end of the connection, which must come; a reset is an end, too.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut bytes)).await.expect("no end");
    String::from_utf8(bytes).unwrap()
}

/// Sends a request and reads the first bytes of its answer.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = vec![0; 16 << 10];
    let length = stream.read(&mut bytes).await.unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

#[tokio::test]
async fn of_too_many_connections_the_one_that_idles_longest_makes_room() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_CONNECTIONS", "2")]).await;
    let (mut used, mut slow) = (connect(&service).await, connect(&service).await);
    // Each is known to be taken when it has been answered.
    assert!(ask(&mut slow, HEALTH).await.starts_with("HTTP/1.1 200 "));
    assert!(ask(&mut used, HEALTH).await.starts_with("HTTP/1.1 200 "));
    slow.write_all(b"GET /health HTTP/1.1\r\nHost: ").await.unwrap();
    let mut third = connect(&service).await;
    assert!(ask(&mut third, HEALTH).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(rest(&mut slow).await, "");
    assert!(ask(&mut used, HEALTH).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_request_in_progress_is_not_given_up_for_a_new_connection() {
    let service = Service::start_with(&[("NCU_SERVICE_MAX_CONNECTIONS", "1")]).await;
    let submission = service.submit("held-id", Form::usual());
    let rush = async {
        service.kernelbot.questions(1).await;
        let mut refused = connect(&service).await;
        let _ = refused.write_all(HEALTH.as_bytes()).await;
        assert_eq!(rest(&mut refused).await, "");
        service.kernelbot.release();
    };
    let (answer, ()) = tokio::join!(submission, rush);
    assert_eq!(answer.status, reqwest::StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_head_that_does_not_end_and_a_connection_that_is_not_used_are_closed() {
    let service = Service::start_with(&[("NCU_SERVICE_IDLE_TIMEOUT_SECS", "1")]).await;
    let mut silent = connect(&service).await;
    let mut slow = connect(&service).await;
    slow.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nX-").await.unwrap();
    let mut kept = connect(&service).await;
    assert!(ask(&mut kept, HEALTH).await.starts_with("HTTP/1.1 200 "));
    for stream in [&mut silent, &mut slow, &mut kept] {
        let rest = rest(stream).await;
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408 "), "{rest}");
    }
}

#[tokio::test]
async fn a_head_of_too_many_fields_or_bytes_is_refused() {
    let service = Service::start().await;
    let fields = |count: usize| {
        (0..count).fold(String::new(), |mut fields, n| {
            write!(fields, "X-{n}: y\r\n").unwrap();
            fields
        })
    };
    for (head, status) in [
        (format!("GET /health HTTP/1.1\r\n{}\r\n", fields(100)), "200"),
        (format!("GET /health HTTP/1.1\r\n{}\r\n", fields(101)), "431"),
        (format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(30 << 10)), "200"),
        (format!("GET /health HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(40 << 10)), "431"),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(40 << 10)), "431"),
    ] {
        let mut stream = connect(&service).await;
        let _ = stream.write_all(head.as_bytes()).await;
        let mut bytes = vec![0; 64];
        let length = stream.read(&mut bytes).await.unwrap();
        let answer = String::from_utf8_lossy(&bytes[..length]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_holds_up_no_answer_for_long() {
    let service = Service::start_with(&[("NCU_SERVICE_UPLOAD_TIMEOUT_SECS", "1")]).await;
    let cases = [
        ("GET /health", "good-raw", "200"),
        ("GET /jobs/x", "good-raw", "404"),
        ("DELETE /nothing", "good-raw", "404"),
        ("POST /profile", "bad-raw", "401"),
        ("POST /profile", "good-raw", "408"),
    ];
    let lengths = ["Content-Length: 1000", "Transfer-Encoding: chunked"];
    let requests = cases.iter().flat_map(|case| lengths.map(|length| (case, length)));
    let answers = requests.map(async |(&(line, cli_id, status), length)| {
        let mut stream = connect(&service).await;
        let head = format!(
            "{line} HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: {cli_id}\r\n\
             Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n{length}\r\n\r\n"
        );
        let answer = tokio::time::timeout(Duration::from_mins(1), ask(&mut stream, &head)).await.expect(line);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
    });
    join_all(answers).await;
    assert_eq!(service.jobs().await, 0);
}

#[tokio::test]
async fn a_form_in_chunks_is_read_like_any_other_and_has_the_same_limit() {
    let service = Service::start().await;
    for (file, status) in [(100, "202"), (1_000_001, "413"), (3_000_000, "413")] {
        let form = Form::new().file("s.py", &vec![b'#'; file]).text("leaderboard", "qr_v2").bytes();
        let mut stream = connect(&service).await;
        let head = format!(
            "POST /profile HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Popcorn-Cli-Id: good-raw\r\n\
             Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        for part in form.chunks(10_000) {
            stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await.unwrap();
            stream.write_all(part).await.unwrap();
            stream.write_all(b"\r\n").await.unwrap();
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{file}: {answer}");
    }
    assert_eq!(service.jobs().await, 1);
}
