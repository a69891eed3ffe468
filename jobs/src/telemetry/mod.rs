//! What the programs tell of themselves: the log, traces and metrics.
//!
//! Every job is one trace: from the request that brought it, through the queue, to each holder of each attempt. Its context
//! lies in the job's row, so a restart or an adoption goes on with it.

mod log;
mod metrics;
mod otlp;
mod prometheus;
mod trace;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpListener;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry};

pub use self::metrics::{Metrics, QueueState, metrics};
pub use self::trace::{RemoteContext, note_trace, past_span, phase, queue_span};
use crate::config::{ConfigError, Reader};
use log::LogConfig;
use otlp::OtlpConfig;

/// Name of this instrumentation.
const SCOPE: &str = "ncu-service";
/// How long what is not sent yet may take at the end.
const FLUSH_LIMIT: Duration = Duration::from_millis(400);

/// What is told, and to whom.
#[derive(Debug)]
pub struct TelemetryConfig {
    log: LogConfig,
    otlp: OtlpConfig,
    /// Where Prometheus may fetch metrics; nowhere by default.
    pub metrics_listen: Option<SocketAddr>,
}

impl TelemetryConfig {
    /// Reads the settings of the log, of OTLP and of `/metrics`.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            log: LogConfig::read(reader)?,
            otlp: OtlpConfig::read(reader)?,
            metrics_listen: reader.optional(
                "NCU_SERVICE_METRICS_LISTEN",
                "address and port on which /metrics answers Prometheus; not for the public",
                |value| {
                    value.parse().map_err(|_| "an address with a port is expected, for example 127.0.0.1:9464".into())
                },
            )?,
        })
    }
}

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// An exporter does not take its settings.
    #[error("telemetry: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// Nobody can fetch metrics there.
    #[error("NCU_SERVICE_METRICS_LISTEN: cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The metrics cannot be registered.
    #[error("telemetry: {0}")]
    Metrics(#[from] opentelemetry_sdk::error::OTelSdkError),
}

/// The process's telemetry. What is not sent yet goes with [`Telemetry::end`].
pub struct Telemetry {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
    registry: ::prometheus::Registry,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl Telemetry {
    /// Starts the log, tracing and metrics of the process. Needs a Tokio runtime, and the process's TLS provider.
    ///
    /// Spans have ids even where nobody receives them: the log and the job's row carry them.
    pub fn start(config: TelemetryConfig, service: &'static str) -> Result<Self, TelemetryError> {
        let resource = resource(service);
        let traces = config.otlp.traces(SdkTracerProvider::builder().with_resource(resource.clone()))?.build();
        let registry = ::prometheus::Registry::new();
        let pull = opentelemetry_prometheus::exporter().with_registry(registry.clone()).build()?;
        let metrics = SdkMeterProvider::builder().with_resource(resource).with_reader(pull);
        let metrics = config.otlp.metrics(metrics)?.build();
        global::set_tracer_provider(traces.clone());
        global::set_meter_provider(metrics.clone());

        let spans = tracing_opentelemetry::layer()
            .with_tracer(traces.tracer(SCOPE))
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            // Of others' code nothing is of use here, and an exporter's own requests would never end.
            .with_filter(filter_fn(|metadata| {
                let target = metadata.target();
                metadata.is_span() && (target.starts_with("jobs") || target.starts_with("ncu_"))
            }));
        Registry::default().with(config.log.layer()).with(spans).init();
        Ok(Self { traces, metrics, registry })
    }

    /// Serves `/metrics` from now on. The error is that the address cannot be listened on.
    pub async fn serve_metrics(&self, address: SocketAddr) -> Result<(), TelemetryError> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| TelemetryError::Listen { address, source })?;
        tokio::spawn(prometheus::serve(listener, self.registry.clone()));
        Ok(())
    }

    /// Sends what is not sent yet, as far as that is quick: nobody waits for a receiver that is away.
    pub async fn end(self) {
        let (done, flushed) = tokio::sync::oneshot::channel();
        // A thread that nobody waits for: a runtime would wait for one of its own before the process could end.
        std::thread::spawn(move || {
            let ended =
                [self.traces.shutdown_with_timeout(FLUSH_LIMIT), self.metrics.shutdown_with_timeout(FLUSH_LIMIT)];
            for error in ended.into_iter().filter_map(Result::err) {
                tracing::debug!(%error, "telemetry that was not sent yet is lost");
            }
            // Whoever waited may be gone.
            let _ = done.send(());
        });
        let _ = tokio::time::timeout(FLUSH_LIMIT, flushed).await;
    }
}

/// Who tells it. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` have the last word.
fn resource(service: &'static str) -> Resource {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let builder = Resource::builder_empty().with_attributes([
        KeyValue::new("service.name", service),
        KeyValue::new("service.namespace", SCOPE),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string()),
        KeyValue::new("host.name", host),
    ]);
    let given = opentelemetry_sdk::resource::EnvResourceDetector::new();
    let name = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let builder = builder.with_detector(Box::new(given));
    match name {
        Some(name) => builder.with_service_name(name).build(),
        None => builder.build(),
    }
}
