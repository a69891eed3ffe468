//! `GET /jobs/{id}?wait=…` and `GET /jobs/{id}/events`: who waits hears of a change at once, and misses none.

use std::time::Duration;

use futures_util::StreamExt;
use jobs::queue::{Claim, RunEnd, State};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Form, Service, run_end};

const LEASE: Duration = Duration::from_mins(1);
/// Longer than any of these tests may wait for what happens at once.
const AT_ONCE: Duration = Duration::from_secs(5);

async fn poll(service: &Service, id: &str, query: &str) -> (Value, Duration) {
    let began = Instant::now();
    let answer = service.get(&format!("/jobs/{id}?{query}"), "good-alice").await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    (answer.json(), began.elapsed())
}

async fn claim(service: &Service) -> Claim {
    service.queue.claim("a worker", LEASE).await.unwrap().unwrap()
}

async fn fail_shape(service: &Service, claim: &Claim, index: u32) {
    let run = claim.lease_of(index);
    service.queue.start_run(run).await.unwrap();
    let end = RunEnd {
        error: Some((jobs::queue::ErrorKind::Submission, "It does not compile.".to_owned())),
        output_tail: Some("first line\nid: 7\ndata: forged\n\n".to_owned()),
        ..run_end(State::Failed)
    };
    service.queue.finish_run(run, &end).await.unwrap();
}

#[tokio::test]
async fn a_poll_that_waits_is_answered_when_the_state_changes() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    let (waited, ()) = tokio::join!(poll(&service, &id, "wait=30"), async {
        sleep(Duration::from_millis(500)).await;
        claim(&service).await;
    });
    assert_eq!(waited.0["status"], "running");
    assert!(waited.1 >= Duration::from_millis(400) && waited.1 < AT_ONCE, "{:?}", waited.1);
    // What has changed since the version that the client knows is answered at once, and so is a job that has ended.
    let version = waited.0["version"].as_i64().unwrap();
    assert!(poll(&service, &id, &format!("wait=30&after={}", version - 1)).await.1 < AT_ONCE);
    let (body, took) = poll(&service, &id, &format!("wait=1&after={version}")).await;
    assert!(took >= Duration::from_secs(1) && body["version"] == version, "{took:?}");
    service.queue.cancel(id.parse().unwrap()).await.unwrap();
    let (body, took) = poll(&service, &id, &format!("wait=30&after={version}")).await;
    assert!(body["cancel_requested"] == true && took < AT_ONCE);
}

#[tokio::test]
async fn a_job_that_has_ended_keeps_nobody_waiting() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    service.end_all_jobs().await;
    assert!(poll(&service, &id, "wait=30&after=9223372036854775807").await.1 < AT_ONCE);
}

#[tokio::test]
async fn nonsense_in_the_query_of_a_poll_is_named() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    for query in ["wait=x", "wait=-1", "wait=1&after=x", "wait=1&wait=2"] {
        let answer = service.get(&format!("/jobs/{id}?{query}"), "good-alice").await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
    }
    // What old clients send to be sure that nothing is cached is no concern of ours.
    assert!(poll(&service, &id, "t=123").await.1 < AT_ONCE);
}

#[tokio::test]
async fn a_poll_beyond_those_that_may_wait_is_answered_at_once_and_a_stream_is_told_so() {
    let settings = [("NCU_SERVICE_MAX_WAITERS", "2"), ("NCU_SERVICE_MAX_WAITERS_PER_USER", "1")];
    let service = Service::start_with(&settings).await;
    let id = service.accepted("good-alice").await;
    let (first, ()) = tokio::join!(poll(&service, &id, "wait=3"), async {
        sleep(Duration::from_millis(500)).await;
        assert!(poll(&service, &id, "wait=30").await.1 < Duration::from_secs(2), "it must not wait");
        let answer = service.get(&format!("/jobs/{id}/events"), "good-alice").await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(answer.detail().contains("1 connections"), "{answer:?}");
    });
    assert!(first.1 >= Duration::from_secs(3));
    // Who has waited leaves the place to others.
    assert!(poll(&service, &id, "wait=1").await.1 >= Duration::from_secs(1));
}

#[tokio::test]
async fn those_who_wait_are_answered_when_the_service_stops() {
    let mut service = Service::start().await;
    let id = service.accepted("good-alice").await;
    let stop = service.stop.take();
    let (waited, ()) = tokio::join!(poll(&service, &id, "wait=30"), async {
        sleep(Duration::from_millis(500)).await;
        drop(stop);
    });
    assert!(waited.1 < AT_ONCE, "{:?}", waited.1);
    timeout(AT_ONCE, service.served).await.unwrap().unwrap();
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: Option<i64>,
    kind: String,
    data: Value,
}

