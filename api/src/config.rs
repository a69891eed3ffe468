//! The API's settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jobs::admin::AdminToken;
use jobs::config::{self, ConfigError, DatabaseConfig, Reader};
use jobs::queue::Quotas;
use reqwest::Url;

use crate::error::MAX_FILE_BYTES;

/// Everything an operator decides about the API.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where requests are taken.
    pub listen: SocketAddr,
    /// Where Postgres is.
    pub database: DatabaseConfig,
    /// The problems folder of a reference-kernels checkout.
    pub problems_dir: PathBuf,
    /// Where the archives are.
    pub artifacts: Url,
    /// Who says whether a CLI id is good; `None` lets everybody in.
    pub kernelbot: Option<KernelBotConfig>,
    /// Connections open at a time.
    pub max_connections: usize,
    /// How long a client may take to send a request's head, to go on reading an answer, and to send its next request.
    pub idle_timeout: Duration,
    /// Uploads in progress at a time.
    pub max_uploads: usize,
    /// Uploads of one user in progress at a time.
    pub max_uploads_per_user: usize,
    /// Requests that wait for a change of a job, at a time.
    pub max_waiters: usize,
    /// Requests of one user that wait for a change, at a time.
    pub max_waiters_per_user: usize,
    /// How long one upload may take.
    pub upload_timeout: Duration,
    /// What may be in the queue.
    pub quotas: Quotas,
    /// Whether a stored result answers for another user's job, too.
    pub share_results: bool,
    /// How long a poll waits for the database.
    pub database_patience: Duration,
    /// What lets somebody order under `/admin`; `None` lets nobody.
    pub admin_token: Option<AdminToken>,
    /// How long requests in progress may take after a stop.
    pub stop_timeout: Duration,
}

/// How `KernelBot` is asked.
#[derive(Debug, Clone)]
pub struct KernelBotConfig {
    /// Its base URL.
    pub url: Url,
    /// How long one question may take, with its wait for its turn.
    pub timeout: Duration,
    /// Questions open at a time.
    pub max_questions: usize,
}

impl Config {
    /// Reads every setting, also those that another setting makes useless, so that a bad value never hides.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        let listen = reader.or_default(
            "NCU_SERVICE_LISTEN",
            "127.0.0.1:8765",
            "address and port on which the API takes requests",
            address,
        )?;
        let require_cli_id = reader.or_default(
            "NCU_SERVICE_REQUIRE_CLI_ID",
            "1",
            "whether every request needs a CLI id that KernelBot accepts",
            config::switch,
        )?;
        let allow_anonymous_public = reader.or_default(
            "NCU_SERVICE_ALLOW_ANONYMOUS_PUBLIC",
            "0",
            "whether the API may listen beyond this host while it lets everybody in",
            config::switch,
        )?;
        let kernelbot = kernelbot(reader, require_cli_id)?;
        if !require_cli_id && !listen.ip().is_loopback() && !allow_anonymous_public {
            return Err(ConfigError::Invalid {
                name: "NCU_SERVICE_LISTEN",
                value: listen.to_string(),
                reason: "with NCU_SERVICE_REQUIRE_CLI_ID=0 everybody who reaches this address could run code here; \
                         listen on 127.0.0.1, or set NCU_SERVICE_ALLOW_ANONYMOUS_PUBLIC=1"
                    .to_owned(),
            });
        }
        let (max_waiters, max_waiters_per_user) = waiters(reader)?;
        Ok(Self {
            listen,
            database: DatabaseConfig::read(reader)?,
            problems_dir: config::problems_dir(reader)?,
            artifacts: config::artifacts_url(reader)?,
            kernelbot,
            max_connections: reader.or_default(
                "NCU_SERVICE_MAX_CONNECTIONS",
                "512",
                "connections open at a time; then the one that idles longest makes room; each may need two open files",
                permits,
            )?,
            idle_timeout: reader.or_default(
                "NCU_SERVICE_IDLE_TIMEOUT_SECS",
                "60",
                "seconds that a client may take to send a request's head, to go on reading an answer, and to send its next request",
                config::seconds,
            )?,
            max_waiters,
            max_waiters_per_user,
            max_uploads: reader.or_default(
                "NCU_SERVICE_MAX_UPLOADS",
                "32",
                "uploads in progress at a time; each takes up to 2.5 MB of memory",
                permits,
            )?,
            max_uploads_per_user: reader.or_default(
                "NCU_SERVICE_MAX_UPLOADS_PER_USER",
                "4",
                "of them, uploads of one user",
                permits,
            )?,
            upload_timeout: reader.or_default(
                "NCU_SERVICE_UPLOAD_TIMEOUT_SECS",
                "60",
                "seconds that one upload may take",
                config::seconds,
            )?,
            quotas: quotas(reader)?,
            share_results: reader.or_default(
                "NCU_SERVICE_SHARE_RESULTS",
                "0",
                "whether a stored result answers for another user's identical submission, too",
                config::switch,
            )?,
            database_patience: reader.or_default(
                "NCU_SERVICE_DATABASE_PATIENCE_SECS",
                "20",
                "seconds that a poll waits for the database; clients give a poll 30 seconds in all",
                config::seconds,
            )?,
            admin_token: reader.optional(
                "NCU_SERVICE_ADMIN_TOKEN",
                "token of at least 32 characters that lets operators give orders under /admin; without one nobody can",
                AdminToken::parse,
            )?,
            stop_timeout: reader.or_default(
                "NCU_SERVICE_API_STOP_TIMEOUT_SECS",
                "10",
                "seconds that requests in progress may take after a stop of the API",
                config::seconds,
            )?,
        })
    }
}

