//! `GET /jobs/{id}/artifacts/{name}`.

use std::io::Write as _;
use std::time::Duration;

use jobs::queue::{RunEnd, State};
use reqwest::{Method, StatusCode};

use crate::reports;
use crate::support::{Answer, Form, Service, run_end, send};

pub const NAME: &str = "profile.0-n-32-batch-20-cond-1.zip";

/// A zip of three megabytes.
fn zip() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    // Random numbers do not pack.
    let next = |&n: &u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    let large: Vec<u8> = std::iter::successors(Some(1), next).map(|n| (n >> 56) as u8).take(3_000_000).collect();
    let page = b"<script>alert(1)</script>";
    for (name, content) in [
        ("ncu-details.txt", &b"one line\n"[..]),
        ("digest.md", b"what it says in short\n"),
        ("report.html", page),
        ("deep/a.bin", &large),
        ("../../etc/pass\"wd\r\nX: y", b"hostile"),
    ] {
        zip.start_file(name, options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A job of good-alice with one archive of three megabytes; returns its id and the archive.
pub async fn profiled(service: &Service) -> (String, Vec<u8>) {
    let form = Form::usual().text("benchmark_index", "0");
    assert_eq!(service.submit("good-alice", form).await.status, StatusCode::ACCEPTED);
    profile_next(service).await
}

/// Ends the job at the head of the queue, which has the first shape alone, with such an archive.
pub async fn profile_next(service: &Service) -> (String, Vec<u8>) {
    let claim = service.queue.claim("a worker", Duration::from_mins(1)).await.unwrap().unwrap();
    let content = zip();
    let file = service.folder.path().join("zip");
    std::fs::write(&file, &content).unwrap();
    let stored = service.app.store.put_file(&format!("jobs/{}/1/{NAME}", claim.id), &file).await.unwrap();
    let run = claim.lease_of(0);
    service.queue.start_run(run).await.unwrap();
    let end = RunEnd {
        digest: Some(Box::new(reports::digest(&claim.id.to_string(), 0))),
        artifact: Some((NAME.to_owned(), stored)),
        ..run_end(State::Succeeded)
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
    assert_eq!(headers(&answer), ["application/zip", &content.len().to_string(), &disposition, "nosniff"]);

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

#[tokio::test]
async fn a_download_that_broke_off_goes_on_where_it_was() {
    let service = Service::start().await;
    let (id, content) = profiled(&service).await;
    let url = format!("/jobs/{id}/artifacts/{NAME}");
    let part = async |range: &str, wanted: Option<&str>| {
        let mut request = service.request(Method::GET, &url, Some("good-alice")).header("Range", range);
        if let Some(wanted) = wanted {
            request = request.header("If-Range", wanted);
        }
        send(request).await
    };
    let whole = service.get(&url, "good-alice").await;
    assert_eq!((whole.status, whole.headers["accept-ranges"].as_bytes()), (StatusCode::OK, &b"bytes"[..]));
    let tag = whole.headers["etag"].to_str().unwrap().to_owned();
    let total = content.len();

    let rest = part("bytes=1000000-", Some(&tag)).await;
    assert_eq!(rest.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(rest.headers["content-range"], format!("bytes 1000000-{}/{total}", total - 1));
    assert!(rest.bytes == content[1_000_000..] && rest.headers["content-length"] == rest.bytes.len().to_string());
    assert!(part("bytes=-5", None).await.bytes == content[total - 5..]);
    assert!(part("bytes=3-3", None).await.bytes == content[3..4]);
    let other = part("bytes=1000000-", Some("\"another\"")).await;
    assert!(other.status == StatusCode::OK && other.bytes == content, "a part of another archive is of no use");
    let beyond = part(&format!("bytes={total}-"), None).await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.headers["content-range"], format!("bytes */{total}"));
    assert!(beyond.detail().contains(&total.to_string()));
}

#[tokio::test]
async fn one_file_of_an_archive_comes_alone_and_no_browser_makes_a_page_of_it() {
    let service = Service::start().await;
    let (id, _) = profiled(&service).await;
    let url = format!("/jobs/{id}/artifacts/{NAME}");
    let entry = async |name: &str| service.get(&format!("{url}/{name}"), "good-alice").await;
    let text = entry("ncu-details.txt").await;
    assert_eq!((text.status, text.bytes.as_slice()), (StatusCode::OK, &b"one line\n"[..]));
    for name in ["ncu-details.txt", "report.html"] {
        let answer = entry(name).await;
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert!(answer.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    }
    for name in ["deep/a.bin", "deep%2Fa.bin"] {
        let answer = entry(name).await;
        assert_eq!((answer.status, answer.bytes.len()), (StatusCode::OK, 3_000_000), "{name}");
        assert_eq!(answer.headers["content-type"], "application/octet-stream");
        assert_eq!(answer.headers["content-disposition"], "attachment; filename=\"a.bin\"");
    }
    let head = send(service.request(Method::HEAD, &format!("{url}/deep/a.bin"), Some("good-alice"))).await;
    assert_eq!((head.headers["content-length"].as_bytes(), head.bytes.len()), (&b"3000000"[..], 0));

    let hostile = entry("..%2F..%2Fetc%2Fpass%22wd%0D%0AX:%20y").await;
    assert_eq!((hostile.status, hostile.bytes.as_slice()), (StatusCode::OK, &b"hostile"[..]));
    assert_eq!(hostile.headers["content-disposition"], "attachment");
    assert!(!hostile.headers.contains_key("x"));
    for name in
        ["deep", "deep/", "a.bin", "..%2f..%2fzip", "%2e%2e/zip", "NCU-DETAILS.TXT", "a%00", "%ff", "ncu-details.txt/"]
    {
        let answer = entry(name).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{name}");
        assert!(answer.detail().ends_with('.'), "{name}");
    }
    let foreign = service.get(&format!("{url}/ncu-details.txt"), "good-mallory").await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND);
}