/// Reads a stream as the standard says until `enough`, or to its end; what it had, and whether it ended.
async fn read(
    service: &Service,
    id: &str,
    after: Option<i64>,
    enough: impl Fn(&[Event]) -> bool,
) -> (Vec<Event>, bool) {
    let mut request = service.request(Method::GET, &format!("/jobs/{id}/events"), Some("good-alice"));
    if let Some(after) = after {
        request = request.header("Last-Event-ID", after.to_string());
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let (mut text, mut events) = (String::new(), Vec::new());
    let mut stream = answer.bytes_stream();
    while let Some(chunk) = stream.next().await {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        while let Some((block, rest)) = text.split_once("\n\n") {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if let Some(data) = field("data: ") {
                assert_eq!(block.lines().filter(|line| line.starts_with("data:")).count(), 1, "{block}");
                let id = field("id: ").map(|id| id.parse().unwrap());
                let kind = field("event: ").unwrap().to_owned();
                events.push(Event { id, kind, data: serde_json::from_str(data).unwrap() });
            }
            text = rest.to_owned();
            if enough(&events) {
                return (events, false);
            }
        }
    }
    (events, true)
}

/// The part of the history in some events.
fn history(events: &[Event]) -> Vec<Event> {
    events.iter().filter(|event| event.id.is_some()).cloned().collect()
}

#[tokio::test]
async fn a_stream_that_is_cut_ten_times_misses_no_event_and_repeats_none() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    let work = async {
        let claim = claim(&service).await;
        for pending in &claim.pending {
            sleep(Duration::from_millis(300)).await;
            fail_shape(&service, &claim, pending.benchmark_index).await;
        }
        service.queue.finish(claim.id, claim.token).await.unwrap();
    };
    let follow = async {
        let (mut seen, mut after) = (Vec::new(), None);
        for cut in 0.. {
            // Cut after each single event of the history.
            let (events, ended) = read(&service, &id, after, |events| !history(events).is_empty()).await;
            seen.extend(history(&events));
            after = seen.last().and_then(|event: &Event| event.id);
            if ended || seen.last().is_some_and(|event| event.data["status"] == "failed" && event.kind == "job") {
                assert!(cut >= 8, "{cut} cuts");
                break;
            }
        }
        (seen, after)
    };
    let ((seen, after), ()) = tokio::join!(follow, work);
    let shapes = service.get(&format!("/jobs/{id}"), "good-alice").await.json()["runs"].as_array().unwrap().len();
    // Queued, running, two of each shape, and the end.
    assert_eq!(seen.len(), 2 + 2 * shapes + 1);
    assert!(seen.len() >= 9 && seen.is_sorted_by(|one, next| one.id < next.id));
    let (whole, ended) = read(&service, &id, None, |_| false).await;
    assert!(ended, "a stream ends with its job");
    assert_eq!(history(&whole), seen, "what was seen in pieces is what is there");
    assert_eq!(seen.last().unwrap().data["error_kind"], "submission");
    let tail = &seen.iter().rfind(|event| event.kind == "shape").unwrap().data["output_tail"];
    assert_eq!(tail, "first line\nid: 7\ndata: forged\n\n", "what a submission prints makes no event");

    let request = service.request(Method::GET, &format!("/jobs/{id}/events"), Some("good-alice"));
    let answer = request.header("Last-Event-ID", after.unwrap().to_string()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT, "a client of the standard does not come back then");
}

#[tokio::test]
async fn a_waiting_job_is_told_its_place_as_the_queue_moves() {
    let service = Service::start().await;
    service.accepted("good-bob").await;
    let id = service.accepted("good-alice").await;
    let positions = |events: &[Event]| -> Vec<Value> {
        let standings = events.iter().filter(|event| event.kind == "standing");
        standings.map(|event| event.data["queue_position"].clone()).collect()
    };
    let ((events, _), ()) = tokio::join!(read(&service, &id, None, |events| positions(events).len() == 2), async {
        sleep(Duration::from_millis(500)).await;
        claim(&service).await;
    });
    assert_eq!(positions(&events), [2, 1], "{events:?}");
    assert!(events.iter().all(|event| event.kind != "standing" || event.id.is_none()));
}

#[tokio::test]
async fn nobody_reads_anothers_events() {
    let service = Service::start().await;
    let id = service.accepted("good-alice").await;
    for (path, cli_id) in [(format!("/jobs/{id}/events"), "good-bob"), ("/jobs/x/events".to_owned(), "good-alice")] {
        assert_eq!(service.get(&path, cli_id).await.status, StatusCode::NOT_FOUND);
    }
    let request = service.request(Method::GET, &format!("/jobs/{id}/events"), Some("good-alice"));
    let answer = crate::support::send(request.header("Last-Event-ID", "x")).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(service.submit("good-alice", Form::usual()).await.status, StatusCode::ACCEPTED);
}
