//! The operator's settings of the sandbox.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::gpu::GpuAccess;
use super::mounts::HostMount;
use super::seccomp::Seccomp;
use crate::collect::UsageLimits;
use crate::config::{ConfigError, Reader, absolute_path, bytes, count, text};

/// Where a runner of this host appears in a container: not below a folder that an operator may mount from the host.
const RUNNER_IN_CONTAINER: &str = "/ncu-service/ncu-runner";
/// The launch tracer, which the runner looks for beside itself.
const TRACER: &str = "liblaunches.so";
/// The runner of the image, on its path.
const RUNNER_OF_IMAGE: &str = "ncu-runner";
/// The user and group that own nothing.
const NOBODY: ContainerUser = ContainerUser { uid: 65534, gid: 65534 };

/// What every container of this worker gets.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Where the engine listens; `None` for `DOCKER_HOST` or the usual socket.
    pub docker_host: Option<String>,
    /// The image of captures and exports.
    pub image: String,
    /// How a capture gets at the GPU.
    pub gpus: GpuAccess,
    /// `ncu` of this host, where the image has none.
    pub ncu: Option<HostProgram>,
    /// A runner of this host, where the image has none.
    pub runner: Option<PathBuf>,
    /// Further folders of this host, read-only.
    pub mounts: Vec<HostMount>,
    /// Environment variables on top of the image's, `NAME=value`.
    pub environment: Vec<String>,
    /// Who runs in a container.
    pub user: ContainerUser,
    /// Which system calls a container may make.
    pub seccomp: Seccomp,
    /// How much a container may take.
    pub limits: ContainerLimits,
    /// Tells the containers of two services on one engine apart. No setting: the worker fills in the service's identity.
    pub scope: String,
}

impl SandboxConfig {
    /// Reads the sandbox's settings.
    pub fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            docker_host: reader.optional(
                "NCU_SERVICE_DOCKER_HOST",
                "socket of the container engine, unix:///path; else DOCKER_HOST or the usual socket",
                unix_socket,
            )?,
            image: reader.or_default(
                "NCU_SERVICE_WORKER_IMAGE",
                "ncu-service-worker:latest",
                "image that captures and exports run in",
                text,
            )?,
            gpus: reader.or_default(
                "NCU_SERVICE_GPUS",
                "all",
                "GPUs of a capture: all, device=N[,M] or device=GPU-uuid (NVIDIA runtime), cdi:nvidia.com/gpu=N[,…], \
                 nodes:/dev/nvidia0,/dev/nvidiactl,…[;driver=/folder with the driver's libraries], or none",
                GpuAccess::parse,
            )?,
            ncu: reader.optional(
                "NCU_SERVICE_NCU_HOST_PATH",
                "absolute path of this host's ncu or of its installation folder, mounted read-only at the same path; \
                 else the image's ncu",
                HostProgram::parse,
            )?,
            runner: reader.optional(
                "NCU_SERVICE_RUNNER_PATH",
                "absolute path of a statically linked ncu-runner on this host, mounted read-only with the liblaunches.so that \
                 lies beside it; else the image's",
                absolute_path,
            )?,
            mounts: reader
                .optional(
                    "NCU_SERVICE_WORKER_MOUNTS",
                    "further folders of this host, mounted read-only: /folder or /host:/container, separated by commas",
                    HostMount::parse_list,
                )?
                .unwrap_or_default(),
            environment: reader
                .optional(
                    "NCU_SERVICE_WORKER_ENV",
                    "environment variables of captures and exports beside the image's, NAME=value, separated by commas; \
                     PATH, for example, where the programs are this host's",
                    variables,
                )?
                .unwrap_or_default(),
            user: reader
                .optional(
                    "NCU_SERVICE_CONTAINER_USER",
                    "uid:gid that containers run as, not root; else 65534:65534 for a worker that is root and the \
                     worker's own otherwise (a worker that is not root can only read what its own user wrote)",
                    str::parse,
                )?
                .unwrap_or_default(),
            seccomp: reader.or_default(
                "NCU_SERVICE_SECCOMP",
                "builtin",
                "system calls of a container: builtin (a list of ours), default (the container engine's), or the absolute \
                 path of a seccomp profile in the engine's format",
                Seccomp::parse,
            )?,
            limits: ContainerLimits::read(reader)?,
            scope: String::new(),
        })
    }

    /// `ncu` as a command line names it in a container.
    #[must_use]
    pub fn ncu_program(&self) -> &str {
        self.ncu.as_ref().map_or("ncu", |ncu| &ncu.program)
    }

    /// The runner as a command line names it in a container.
    #[must_use]
    pub fn runner_program(&self) -> &'static str {
        if self.runner.is_some() { RUNNER_IN_CONTAINER } else { RUNNER_OF_IMAGE }
    }

    /// Every read-only folder of this host that is the same for all containers.
    pub(super) fn host_mounts(&self) -> Vec<HostMount> {
        let runner = self.runner.clone().map(|host| HostMount { host, container: RUNNER_IN_CONTAINER.into() });
        // A mount whose source is missing would be an error, and captures do without a tracer.
        let tracer = self.runner.as_ref().map(|runner| runner.with_file_name(TRACER)).filter(|tracer| tracer.is_file());
        let tracer =
            tracer.map(|host| HostMount { host, container: Path::new(RUNNER_IN_CONTAINER).with_file_name(TRACER) });
        let ncu = self.ncu.as_ref().map(|ncu| HostMount::in_place(ncu.folder.clone()));
        self.mounts.iter().cloned().chain(ncu).chain(runner).chain(tracer).collect()
    }
}

