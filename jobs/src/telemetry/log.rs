//! The log: text for people, JSON by switch. A line that belongs to a trace carries its id in the fields of its spans.

use std::io::{self, IsTerminal as _};

use tracing::Subscriber;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::config::{ConfigError, Reader};

/// How the log is written.
#[derive(Debug)]
pub struct LogConfig {
    json: bool,
    filter: EnvFilter,
}

impl LogConfig {
    /// Reads `NCU_SERVICE_LOG_FORMAT` and `NCU_SERVICE_LOG`.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        let json = reader.or_default("NCU_SERVICE_LOG_FORMAT", "text", "format of the log: text or json", is_json)?;
        let filter =
            reader.or_default("NCU_SERVICE_LOG", "info", "what is logged, for example info or jobs=debug", filter)?;
        Ok(Self { json, filter })
    }

    /// The layer that writes to standard error. What it leaves out can still be traced.
    pub(super) fn layer<S>(self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let layer = fmt::layer().with_writer(io::stderr);
        if self.json {
            layer.json().with_filter(self.filter).boxed()
        } else {
            layer.with_ansi(io::stderr().is_terminal()).with_filter(self.filter).boxed()
        }
    }
}

fn is_json(value: &str) -> Result<bool, String> {
    match value {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err("text or json is expected".to_owned()),
    }
}

fn filter(value: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(value).map_err(|_| "a level or a list of target=level is expected".to_owned())
}
