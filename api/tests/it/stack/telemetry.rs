//! What a receiver of traces and metrics gets from a job, and what the log and `/metrics` say.

use std::collections::{HashMap, HashSet};
use std::net::TcpListener;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::Value;

use super::adoption::{LONG, LONG_LEASE, ONE_SHAPE};
use super::harness::Stack;
use super::{GOOD, SLOW};
use crate::support::database;
use crate::support::otlp::{Receiver, Seen};
use crate::support::trace_tree;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

async fn stack(receiver: &Receiver, protocol: &'static str) -> Stack {
    let url = receiver.url.clone();
    Stack::start_with(database().await, move |_| {
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.clone()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
            // So that a test need not wait for the next batch.
            ("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "500".to_owned()),
        ]
    })
    .await
}

/// Each span's name with that of its parent; what a client's own span is the parent of has `client`.
fn tree(spans: &[Seen]) -> HashMap<&str, &str> {
    let names: HashMap<&str, &str> =
        spans.iter().map(|span| (span.id.as_str(), span.name.as_str())).chain([(CLIENT, "client")]).collect();
    spans.iter().map(|span| (span.name.as_str(), *names.get(span.parent.as_str()).unwrap_or(&"?"))).collect()
}

fn of_trace(spans: Vec<Seen>) -> Vec<Seen> {
    spans.into_iter().filter(|span| span.trace == TRACE).collect()
}

fn has(spans: &[Seen], name: &str) -> bool {
    spans.iter().any(|span| span.trace == TRACE && span.name == name)
}

#[tokio::test]
async fn a_job_is_one_trace_from_the_clients_request_to_the_stored_archive() {
    let receiver = Receiver::http().await;
    let stack = stack(&receiver, "http/protobuf").await;
    let _worker = stack.worker(&[]);
    let job = stack.submit_traced(GOOD, &ONE_SHAPE, &format!("00-{TRACE}-{CLIENT}-01")).await;
    stack.ended(&job).await;
    let spans = of_trace(receiver.spans(|spans| has(spans, "job") && has(spans, "POST /profile")).await);

    let tree = tree(&spans);
    for (name, parent) in [
        ("POST /profile", "client"),
        ("GET", "POST /profile"),
        ("queue", "POST /profile"),
        ("job", "POST /profile"),
        ("shape", "job"),
        ("capture", "shape"),
        ("gpu_wait", "capture"),
        ("container", "capture"),
        ("overview", "capture"),
        ("ncu", "capture"),
        ("export", "shape"),
        ("zip", "shape"),
        ("store", "shape"),
    ] {
        assert_eq!(tree.get(name), Some(&parent), "{name}: {spans:#?}");
    }
    assert_eq!(spans.len(), tree.len(), "each name once: {spans:#?}");

    let one = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let request = one("POST /profile");
    assert_eq!((request.service.as_str(), request.kind), ("ncu-api", SpanKind::Server));
    assert_eq!(request.attribute("http.route"), Some("/profile"));
    assert_eq!(request.attribute("http.response.status_code"), Some("202"));
    let of_job = one("job");
    assert_eq!((of_job.service.as_str(), of_job.kind), ("ncu-worker", SpanKind::Consumer));
    assert_eq!(of_job.attribute("ncu_service.job.id"), Some(job.as_str()));
    let (container, ncu) = (one("container"), one("ncu"));
    assert!(container.start <= ncu.start && ncu.end <= container.end, "{container:?} {ncu:?}");
    assert_eq!(ncu.attribute("process.exit.code"), Some("0"));
}

/// Prints the trace that docs/operating.md shows.
#[tokio::test]
async fn an_adopted_job_goes_on_in_its_trace() {
    let receiver = Receiver::http().await;
    let stack = stack(&receiver, "http/protobuf").await;
    let mut worker = stack.worker(&LONG_LEASE);
    let job = stack.submit_traced(LONG, &ONE_SHAPE, &format!("00-{TRACE}-{CLIENT}-01")).await;
    stack.capture_runs(&job).await;
    // What it has told so far is there; of the container, the capture, the shape and the job it will tell nothing.
    receiver.spans(|spans| has(spans, "queue") && has(spans, "gpu_wait")).await;
    worker.kill().await.unwrap();
    let _next = stack.worker(&LONG_LEASE);
    stack.ended(&job).await;
    let spans = of_trace(receiver.spans(|spans| has(spans, "job")).await);
    println!("{}", trace_tree::table(&spans));
    assert_eq!(trace_tree::names(&spans), TOLD_OF_A_KILL);
    let of_job = spans.iter().find(|span| span.name == "job").unwrap();
    assert_eq!(of_job.attribute("ncu_service.adoption"), Some("1"));
    receiver.metric("ncu_service.jobs.adopted", "value: Some(AsInt(1))").await;
}

/// The first part hangs on the client's span, the second on the capture of the worker that was killed.
const TOLD_OF_A_KILL: &str = "\
(not told)
└─ POST /profile
   ├─ GET
   ├─ queue
   └─ job
      └─ shape
         ├─ capture
         │  ├─ container
         │  ├─ overview
         │  └─ ncu
         ├─ export
         ├─ zip
         └─ store
(not told)
└─ gpu_wait
";

