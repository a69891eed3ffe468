//! Settings of `ncu-worker`.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::capture::options::OperatorOptions;
use crate::config::{self, ConfigError, DatabaseConfig, Reader};
use crate::gpu::GpuConfig;
use crate::retention::RetentionConfig;
use crate::sandbox::SandboxConfig;

/// Everything a worker is told.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// How Postgres is reached.
    pub database: DatabaseConfig,
    /// The problems folder of reference-kernels.
    pub problems_dir: PathBuf,
    /// The artifact store.
    pub artifacts_url: Url,
    /// Folder for runs in progress, as the container engine sees it.
    pub jobs_dir: PathBuf,
    /// The operator's capture options.
    pub ncu: OperatorOptions,
    /// How containers are made.
    pub sandbox: SandboxConfig,
    /// How GPUs are shared and looked after.
    pub gpu: GpuConfig,
    /// Free space of the jobs folder and of a local artifact store below which no job is taken, in bytes.
    pub min_free_bytes: u64,
    /// The limits of one shape.
    pub limits: ShapeLimits,
    /// How long a claim lasts without renewal.
    pub lease: Duration,
    /// How long things are kept.
    pub retention: RetentionConfig,
}

/// The limits of one shape's processing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeLimits {
    /// Whether the runner restricts itself with Landlock.
    pub landlock: bool,
    /// Import of the submission outside the profiler.
    pub warmup: Duration,
    /// Least time that a capture gets; a task with a longer `benchmark_timeout` gets that.
    pub capture: Duration,
    /// Each export.
    pub export: Duration,
    /// Kept of stdout, stderr and the evaluator's log, in bytes each.
    pub max_stream_bytes: u64,
    /// Largest text or CSV export, in bytes.
    pub max_export_bytes: u64,
}

impl WorkerConfig {
    /// Reads every setting of the worker.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            database: DatabaseConfig::read(reader)?,
            problems_dir: config::problems_dir(reader)?,
            artifacts_url: config::artifacts_url(reader)?,
            jobs_dir: reader.or_default(
                "NCU_SERVICE_JOBS_DIR",
                "/var/lib/ncu-service/jobs",
                "folder for runs in progress; a worker in a container needs it at the same path as the host",
                config::absolute_path,
            )?,
            ncu: OperatorOptions::read(reader)?,
            sandbox: SandboxConfig::read(reader)?,
            gpu: GpuConfig::read(reader)?,
            min_free_bytes: reader.or_default(
                "NCU_SERVICE_MIN_FREE",
                "5g",
                "free space in bytes of the jobs folder and of a local artifact store below which no job is taken",
                config::bytes,
            )?,
            limits: ShapeLimits::read(reader)?,
            lease: reader.or_default(
                "NCU_SERVICE_LEASE_SECS",
                "30",
                "how long a claim lasts without renewal, in seconds",
                lease,
            )?,
            retention: RetentionConfig::read(reader)?,
        })
    }
}

impl ShapeLimits {
    fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            landlock: reader.or_default(
                "NCU_SERVICE_LANDLOCK",
                "1",
                "restrict the container's processes with Landlock too",
                config::switch,
            )?,
            warmup: reader.or_default(
                "NCU_SERVICE_WARMUP_TIMEOUT_SECS",
                "300",
                "limit of the import before the capture, which compiles inline extensions, in seconds",
                config::seconds,
            )?,
            capture: reader.or_default(
                "NCU_SERVICE_CAPTURE_TIMEOUT_SECS",
                "600",
                "least time that a capture gets, in seconds; a task with a longer benchmark_timeout gets that",
                config::seconds,
            )?,
            export: reader.or_default(
                "NCU_SERVICE_EXPORT_TIMEOUT_SECS",
                "120",
                "limit of each export of a report, in seconds",
                config::seconds,
            )?,
            max_stream_bytes: reader.or_default(
                "NCU_SERVICE_MAX_STREAM_BYTES",
                "1m",
                "kept of stdout, of stderr and of the evaluator's log, in bytes; a cut is marked in the file",
                config::bytes,
            )?,
            max_export_bytes: reader.or_default(
                "NCU_SERVICE_MAX_EXPORT_BYTES",
                "64m",
                "largest text or CSV export of a report, in bytes",
                config::bytes,
            )?,
        })
    }
}

/// A lease that is renewed every third of it must outlast a short outage of the database.
fn lease(value: &str) -> Result<Duration, String> {
    config::seconds(value)
        .ok()
        .filter(|lease| lease.as_secs() >= 3)
        .ok_or_else(|| "at least 3 seconds are expected".to_owned())
}
