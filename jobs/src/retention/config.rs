//! Settings of retention, `NCU_SERVICE_RETENTION_*`.

use std::time::Duration;

use crate::config::{self, ConfigError, Reader};

const ARTIFACT_DAYS: &str = "NCU_SERVICE_RETENTION_ARTIFACT_DAYS";
const JOB_DAYS: &str = "NCU_SERVICE_RETENTION_JOB_DAYS";
const PROMISE_HOURS: &str = "NCU_SERVICE_RETENTION_PROMISE_HOURS";
const SECS_OF_DAY: u64 = 24 * 60 * 60;

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
        let config = Self {
            artifacts: reader.or_default(
                ARTIFACT_DAYS,
                "14",
                "days for which an archive is kept after its job's end",
                days,
            )?,
            artifacts_bytes: reader.or_default(
                "NCU_SERVICE_RETENTION_ARTIFACT_BYTES",
                "100g",
                "what all archives together may take in bytes; the oldest go first",
                config::bytes,
            )?,
            jobs: reader.or_default(
                JOB_DAYS,
                "90",
                "days for which a job's row is kept after its end; at least as long as its archives",
                days,
            )?,
            promise: reader.or_default(
                PROMISE_HOURS,
                "24",
                "hours after its end in which nothing of a job is pruned, however full the store is; at most the time of \
                 archives",
                hours,
            )?,
        };
        for (name, value, least, of) in [
            (ARTIFACT_DAYS, config.artifacts, config.promise, PROMISE_HOURS),
            (JOB_DAYS, config.jobs, config.artifacts, ARTIFACT_DAYS),
        ] {
            if value < least {
                let value = (value.as_secs() / SECS_OF_DAY).to_string();
                return Err(ConfigError::Invalid { name, value, reason: format!("at least {of} is expected") });
            }
        }
        Ok(config)
    }
}

fn hours(value: &str) -> Result<Duration, String> {
    config::count(value).map(|hours| Duration::from_hours(hours.into()))
}

fn days(value: &str) -> Result<Duration, String> {
    config::count(value).map(|days| Duration::from_secs(SECS_OF_DAY * u64::from(days)))
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
