//! What the runner finds out about its container: versions, and memory kills.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ncu_runner::protocol;

use crate::environment::Environment;
use crate::layout::Layout;
use crate::step::{self, Sinks, Spec};
use crate::streams::CappedStream;
use crate::trouble::Result;

/// Kept of a probe's output.
const MAX_PROBE_BYTES: u64 = 64 * 1024;
/// The counter of memory kills: cgroup v2, then v1.
const OOM_FILES: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

/// Reads the packages' metadata: importing torch would take seconds.
const PYTHON_VERSIONS: &str = r#"
import importlib.metadata, platform, sys
print("python", platform.python_version())
for path in sys.path:
    if path.endswith(("site-packages", "dist-packages")):
        print("packages", path)
for name in ("torch", "triton"):
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        continue
    print(name, version)
    if "+cu" in version:
        digits = version.split("+cu")[1]
        print("cuda", digits[:-1] + "." + digits[-1:])
"#;

/// The version line of `ncu --version`, if it has one.
pub fn ncu_version(ncu: &str, layout: &Layout, environment: &Environment) -> Result<Option<String>> {
    let output = output_of(&[ncu, "--version"], layout, environment)?;
    Ok(output.lines().find(|line| line.starts_with("Version ")).map(|line| line.trim_end().to_owned()))
}

/// What Python says of the image.
#[derive(Debug)]
pub struct Python {
    /// The versions of `python`, `torch`, `triton`, `cuda`, `gpu` and `driver`, as far as they are there.
    pub versions: BTreeMap<String, String>,
    /// The folders of its packages.
    pub packages: Vec<PathBuf>,
}

/// Asks Python for versions and places. Nothing of the submission has run by then.
pub fn python(layout: &Layout, environment: &Environment) -> Result<Python> {
    let output = output_of(&["python3", "-I", "-c", PYTHON_VERSIONS], layout, environment)?;
    let (packages, versions): (Vec<_>, Vec<_>) =
        output.lines().filter_map(|line| line.split_once(' ')).partition(|(name, _)| *name == "packages");
    let packages = packages.into_iter().map(|(_, path)| PathBuf::from(path)).collect();
    let mut versions: BTreeMap<String, String> =
        versions.into_iter().map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
    let driver = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    if let Some(version) = driver_version(&driver) {
        versions.insert("driver".to_owned(), version.to_owned());
    }
    if let Some(model) = gpu_model(Path::new("/proc/driver/nvidia/gpus")) {
        versions.insert("gpu".to_owned(), model);
    }
    Ok(Python { versions, packages })
}

/// How often the kernel has killed a process for the container's memory limit; 0 where the kernel does not tell.
pub fn oom_kills() -> u64 {
    OOM_FILES.iter().find_map(|path| oom_count(&fs::read_to_string(path).ok()?)).unwrap_or(0)
}

fn oom_count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  …`.
fn driver_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

fn gpu_model(gpus: &Path) -> Option<String> {
    let first = fs::read_dir(gpus).ok()?.filter_map(std::result::Result::ok).min_by_key(fs::DirEntry::file_name)?;
    let information = fs::read_to_string(first.path().join("information")).ok()?;
    information.lines().find_map(|line| line.strip_prefix("Model:")).map(|model| model.trim().to_owned())
}

fn output_of(argv: &[&str], layout: &Layout, environment: &Environment) -> Result<String> {
    let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    let (mut stdout, mut stderr) = (CappedStream::new(MAX_PROBE_BYTES), CappedStream::new(MAX_PROBE_BYTES));
    let env = environment.for_next_step()?;
    let limit = Duration::from_secs(protocol::PROBE_SECS);
    let spec = Spec { name: "probe", argv: &argv, dir: &layout.tmp, env, limit, at_limit: None };
    step::run(&spec, Sinks { stdout: &mut stdout, stderr: &mut stderr, popcorn: None })?;
    Ok(stdout.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_kills_are_read_from_both_kinds_of_cgroup() {
        assert_eq!(oom_count("low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(oom_count("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), Some(1));
        assert_eq!(oom_count("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn the_driver_version_is_the_first_dotted_number() {
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 13.2\n";
        assert_eq!(driver_version(open), Some("580.159.03"));
        assert_eq!(driver_version(""), None);
    }
}
