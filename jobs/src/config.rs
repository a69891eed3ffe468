//! Settings from the environment, parsed strictly at start: a bad value stops the program and is named.
//!
//! Every setting is read through [`Reader`], which also remembers its name, default and meaning, so that the
//! documentation can be checked against the code.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// The settings that have no default and must be there, each with an example.
pub const REQUIRED: [(&str, &str); 3] = [
    ("NCU_SERVICE_DATABASE_URL", "postgres://ncu:password@db.example:5432/ncu"),
    ("NCU_SERVICE_REFERENCE_PROBLEMS_DIR", "/srv/reference-kernels/problems"),
    ("KERNELBOT_API_URL", "https://kernelbot.example"),
];

/// A setting is missing or malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The setting has no default and is not there.
    #[error("{name} is not set: {help}")]
    Missing {
        /// The environment variable.
        name: &'static str,
        /// What it is for.
        help: &'static str,
    },
    /// The setting cannot be used.
    #[error("{name}={value:?} cannot be used: {reason}")]
    Invalid {
        /// The environment variable.
        name: &'static str,
        /// What stands there; secrets are shown as `***`.
        value: String,
        /// What is expected instead.
        reason: String,
    },
}

/// One setting, for the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// The value used when it is not set; `None` where there is none.
    pub default: Option<&'static str>,
    /// What it is for, with its unit.
    pub help: &'static str,
}

impl Setting {
    /// The setting as a row of the tables in `docs/configuration.md`.
    #[must_use]
    pub fn markdown_row(&self) -> String {
        let default = self.default.map_or_else(String::new, |default| format!("`{default}`"));
        format!("| `{}` | {default} | {} |", self.name, self.help)
    }
}

/// Reads settings and remembers which were asked for.
pub struct Reader {
    variables: HashMap<String, String>,
    settings: Vec<Setting>,
}

impl Reader {
    /// Reads the process's environment. A variable that is not UTF-8 counts as unusable only if it is asked for.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_pairs(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))),
        )
    }

    /// Reads the given variables, for tests and for the documentation.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { variables: pairs.into_iter().map(|(n, v)| (n.into(), v.into())).collect(), settings: Vec::new() }
    }

    /// The settings asked for so far.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// A setting that has no default and may be absent. An empty value counts as absent: env files and compose
    /// write a switched-off setting that way.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        help: &'static str,
        parse: Parse<T>,
    ) -> Result<Option<T>, ConfigError> {
        self.settings.push(Setting { name, default: None, help });
        self.variables.get(name).filter(|value| !value.is_empty()).map(|value| parsed(name, value, parse)).transpose()
    }

    /// A setting with a default, which goes through the same parser.
    pub fn or_default<T>(
        &mut self,
        name: &'static str,
        default: &'static str,
        help: &'static str,
        parse: Parse<T>,
    ) -> Result<T, ConfigError> {
        self.settings.push(Setting { name, default: Some(default), help });
        let value = self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty());
        parsed(name, value.unwrap_or(default), parse)
    }

    /// A setting that must be there.
    pub fn required<T>(&mut self, name: &'static str, help: &'static str, parse: Parse<T>) -> Result<T, ConfigError> {
        self.optional(name, help, parse)?.ok_or(ConfigError::Missing { name, help })
    }
}

/// Turns a setting's text into its value, or says what is expected.
pub type Parse<T> = fn(&str) -> Result<T, String>;

fn parsed<T>(name: &'static str, value: &str, parse: Parse<T>) -> Result<T, ConfigError> {
    parse(value).map_err(|reason| ConfigError::Invalid {
        name,
        // A URL can carry a password, and this text ends in a log.
        value: if name.ends_with("_URL") || name.ends_with("_TOKEN") { "***".to_owned() } else { value.to_owned() },
        reason,
    })
}

/// A switch: `1`, `0`, `true` or `false`, and nothing that could be taken for either.
pub fn switch(value: &str) -> Result<bool, String> {
    match value {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("a switch is 1 or 0".to_owned()),
    }
}

/// The URL of something that speaks HTTP.
pub fn web_url(value: &str) -> Result<Url, String> {
    Url::parse(value)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or_else(|| "an http:// or https:// URL is expected".to_owned())
}

/// A whole number of at least one.
pub fn count(value: &str) -> Result<u32, String> {
    value.parse().ok().filter(|&n| n > 0).ok_or_else(|| "a whole number of at least 1 is expected".to_owned())
}

/// A whole number, zero included.
pub fn whole(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| "a whole number is expected".to_owned())
}

/// A length of time in whole seconds, at least one.
pub fn seconds(value: &str) -> Result<Duration, String> {
    count(value).map(|n| Duration::from_secs(n.into())).map_err(|_| "a whole number of seconds is expected".to_owned())
}

/// A size in bytes, with an optional binary unit: `1048576`, `512m`, `8g`.
pub fn bytes(value: &str) -> Result<u64, String> {
    let expected = || "a size in bytes is expected, for example 512m or 8g".to_owned();
    let (digits, factor) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 1 << 30),
        _ => (value, 1),
    };
    let number: u64 = digits.parse().map_err(|_| expected())?;
    number.checked_mul(factor).filter(|&n| n > 0 && i64::try_from(n).is_ok()).ok_or_else(expected)
}

