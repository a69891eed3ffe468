//! The log of both programs: text for people, JSON by switch.

use tracing_subscriber::EnvFilter;

use crate::config::{ConfigError, Reader};

/// Reads `NCU_SERVICE_LOG_FORMAT` and `NCU_SERVICE_LOG`, and starts the process's log on standard error.
pub fn start(reader: &mut Reader) -> Result<(), ConfigError> {
    let json = reader.or_default("NCU_SERVICE_LOG_FORMAT", "text", "format of the log: text or json", is_json)?;
    let filter =
        reader.or_default("NCU_SERVICE_LOG", "info", "what is logged, for example info or jobs=debug", filter)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        log.json().init();
    } else {
        log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
    Ok(())
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