#[tokio::test]
async fn grpc_carries_traces_and_metrics_too() {
    let receiver = Receiver::grpc();
    let stack = stack(&receiver, "grpc").await;
    let _worker = stack.worker(&[]);
    let job = stack.submit(GOOD, &ONE_SHAPE).await;
    stack.ended(&job).await;
    receiver.spans(|spans| spans.iter().any(|span| span.name == "job" && span.service == "ncu-worker")).await;
    receiver.spans(|spans| spans.iter().any(|span| span.name == "POST /profile" && span.service == "ncu-api")).await;
    for (name, words) in [
        ("http.server.request.duration", "/jobs/{id}"),
        ("ncu_service.kernelbot.duration", "valid"),
        ("ncu_service.kernelbot.verdicts", "cache"),
        ("ncu_service.jobs.submitted", "vectoradd_sample"),
        ("ncu_service.queue.jobs", "queued"),
        ("ncu_service.queue.oldest_age", ""),
        ("ncu_service.workers", "ready"),
        ("ncu_service.job.wait", ""),
        ("ncu_service.shape.phase.duration", "gpu_wait"),
        ("ncu_service.shapes.ended", "succeeded"),
        ("ncu_service.gpu.busy", "none"),
    ] {
        receiver.metric(name, words).await;
    }
}

#[tokio::test]
async fn prometheus_finds_the_metrics_of_both_programs_on_an_address_of_their_own() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (api, worker) = (free(), free());
    let listen = api.clone();
    let stack =
        Stack::start_with(database().await, move |_| vec![("NCU_SERVICE_METRICS_LISTEN", listen.clone())]).await;
    // Short, so that there is a renewal.
    let _worker = stack.worker(&[("NCU_SERVICE_METRICS_LISTEN", &worker), ("NCU_SERVICE_LEASE_SECS", "3")]);
    let job = stack.submit(SLOW, &ONE_SHAPE).await;
    stack.ended(&job).await;
    let read =
        async |address: &str| reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap();
    let text = read(&api).await;
    for line in [
        "http_server_request_duration_seconds_count{",
        "ncu_service_jobs_submitted_total{leaderboard=\"vectoradd_sample\"",
        "ncu_service_queue_jobs{",
        "ncu_service_queue_oldest_age_seconds{",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let text = read(&worker).await;
    for line in [
        "ncu_service_shapes_ended_total{error=\"none\",",
        "ncu_service_shape_phase_duration_seconds_bucket{",
        "ncu_service_gpu_busy_seconds_total{gpu=\"none\"",
        "ncu_service_lease_renewals_total{",
        "ncu_service_job_wait_seconds_sum{",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let texts = read(&api).await + &text;
    let families = families(&texts);
    for name in names_in_dashboards() {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name);
        assert!(families.contains(base), "a dashboard or an alert asks for {name}: {families:#?}");
    }
    let pool = stack.pool().await;
    for query in queries_of_dashboards() {
        sqlx::query(sqlx::AssertSqlSafe(query.clone()))
            .fetch_all(&pool)
            .await
            .unwrap_or_else(|error| panic!("{query}: {error}"));
    }
    let public = reqwest::get(stack.url("/metrics")).await.unwrap();
    assert_eq!(public.status(), reqwest::StatusCode::NOT_FOUND, "not for the public");
}

fn families(text: &str) -> HashSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

/// The files of Grafana, by their content.
fn provisioned() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docker/grafana");
    let dashboards = std::fs::read_dir(folder.join("dashboards")).unwrap().map(|entry| entry.unwrap().path());
    dashboards.chain([folder.join("alerts.yaml")]).map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// Every metric that they ask for.
fn names_in_dashboards() -> HashSet<String> {
    let files = provisioned().join("\n");
    let words = files.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let is_ours = |word: &&str| ["ncu_service_", "http_server_"].iter().any(|start| word.starts_with(start));
    let names: HashSet<String> = words.filter(is_ours).map(str::to_owned).collect();
    assert!(names.len() > 12, "{names:?}");
    names
}

fn queries_of_dashboards() -> Vec<String> {
    fn collect(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                into.extend(fields.get("rawSql").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| collect(value, into));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
            _ => {}
        }
    }
    let mut queries = Vec::new();
    for file in provisioned() {
        // The alerts are YAML, and ask Prometheus only.
        if let Ok(dashboard) = serde_json::from_str(&file) {
            collect(&dashboard, &mut queries);
        }
    }
    assert!(queries.len() > 5, "{queries:?}");
    queries
}

#[tokio::test]
async fn every_line_about_a_job_has_its_trace_in_text_and_in_json() {
    for format in ["text", "json"] {
        let stack =
            Stack::start_with(database().await, move |_| vec![("NCU_SERVICE_LOG_FORMAT", format.to_owned())]).await;
        let _worker = stack.worker(&[]);
        let job = stack.submit_traced(GOOD, &ONE_SHAPE, &format!("00-{TRACE}-{CLIENT}-01")).await;
        stack.ended(&job).await;
        for (program, line) in [("ncu-api", "job queued"), ("ncu-worker", "shape ended")] {
            let log = stack.log_of(program);
            let line = log.lines().find(|seen| seen.contains(line)).unwrap_or_else(|| panic!("{line}:\n{log}"));
            assert!(line.contains(TRACE), "{line}");
            assert!(format == "text" || serde_json::from_str::<Value>(line).is_ok(), "{line}");
        }
    }
}
