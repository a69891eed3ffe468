//! Settings of the GPU's care.

use std::path::PathBuf;

use crate::config::{self, ConfigError, Reader};

/// How GPUs are shared and looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuConfig {
    /// Folder of locks and quarantines, the same for every worker of this host.
    pub lock_dir: PathBuf,
    /// `nvidia-smi`, by path or by name.
    pub nvidia_smi: String,
    /// GPU memory that may be in use before a capture, in bytes.
    pub max_used_bytes: u64,
}

impl GpuConfig {
    /// Reads the settings of GPUs.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            lock_dir: reader.or_default(
                "NCU_SERVICE_GPU_LOCK_DIR",
                "/var/lib/ncu-service/gpu-locks",
                "folder by which the workers of a host take turns on its GPUs, and where a quarantine stands; the same \
                 for all of them, whatever their database",
                config::absolute_path,
            )?,
            nvidia_smi: reader.or_default(
                "NCU_SERVICE_NVIDIA_SMI",
                "nvidia-smi",
                "nvidia-smi of this host, by path or by name on PATH; without it GPUs are not checked before a capture",
                config::text,
            )?,
            max_used_bytes: reader.or_default(
                "NCU_SERVICE_GPU_MAX_USED",
                "1g",
                "GPU memory in bytes that may be in use before a capture; more means that somebody else works there",
                config::bytes,
            )?,
        })
    }
}
