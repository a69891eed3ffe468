//! The container engine, the programs beneath it, and the image.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::Finding;
use crate::Error;
use crate::sandbox::{GpuAccess, Sandbox};

const ENGINE: &str = "engine";
const RUNC: &str = "runc";
const TOOLKIT: &str = "NVIDIA toolkit";
const IMAGE: &str = "worker image";

/// The first runc without CVE-2024-21626.
const SAFE_RUNC: Version = (1, 1, 12);
/// The first toolkit without CVE-2025-23266.
const SAFE_TOOLKIT: Version = (1, 17, 8);
/// How long a program may take to tell its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);

type Version = (u32, u32, u32);

pub(super) fn unreachable(error: &Error) -> Finding {
    Finding::failed(
        ENGINE,
        error.to_string(),
        "start the engine, and let this user reach its socket (NCU_SERVICE_DOCKER_HOST names another)",
    )
}

pub(super) async fn reachable(sandbox: &Sandbox) -> Finding {
    match sandbox.ping().await {
        Ok(()) => Finding::ok(ENGINE, "it answers"),
        Err(error) => unreachable(&error),
    }
}

pub(super) async fn versions(sandbox: &Sandbox) -> Vec<Finding> {
    match sandbox.versions().await {
        Ok(found) => {
            vec![Finding::ok(ENGINE, format!("{}, API {}", found.engine, found.api)), runc(found.runc.as_deref())]
        }
        Err(error) => vec![unreachable(&error)],
    }
}

fn runc(found: Option<&str>) -> Finding {
    let Some(found) = found else { return Finding::skipped(RUNC, "the engine does not name it") };
    match version(found) {
        Some(version) if version >= SAFE_RUNC => Finding::ok(RUNC, found),
        Some(_) => Finding::warning(
            RUNC,
            found,
            "before 1.1.12 a container can get out (CVE-2024-21626): upgrade it, unless your distribution mended this version",
        ),
        None => Finding::warning(RUNC, found, "this is no version; it should be 1.1.12 or later"),
    }
}

/// The toolkit's version, as this host tells it. A worker in a container cannot see it.
pub(super) async fn toolkit(gpus: &GpuAccess) -> Finding {
    if matches!(gpus, GpuAccess::None | GpuAccess::Nodes { .. }) {
        return Finding::skipped(TOOLKIT, "not used with this NCU_SERVICE_GPUS");
    }
    let asked = Command::new("nvidia-ctk").arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    match timeout(VERSION_DEADLINE, asked).await {
        Ok(Ok(output)) => toolkit_finding(&String::from_utf8_lossy(&output.stdout)),
        _ => Finding::skipped(TOOLKIT, "nvidia-ctk is not on PATH here; it should be 1.17.8 or later"),
    }
}

/// Reads `NVIDIA Container Toolkit CLI version 1.17.8`.
fn toolkit_finding(text: &str) -> Finding {
    let found = text.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    match version(found) {
        Some(version) if version >= SAFE_TOOLKIT => Finding::ok(TOOLKIT, found),
        Some(_) => Finding::warning(
            TOOLKIT,
            found,
            "before 1.17.8 an image can get out of its container (CVE-2025-23266): upgrade it",
        ),
        None => Finding::warning(TOOLKIT, "nvidia-ctk tells no version", "it should be 1.17.8 or later"),
    }
}

pub(super) async fn image(sandbox: &Sandbox) -> Finding {
    let name = &sandbox.config().image;
    match sandbox.image().await {
        Ok(image) => {
            let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
            let note = if image.simulated { ", with the stand-in profiler: every result is simulated" } else { "" };
            Finding::ok(IMAGE, format!("{name} ({id}{note})"))
        }
        Err(error) => Finding::failed(
            IMAGE,
            format!("{name}: {error}"),
            "build it with scripts/build-images or pull it; NCU_SERVICE_WORKER_IMAGE names another",
        ),
    }
}

/// The three numbers at the start of `1.1.5+ds1`.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part[..digits].parse().ok()
    });
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn versions_with_known_escapes_are_named() {
        for (found, status) in [
            ("1.1.5+ds1", Status::Warning),
            ("1.1.11", Status::Warning),
            ("1.1.12", Status::Ok),
            ("1.2.0-rc.1", Status::Ok),
            ("1.2", Status::Ok),
            ("unknown", Status::Warning),
        ] {
            assert_eq!(runc(Some(found)).status, status, "{found}");
        }
        for (version, status) in [("1.17.7", Status::Warning), ("1.17.8", Status::Ok), ("1.18.0", Status::Ok)] {
            let text = format!("NVIDIA Container Toolkit CLI version {version}\ncommit: abc\n");
            assert_eq!(toolkit_finding(&text).status, status, "{version}");
        }
        assert_eq!(toolkit_finding("").status, Status::Warning);
    }
}
