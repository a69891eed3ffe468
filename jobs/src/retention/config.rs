//! Settings of retention, `NCU_SERVICE_RETENTION_*`.

use std::time::Duration;

use crate::config::{self, ConfigError, Reader};

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionConfig {
    /// Archives, from the end of their job.
    pub artifacts: Duration,
    /// What all archives together may take, in bytes.
    pub artifacts_bytes: u64,
    /// Jobs, from their end; also the rows of workers, from when they were last seen.
    pub jobs: Duration,
    /// How long nothing of a job is taken away, however full the store is.
    pub promise: Duration,
}

impl RetentionConfig {
    /// Reads the settings.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        let promise = reader.or_default(
            "NCU_SERVICE_RETENTION_PROMISE_HOURS",
            "24",
            "hours after its end in which nothing of a job is pruned, however full the store is",
            |value| config::count(value).map(|hours| Duration::from_hours(hours.into())),
        )?;
        let artifacts = reader.or_default(
            "NCU_SERVICE_RETENTION_ARTIFACT_DAYS",
            "14",
            "days for which an archive is kept after its job's end; at least the promise",
            |value| days(value).and_then(|age| at_least(age, promise, "NCU_SERVICE_RETENTION_PROMISE_HOURS")),
        )?;
        Ok(Self {
            promise,
            artifacts,
            artifacts_bytes: reader.or_default(
                "NCU_SERVICE_RETENTION_ARTIFACT_BYTES",
                "100g",
                "what all archives together may take in bytes; the oldest go first",
                config::bytes,
            )?,
            jobs: reader.or_default(
                "NCU_SERVICE_RETENTION_JOB_DAYS",
                "90",
                "days for which a job's row is kept after its end; at least as long as its archives",
                |value| days(value).and_then(|age| at_least(age, artifacts, "NCU_SERVICE_RETENTION_ARTIFACT_DAYS")),
            )?,
        })
    }
}

fn days(value: &str) -> Result<Duration, String> {
    config::count(value).map(|days| Duration::from_hours(24 * u64::from(days)))
}

fn at_least(age: Duration, least: Duration, setting: &str) -> Result<Duration, String> {
    if age < least { Err(format!("at least {setting} is expected")) } else { Ok(age) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<RetentionConfig, ConfigError> {
        RetentionConfig::read(&mut Reader::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn a_job_outlives_its_archives_and_both_outlive_the_promise() {
        let config = read(&[]).unwrap();
        assert!(config.promise < config.artifacts && config.artifacts < config.jobs);
        for (name, value, named) in [
            ("NCU_SERVICE_RETENTION_JOB_DAYS", "13", "NCU_SERVICE_RETENTION_ARTIFACT_DAYS"),
            ("NCU_SERVICE_RETENTION_PROMISE_HOURS", "337", "NCU_SERVICE_RETENTION_PROMISE_HOURS"),
            ("NCU_SERVICE_RETENTION_ARTIFACT_DAYS", "0", "NCU_SERVICE_RETENTION_ARTIFACT_DAYS"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        assert!(read(&[("NCU_SERVICE_RETENTION_PROMISE_HOURS", "336")]).is_ok());
    }
}
