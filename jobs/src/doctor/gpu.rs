//! The GPU: may its counters be read, is it well, and does a container see it.

use std::path::Path;
use std::time::Duration;

use super::{Finding, capture};
use crate::gpu::{DRIVER_DIR, Gpus};
use crate::sandbox::{GpuAccess, How, Sandbox};
use crate::worker::WorkerConfig;

const COUNTERS: &str = "GPU counters";
const CARE: &str = "GPU";
const IN_CONTAINER: &str = "GPU in a container";
const NO_GPU: &str = "NCU_SERVICE_GPUS=none";

/// How long a look from within a container may take, waiting for its turn included.
const LOOK_LIMIT: Duration = Duration::from_mins(1);
/// Names what is there: an image or a mount need not bring `nvidia-smi`.
const LOOK: &str = "nvidia-smi -L 2>/dev/null || ls /dev/nvidia[0-9]*";

/// Whether users who are not root may read performance counters.
pub(super) fn counters(config: &WorkerConfig) -> Finding {
    if config.sandbox.gpus == GpuAccess::None {
        return Finding::skipped(COUNTERS, NO_GPU);
    }
    counters_in(&Path::new(DRIVER_DIR).join("params"))
}

fn counters_in(params: &Path) -> Finding {
    let Ok(text) = std::fs::read_to_string(params) else {
        return Finding::failed(
            COUNTERS,
            format!("{} cannot be read", params.display()),
            "load the NVIDIA driver on this host; NCU_SERVICE_GPUS=none is for the stand-in",
        );
    };
    match text.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:")).map(str::trim) {
        Some("0") => Finding::ok(COUNTERS, "RmProfilingAdminOnly is 0"),
        found => Finding::failed(
            COUNTERS,
            format!("RmProfilingAdminOnly is {}", found.unwrap_or("not there")),
            "put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia-profiling.conf, run \
             `update-initramfs -u`, and restart the host",
        ),
    }
}

/// Quarantine, and what `nvidia-smi` says.
pub(super) async fn care(config: &WorkerConfig, gpus: &Gpus) -> Finding {
    let names = gpus.addresses().join(", ");
    match gpus.quarantine() {
        Ok(Some(quarantine)) => Finding::failed(
            CARE,
            format!("{} is in quarantine: {}", quarantine.gpu, quarantine.reason),
            format!("see to the GPU, then run `ncu-worker unquarantine` (or remove {})", quarantine.file.display()),
        ),
        Err(error) => Finding::failed(CARE, error.to_string(), "make NCU_SERVICE_GPU_LOCK_DIR readable"),
        Ok(None) if config.sandbox.gpus == GpuAccess::None => Finding::skipped(CARE, NO_GPU),
        Ok(None) => match gpus.look().await {
            Ok(Some(found)) => Finding::ok(CARE, format!("{names}: {found}")),
            Ok(None) => Finding::warning(
                CARE,
                format!("{names}: not checked, nvidia-smi is not there"),
                "let NCU_SERVICE_NVIDIA_SMI name it, so that a GPU that is ill or in use is noticed before a capture",
            ),
            Err(why) => Finding::failed(CARE, format!("{names}: {why}"), "make `nvidia-smi` work on this host"),
        },
    }
}

/// What a capture's container sees.
pub(super) async fn in_container(config: &WorkerConfig, sandbox: &Sandbox, gpus: &Gpus) -> Finding {
    if config.sandbox.gpus == GpuAccess::None {
        return Finding::skipped(IN_CONTAINER, NO_GPU);
    }
    let advice = "let the engine give GPUs to containers, in the way that NCU_SERVICE_GPUS names";
    let command = ["sh", "-c", LOOK].map(str::to_owned).to_vec();
    match capture::run(config, sandbox, gpus, command, LOOK_LIMIT).await {
        Ok(ran) if ran.ended.how == (How::Exited { code: 0, oom_killed: false }) => {
            Finding::ok(IN_CONTAINER, ran.ended.log_tail.trim().replace('\n', "; "))
        }
        Ok(ran) => Finding::failed(IN_CONTAINER, format!("none: {}", ran.ended.log_tail.trim()), advice),
        Err(error) => Finding::failed(IN_CONTAINER, error.to_string(), advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn counters_that_only_root_may_read_stop_every_capture_and_the_option_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let params = folder.path().join("params");
        assert_eq!(counters_in(&params).status, Status::Failed, "no driver");
        for (text, status) in [
            ("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n", Status::Ok),
            ("RmProfilingAdminOnly: 1\n", Status::Failed),
            ("", Status::Failed),
        ] {
            std::fs::write(&params, text).unwrap();
            assert_eq!(counters_in(&params).status, status, "{text}");
        }
        assert!(counters_in(&params).advice.unwrap().contains("NVreg_RestrictProfilingToAdminUsers=0"));
    }
}