/// Requests that may wait for a change, in all and of one user.
fn waiters(reader: &mut Reader) -> Result<(usize, usize), ConfigError> {
    let all = reader.or_default(
        "NCU_SERVICE_MAX_WAITERS",
        "256",
        "requests that wait for a change of a job at a time; each holds a connection, so a good part of those that there may be",
        permits,
    )?;
    let of_user =
        reader.or_default("NCU_SERVICE_MAX_WAITERS_PER_USER", "16", "of them, requests of one user", permits)?;
    Ok((all, of_user))
}

fn quotas(reader: &mut Reader) -> Result<Quotas, ConfigError> {
    Ok(Quotas {
        max_queue: reader.or_default(
            "NCU_SERVICE_MAX_QUEUE",
            "1000",
            "jobs that may wait in the queue, of everybody",
            config::count,
        )?,
        max_unfinished: reader.or_default(
            "NCU_SERVICE_MAX_JOBS_PER_USER",
            "20",
            "jobs of one user that may wait or run at a time",
            config::count,
        )?,
        max_jobs_per_hour: reader.or_default(
            "NCU_SERVICE_MAX_JOBS_PER_HOUR",
            "120",
            "jobs that one user may submit within an hour",
            config::count,
        )?,
        max_bytes_per_hour: reader.or_default(
            "NCU_SERVICE_MAX_BYTES_PER_HOUR",
            "64m",
            "what the files that one user submits within an hour may come to in bytes; at least one file of the largest size",
            bytes_of_a_file,
        )?,
    })
}

fn kernelbot(reader: &mut Reader, required: bool) -> Result<Option<KernelBotConfig>, ConfigError> {
    const URL: &str = "KERNELBOT_API_URL";
    const URL_HELP: &str = "base URL of KernelBot's API, which says whether a CLI id is good";
    let url = if required {
        Some(reader.required(URL, URL_HELP, config::web_url)?)
    } else {
        // Not asked, but a value that cannot be used is still named.
        reader.optional(URL, URL_HELP, config::web_url)?
    };
    let timeout = reader.or_default(
        "NCU_SERVICE_KERNELBOT_TIMEOUT_SECS",
        "5",
        "seconds that KernelBot may take to answer",
        config::seconds,
    )?;
    let max_questions = reader.or_default(
        "NCU_SERVICE_KERNELBOT_MAX_QUESTIONS",
        "4",
        "questions to KernelBot open at a time",
        permits,
    )?;
    Ok(url.filter(|_| required).map(|url| KernelBotConfig { url, timeout, max_questions }))
}

fn address(value: &str) -> Result<SocketAddr, String> {
    value.parse().map_err(|_| "an address with a port is expected, for example 127.0.0.1:8765".to_owned())
}

