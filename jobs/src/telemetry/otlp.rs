//! Who receives traces and metrics by OTLP, by the variables that OpenTelemetry gives every program.
//!
//! Ours are those that decide whether and how anything is sent. Headers, timeouts, compression, batches and samplers are
//! read by OpenTelemetry's own library.

use opentelemetry_otlp::{ExporterBuildError, MetricExporter, Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::metrics::MeterProviderBuilder;
use opentelemetry_sdk::trace::TracerProviderBuilder;

use crate::config::{self, ConfigError, Reader};

/// How OTLP travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Grpc,
    Http,
}

/// What is sent. Nothing is by default: a receiver has to be named.
#[derive(Debug)]
pub struct OtlpConfig {
    transport: Transport,
    traces: bool,
    metrics: bool,
}

impl OtlpConfig {
    /// Reads the variables and checks their values.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        let disabled = reader.or_default("OTEL_SDK_DISABLED", "false", "true: nothing is sent by OTLP", is_true)?;
        let transport = reader.or_default(
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/protobuf",
            "how OTLP is sent: http/protobuf or grpc",
            transport,
        )?;
        let mut receiver = |name, help| reader.optional(name, help, config::web_url).map(|url| url.is_some());
        let all = receiver(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "base URL of the OTLP receiver of traces and metrics, for example http://collector:4318",
        )?;
        let traces = receiver("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "URL of another receiver for traces")?;
        let metrics = receiver("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "URL of another receiver for metrics")?;
        let wants_traces =
            reader.or_default("OTEL_TRACES_EXPORTER", "otlp", "otlp, or none: no traces are sent", is_otlp)?;
        let wants_metrics =
            reader.or_default("OTEL_METRICS_EXPORTER", "otlp", "otlp, or none: no metrics are sent", is_otlp)?;
        Ok(Self {
            transport,
            traces: (all || traces) && wants_traces && !disabled,
            metrics: (all || metrics) && wants_metrics && !disabled,
        })
    }

    /// Adds the exporter of spans, where there is to be one.
    pub(super) fn traces(&self, provider: TracerProviderBuilder) -> Result<TracerProviderBuilder, ExporterBuildError> {
        if !self.traces {
            return Ok(provider);
        }
        let exporter = SpanExporter::builder();
        Ok(provider.with_batch_exporter(match self.transport {
            Transport::Grpc => exporter.with_tonic().build()?,
            Transport::Http => exporter.with_http().with_protocol(Protocol::HttpBinary).build()?,
        }))
    }

    /// Adds the exporter of metrics, where there is to be one.
    pub(super) fn metrics(&self, provider: MeterProviderBuilder) -> Result<MeterProviderBuilder, ExporterBuildError> {
        if !self.metrics {
            return Ok(provider);
        }
        let exporter = MetricExporter::builder();
        Ok(provider.with_periodic_exporter(match self.transport {
            Transport::Grpc => exporter.with_tonic().build()?,
            Transport::Http => exporter.with_http().with_protocol(Protocol::HttpBinary).build()?,
        }))
    }
}

fn transport(value: &str) -> Result<Transport, String> {
    match value {
        "grpc" => Ok(Transport::Grpc),
        "http/protobuf" => Ok(Transport::Http),
        _ => Err("http/protobuf or grpc is expected".to_owned()),
    }
}

fn is_true(value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false is expected".to_owned()),
    }
}

fn is_otlp(value: &str) -> Result<bool, String> {
    match value {
        "otlp" => Ok(true),
        "none" => Ok(false),
        _ => Err("otlp or none is expected".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<(bool, bool), ConfigError> {
        OtlpConfig::read(&mut Reader::from_pairs(pairs.iter().copied())).map(|config| (config.traces, config.metrics))
    }

    #[test]
    fn nothing_is_sent_unless_a_receiver_is_named() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        assert_eq!(read(&[]), Ok((false, false)));
        assert_eq!(read(&[all]), Ok((true, true)));
        assert_eq!(read(&[all, ("OTEL_METRICS_EXPORTER", "none")]), Ok((true, false)));
        assert_eq!(read(&[all, ("OTEL_SDK_DISABLED", "true")]), Ok((false, false)));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://tempo:4318/v1/traces")]), Ok((true, false)));
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named() {
        for (name, value) in [
            ("OTEL_SDK_DISABLED", "yes"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_TRACES_EXPORTER", "jaeger"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