/// A program of this host, and the folder that it needs around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProgram {
    /// What is mounted, at the same path.
    pub folder: PathBuf,
    /// The program's path, on the host and in a container.
    pub program: String,
}

impl HostProgram {
    /// Takes the path of `ncu` or of the folder that holds it. `ncu` is a script that looks for the rest of its
    /// installation beside itself, so the folder is mounted in either case.
    fn parse(value: &str) -> Result<Self, String> {
        let path = HostMount::parse(value)?.host;
        // A worker that itself runs in a container may not see the path; then the name decides.
        let is_program = path.is_file() || (!path.is_dir() && path.file_name().is_some_and(|name| name == "ncu"));
        let program = if is_program { path.canonicalize().unwrap_or(path) } else { path.join("ncu") };
        let folder = program.parent().filter(|folder| *folder != Path::new("/"));
        Ok(Self {
            folder: folder.ok_or("ncu must lie in a folder of its own")?.to_owned(),
            program: program.to_string_lossy().into_owned(),
        })
    }
}

/// Who runs in a container: a user and a group, neither of them root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Default for ContainerUser {
    /// Nobody, when this process is root; else this process's own, so that it can read what a container wrote.
    fn default() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid == 0 { NOBODY } else { Self { uid, gid } }
    }
}

impl FromStr for ContainerUser {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let expected = || "uid:gid is expected, two numbers that are not 0".to_owned();
        let (uid, gid) = value.split_once(':').ok_or_else(expected)?;
        let id = |digits: &str| digits.parse().ok().filter(|&id: &u32| id != 0).ok_or_else(expected);
        Ok(Self { uid: id(uid)?, gid: id(gid)? })
    }
}

/// How much one container may take. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerLimits {
    /// Memory, its tmpfs included; it gets no swap.
    pub memory_bytes: u64,
    /// Processors; no more than the host has.
    pub cpus: u32,
    /// Processes and threads.
    pub pids: u32,
    /// Size of `/tmp`.
    pub tmp_bytes: u64,
    /// Size of `/dev/shm`.
    pub shm_bytes: u64,
    /// Size of any one file, and of everything in `/out` together.
    pub output_bytes: u64,
    /// What must stay free on the disk of `/out`; a container that runs when less is left is ended.
    pub free_bytes: u64,
}

impl ContainerLimits {
    /// What the output folder may hold. Our own programs write a dozen files there.
    pub(super) fn output(&self) -> UsageLimits {
        UsageLimits { entries: 10_000, depth: 32, bytes: self.output_bytes, free_bytes: self.free_bytes }
    }

    fn read(reader: &mut Reader) -> Result<Self, ConfigError> {
        Ok(Self {
            memory_bytes: reader.or_default(
                "NCU_SERVICE_CONTAINER_MEMORY",
                "16g",
                "memory of one container in bytes, /tmp and /dev/shm included; kernel replay saves GPU memory here",
                bytes,
            )?,
            cpus: reader.or_default(
                "NCU_SERVICE_CONTAINER_CPUS",
                "4",
                "processors of one container, at most those of the host",
                count,
            )?,
            pids: reader.or_default(
                "NCU_SERVICE_CONTAINER_PIDS",
                "1024",
                "processes and threads of one container",
                count,
            )?,
            tmp_bytes: reader.or_default(
                "NCU_SERVICE_CONTAINER_TMP",
                "4g",
                "size of a container's /tmp in bytes, kept in memory",
                bytes,
            )?,
            shm_bytes: reader.or_default(
                "NCU_SERVICE_CONTAINER_SHM",
                "1g",
                "size of a container's /dev/shm in bytes, kept in memory",
                bytes,
            )?,
            output_bytes: reader.or_default(
                "NCU_SERVICE_CONTAINER_OUTPUT",
                "2g",
                "what a container may write to disk in bytes: the largest file, and all of them together",
                bytes,
            )?,
            free_bytes: reader.or_default(
                "NCU_SERVICE_CONTAINER_FREE_DISK",
                "1g",
                "what must stay free on the disk of the jobs folder in bytes; a container that runs when less is left is ended",
                bytes,
            )?,
        })
    }
}