/// Less would refuse the largest file for good, and tell its author to wait.
fn bytes_of_a_file(value: &str) -> Result<u64, String> {
    let bytes = config::bytes(value)?;
    let least = MAX_FILE_BYTES as u64;
    if bytes >= least { Ok(bytes) } else { Err(format!("at least {least} bytes, the largest file, are expected")) }
}

/// A count that a semaphore takes.
fn permits(value: &str) -> Result<usize, String> {
    let count = config::count(value)?;
    usize::try_from(count)
        .ok()
        .filter(|&n| n <= tokio::sync::Semaphore::MAX_PERMITS)
        .ok_or_else(|| "a smaller number is expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: [(&str, &str); 2] = [
        ("NCU_SERVICE_DATABASE_URL", "postgres://ncu@localhost/ncu"),
        ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", "/srv/problems"),
    ];

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<Config, ConfigError> {
        Config::read(&mut Reader::from_pairs(REQUIRED.iter().chain(pairs).copied()))
    }

    #[test]
    fn the_check_of_cli_ids_is_on_unless_it_is_switched_off() {
        let error = read(&[]).unwrap_err().to_string();
        assert!(error.starts_with("KERNELBOT_API_URL is not set"), "{error}");
        let config = read(&[("KERNELBOT_API_URL", "https://kernelbot.example")]).unwrap();
        assert_eq!(config.kernelbot.unwrap().url.as_str(), "https://kernelbot.example/");
        assert!(read(&[("NCU_SERVICE_REQUIRE_CLI_ID", "0")]).unwrap().kernelbot.is_none());
    }

    #[test]
    fn letting_everybody_in_from_everywhere_takes_a_word_of_its_own() {
        let open = [("NCU_SERVICE_REQUIRE_CLI_ID", "0"), ("NCU_SERVICE_LISTEN", "0.0.0.0:8765")];
        let error = read(&open).unwrap_err().to_string();
        assert!(error.contains("NCU_SERVICE_ALLOW_ANONYMOUS_PUBLIC=1"), "{error}");
        assert!(read(&[open[0], open[1], ("NCU_SERVICE_ALLOW_ANONYMOUS_PUBLIC", "1")]).is_ok());
        assert!(read(&[open[0], ("NCU_SERVICE_LISTEN", "[::1]:8765")]).is_ok());
    }

    #[test]
    fn a_quota_that_would_refuse_the_largest_file_for_good_is_named() {
        let open = ("NCU_SERVICE_REQUIRE_CLI_ID", "0");
        let error = read(&[open, ("NCU_SERVICE_MAX_BYTES_PER_HOUR", "999999")]).unwrap_err().to_string();
        assert!(error.contains("NCU_SERVICE_MAX_BYTES_PER_HOUR"), "{error}");
        let config = read(&[open, ("NCU_SERVICE_MAX_BYTES_PER_HOUR", "1000000")]).unwrap();
        assert_eq!(config.quotas.max_bytes_per_hour, 1_000_000);
    }

    #[test]
    fn a_token_for_operators_that_is_too_short_is_refused_and_not_repeated() {
        let open = ("NCU_SERVICE_REQUIRE_CLI_ID", "0");
        assert!(read(&[open]).unwrap().admin_token.is_none());
        let error = read(&[open, ("NCU_SERVICE_ADMIN_TOKEN", "hunter2")]).unwrap_err().to_string();
        assert!(
            error.contains("NCU_SERVICE_ADMIN_TOKEN") && error.contains("32") && !error.contains("hunter2"),
            "{error}"
        );
        let config = read(&[open, ("NCU_SERVICE_ADMIN_TOKEN", "0123456789abcdef0123456789abcdef")]).unwrap();
        assert!(config.admin_token.is_some() && !format!("{config:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn a_kernelbot_url_that_cannot_be_used_is_named_even_when_nobody_is_asked() {
        let error =
            read(&[("NCU_SERVICE_REQUIRE_CLI_ID", "0"), ("KERNELBOT_API_URL", "ftp://x")]).unwrap_err().to_string();
        assert!(error.starts_with("KERNELBOT_API_URL"), "{error}");
    }
}