/// Any text.
pub fn text(value: &str) -> Result<String, String> {
    Ok(value.to_owned())
}

/// An absolute path: a relative one would mean something else after a restart from another folder.
pub fn absolute_path(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err("an absolute path is expected".to_owned()) }
}

/// How Postgres is reached.
#[derive(Clone)]
pub struct DatabaseConfig {
    /// Connection URL, which may carry a password.
    pub url: String,
    /// Connections in the pool.
    pub max_connections: u32,
}

impl fmt::Debug for DatabaseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseConfig").field("max_connections", &self.max_connections).finish_non_exhaustive()
    }
}

impl DatabaseConfig {
    /// Reads `NCU_SERVICE_DATABASE_*`.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            url: reader.required(
                "NCU_SERVICE_DATABASE_URL",
                "URL of the Postgres database, postgres://user:password@host:port/name",
                postgres_url,
            )?,
            max_connections: reader.or_default(
                "NCU_SERVICE_DATABASE_CONNECTIONS",
                "10",
                "connections in the pool of one process, at least 5",
                pool_size,
            )?,
        })
    }
}

fn postgres_url(value: &str) -> Result<String, String> {
    // The driver's own parser takes any scheme.
    let known = value.starts_with("postgres://") || value.starts_with("postgresql://");
    if known && value.parse::<sqlx::postgres::PgConnectOptions>().is_ok() {
        Ok(value.to_owned())
    } else {
        Err("a postgres:// URL is expected".to_owned())
    }
}

/// The listener, the heartbeat and the lease each need a connection of their own, or a busy pool loses a lease.
fn pool_size(value: &str) -> Result<u32, String> {
    count(value).ok().filter(|&n| n >= 5).ok_or_else(|| "a whole number of at least 5 is expected".to_owned())
}

/// Reads `NCU_SERVICE_REFERENCE_PROBLEMS_DIR`.
pub fn problems_dir(reader: &mut Reader) -> Result<PathBuf, ConfigError> {
    reader.required(
        "NCU_SERVICE_REFERENCE_PROBLEMS_DIR",
        "the problems folder of a reference-kernels checkout",
        absolute_path,
    )
}

/// Reads `NCU_SERVICE_ARTIFACTS_URL`.
pub fn artifacts_url(reader: &mut Reader) -> Result<Url, ConfigError> {
    reader.or_default(
        "NCU_SERVICE_ARTIFACTS_URL",
        "file:///var/lib/ncu-service/artifacts",
        "where the zips go: file:///folder, or s3://bucket/prefix with the usual AWS_* variables",
        store_url,
    )
}

fn store_url(value: &str) -> Result<Url, String> {
    let expected = || "file:///folder or s3://bucket/prefix is expected".to_owned();
    let url = Url::parse(value).map_err(|_| expected())?;
    match (url.scheme(), url.host_str()) {
        ("file", None) | ("s3", Some(_)) => Ok(url),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_is_neither_on_nor_off_stops_the_start_and_is_named() {
        let mut reader = Reader::from_pairs([("NCU_SERVICE_LANDLOCK", "no")]);
        let error = reader.or_default("NCU_SERVICE_LANDLOCK", "1", "help", switch).unwrap_err();
        assert_eq!(error.to_string(), r#"NCU_SERVICE_LANDLOCK="no" cannot be used: a switch is 1 or 0"#);
        for (value, expected) in [("0", false), ("false", false), ("1", true), ("true", true)] {
            assert_eq!(Reader::from_pairs([("X", value)]).or_default("X", "1", "", switch), Ok(expected));
        }
    }

    #[test]
    fn an_empty_value_counts_as_not_set() {
        let mut reader = Reader::from_pairs([("A", ""), ("B", "")]);
        assert_eq!(reader.optional("A", "", count), Ok(None));
        assert_eq!(reader.or_default("B", "7", "", count), Ok(7));
        assert_eq!(reader.required("A", "what for", count), Err(ConfigError::Missing { name: "A", help: "what for" }));
    }

    #[test]
    fn sizes_take_binary_units() {
        assert_eq!(bytes("8g"), Ok(8 << 30));
        assert_eq!(bytes("512m"), Ok(512 << 20));
        assert_eq!(bytes("17"), Ok(17));
        for wrong in ["", "g", "-1", "1.5g", "0", "99999999999g", "1t"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bad_database_url_is_named_without_its_password() {
        let mut reader = Reader::from_pairs([("NCU_SERVICE_DATABASE_URL", "mysql://u:hunter2@h/db")]);
        let error = DatabaseConfig::read(&mut reader).unwrap_err().to_string();
        assert!(error.contains("NCU_SERVICE_DATABASE_URL") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn an_artifacts_url_of_another_scheme_is_refused() {
        for wrong in ["/var/lib", "http://host/x", "s3:///x", "file://host/x"] {
            assert!(store_url(wrong).is_err(), "{wrong}");
        }
        assert!(store_url("file:///tmp/a").is_ok() && store_url("s3://bucket/prefix").is_ok());
    }
}