fn unix_socket(value: &str) -> Result<String, String> {
    match value.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(value.to_owned()),
        _ => Err("unix:///path is expected".to_owned()),
    }
}

/// `NAME=value`, separated by commas.
fn variables(value: &str) -> Result<Vec<String>, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.as_bytes()[0].is_ascii_digit()
    };
    let one = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_name(name) => Ok(pair.to_owned()),
        _ => Err("NAME=value is expected, several separated by commas".to_owned()),
    };
    value.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<SandboxConfig, ConfigError> {
        SandboxConfig::read(&mut Reader::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn without_any_setting_the_image_brings_its_programs() {
        let config = read(&[]).unwrap();
        assert_eq!((config.ncu_program(), config.runner_program()), ("ncu", "ncu-runner"));
        assert_eq!(config.limits.memory_bytes, 16 << 30);
        assert!(config.user.uid != 0 && config.host_mounts().is_empty());
    }

    #[test]
    fn ncu_is_named_by_its_folder_or_by_itself() {
        // Not /tmp, which is a container's own.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let program = folder.path().join("ncu");
        std::fs::write(&program, "").unwrap();
        for named in [program.as_path(), folder.path()] {
            let ncu = HostProgram::parse(named.to_str().unwrap()).unwrap();
            assert_eq!((ncu.folder.as_path(), ncu.program.as_str()), (folder.path(), program.to_str().unwrap()));
        }
        let missing = HostProgram::parse("/opt/nowhere/ncu").unwrap();
        assert_eq!(missing, HostProgram { folder: "/opt/nowhere".into(), program: "/opt/nowhere/ncu".into() });
        let folder = HostProgram::parse("/opt/nowhere/nsight").unwrap();
        assert_eq!(folder.program, "/opt/nowhere/nsight/ncu");
    }

    #[test]
    fn a_tracer_beside_the_hosts_runner_comes_along() {
        let folder = tempfile::tempdir().unwrap();
        let runner = folder.path().join("ncu-runner");
        let in_container = || {
            let config = read(&[("NCU_SERVICE_RUNNER_PATH", runner.to_str().unwrap())]).unwrap();
            config.host_mounts().into_iter().map(|mount| mount.container).collect::<Vec<_>>()
        };
        assert_eq!(in_container(), [Path::new("/ncu-service/ncu-runner")]);
        std::fs::write(folder.path().join("liblaunches.so"), "").unwrap();
        assert_eq!(in_container(), [Path::new("/ncu-service/ncu-runner"), Path::new("/ncu-service/liblaunches.so")]);
    }

    #[test]
    fn nobody_can_make_containers_run_as_root() {
        for wrong in ["0:0", "0:5", "5:0", "root", "5", "5:", "-1:5"] {
            assert!(read(&[("NCU_SERVICE_CONTAINER_USER", wrong)]).is_err(), "{wrong}");
        }
        let user = read(&[("NCU_SERVICE_CONTAINER_USER", "1000:100")]).unwrap().user;
        assert_eq!(user, ContainerUser { uid: 1000, gid: 100 });
    }

    #[test]
    fn the_engine_listens_on_a_unix_socket() {
        for wrong in ["tcp://host:2375", "/var/run/docker.sock", "unix://docker.sock"] {
            assert!(read(&[("NCU_SERVICE_DOCKER_HOST", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn variables_of_containers_are_names_and_values() {
        let config = read(&[("NCU_SERVICE_WORKER_ENV", "PATH=/opt/bin:/usr/bin,CUDA_HOME=/usr/local/cuda")]).unwrap();
        assert_eq!(config.environment, ["PATH=/opt/bin:/usr/bin", "CUDA_HOME=/usr/local/cuda"]);
        for wrong in ["PATH", "=x", "A B=c", "1A=b", "A=b,"] {
            assert!(read(&[("NCU_SERVICE_WORKER_ENV", wrong)]).is_err(), "{wrong}");
        }
    }
}
