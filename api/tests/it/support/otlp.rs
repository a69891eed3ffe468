//! A receiver of OTLP, over HTTP and over gRPC.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Longest that a test waits for what was sent.
const PATIENCE: Duration = Duration::from_mins(1);

/// A span as a backend sees it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub service: String,
    pub name: String,
    pub kind: SpanKind,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub attributes: Vec<(String, String)>,
    /// Nanoseconds since 1970.
    pub start: u64,
    pub end: u64,
}

impl Seen {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Clone, Default)]
struct Received {
    spans: Arc<Mutex<Vec<Seen>>>,
    /// Names with the attributes of their points.
    metrics: Arc<Mutex<Vec<(String, String)>>>,
}

/// Listens until it is dropped with its runtime.
pub struct Receiver {
    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` names.
    pub url: String,
    received: Received,
}

impl Receiver {
    pub async fn http() -> Self {
        let received = Received::default();
        let (traces, metrics) = (received.clone(), received.clone());
        let router = Router::new()
            .route(
                "/v1/traces",
                post(async move |body: Bytes| traces.traces(ExportTraceServiceRequest::decode(body).unwrap())),
            )
            .route(
                "/v1/metrics",
                post(async move |body: Bytes| metrics.metrics(ExportMetricsServiceRequest::decode(body).unwrap())),
            );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, received }
    }

    pub fn grpc() -> Self {
        let received = Received::default();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", incoming.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(received.clone()))
            .add_service(MetricsServiceServer::new(received.clone()));
        tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
        Self { url, received }
    }

    /// Waits until the spans are as wanted.
    pub async fn spans(&self, wanted: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let spans = self.received.spans.lock().unwrap().clone();
            if wanted(&spans) {
                return spans;
            }
            assert!(Instant::now() < deadline, "{spans:#?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits for a metric with these words in the attributes of one of its points.
    pub async fn metric(&self, name: &str, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.received.metrics.lock().unwrap().clone();
            if metrics.iter().any(|(seen, attributes)| seen == name && attributes.contains(words)) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} {words}: {metrics:#?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Received {
    fn traces(&self, request: ExportTraceServiceRequest) {
        let mut spans = self.spans.lock().unwrap();
        for resource in request.resource_spans {
            let service = service(resource.resource.as_ref());
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let kind = span.kind();
                spans.push(Seen {
                    service: service.clone(),
                    name: span.name,
                    kind,
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    attributes: span.attributes.iter().map(text).collect(),
                    start: span.start_time_unix_nano,
                    end: span.end_time_unix_nano,
                });
            }
        }
    }

    fn metrics(&self, request: ExportMetricsServiceRequest) {
        let mut metrics = self.metrics.lock().unwrap();
        let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            metrics.push((metric.name, format!("{:?}", metric.data)));
        }
    }
}

fn service(resource: Option<&Resource>) -> String {
    let attributes = resource.map_or(&[][..], |resource| &resource.attributes);
    attributes.iter().map(text).find(|(key, _)| key == "service.name").map_or_else(String::new, |(_, value)| value)
}

fn text(attribute: &KeyValue) -> (String, String) {
    let value = match attribute.value.as_ref().and_then(|AnyValue { value, .. }| value.as_ref()) {
        Some(Value::StringValue(value)) => value.clone(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::BoolValue(value)) => value.to_string(),
        other => format!("{other:?}"),
    };
    (attribute.key.clone(), value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.traces(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Received {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
