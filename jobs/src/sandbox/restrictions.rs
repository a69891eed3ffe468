//! What a container may do: one list, to be read in a minute. Each line has a test against a real engine.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use ncu_runner::protocol;

use super::config::SandboxConfig;
use super::gpu::GpuAccess;
use super::mounts::{Access, HostMount, bind};
use super::spec::{ContainerSpec, Inputs};

/// Files in `/tmp`: a compiler's caches need thousands, and each takes memory of the host's kernel.
const TMP_FILES: u32 = 500_000;
/// Open files of one process. An engine may be held to few itself, and then refuses more to a container.
const OPEN_FILES: u64 = 4_096;

/// The whole list.
fn restrictions(config: &SandboxConfig, spec: &ContainerSpec<'_>, host_cpus: u32) -> HostConfig {
    let limits = &config.limits;
    let gpus = gpus(config, spec);
    HostConfig {
        // No interface but its own loopback.
        network_mode: Some("none".to_owned()),
        // No privilege of root's, whoever it manages to become.
        cap_drop: Some(vec!["ALL".to_owned()]),
        privileged: Some(false),
        // A setuid program gains nothing; only listed system calls. The engine's AppArmor profile stays, since none is named.
        security_opt: Some(
            ["no-new-privileges:true".to_owned()].into_iter().chain(config.seccomp.security_option()).collect(),
        ),
        // Nothing of the image can be changed.
        readonly_rootfs: Some(true),
        // Inputs and host folders read-only; /out the only mount to write.
        mounts: Some(mounts(config, spec)),
        // Scratch in memory, `exec` because compiled extensions are loaded from it; the mode is the image's otherwise.
        tmpfs: Some(HashMap::from([(
            "/tmp".to_owned(),
            format!("rw,exec,nosuid,nodev,mode=1777,nr_inodes={TMP_FILES},size={}", limits.tmp_bytes),
        )])),
        // Semaphores, queues and shared memory of its own, bounded.
        ipc_mode: Some("private".to_owned()),
        shm_size: Some(signed(limits.shm_bytes)),
        // It does not learn where on the host it runs.
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        // A fork bomb ends here.
        pids_limit: Some(limits.pids.into()),
        // Memory without swap: the limit is the limit.
        memory: Some(signed(limits.memory_bytes)),
        memory_swap: Some(signed(limits.memory_bytes)),
        // When the host itself runs short, this goes before the worker.
        oom_score_adj: Some(500),
        nano_cpus: Some(i64::from(limits.cpus.min(host_cpus)) * 1_000_000_000),
        ulimits: Some(vec![
            ulimit("nofile", OPEN_FILES),
            // No file, on disk or in memory, grows past the output limit; a sparse one neither.
            ulimit("fsize", limits.output_bytes),
            // A core dump is written by the kernel, wherever the host says.
            ulimit("core", 0),
            // memlock stays as it is: CUDA pins memory.
        ]),
        // Only a capture sees a GPU.
        device_requests: Some(gpus.device_requests()),
        devices: Some(gpus.devices()),
        // The runner is process 1 and reaps; an engine may come without an init of its own.
        init: Some(false),
        // What it prints reaches the host's disk up to a cap.
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), "1m".to_owned()),
                ("max-file".to_owned(), "1".to_owned()),
            ])),
        }),
        // It ends once, and stays until its end has been read.
        auto_remove: Some(false),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        ..HostConfig::default()
    }
}

/// Everything that the engine is told about a container.
pub(super) fn container(config: &SandboxConfig, spec: &ContainerSpec<'_>, host_cpus: u32) -> ContainerCreateBody {
    let command = if spec.command.is_empty() { vec![config.runner_program().to_owned()] } else { spec.command.clone() };
    ContainerCreateBody {
        image: Some(config.image.clone()),
        labels: Some(spec.label_map(&config.scope)),
        // Never root, whatever the image says.
        user: Some(format!("{}:{}", config.user.uid, config.user.gid)),
        // The image's own entry point and command are not asked.
        entrypoint: Some(command),
        cmd: Some(Vec::new()),
        // Of the worker's environment nothing.
        env: Some(environment(config, gpus(config, spec))),
        hostname: Some("sandbox".to_owned()),
        working_dir: Some("/tmp".to_owned()),
        // The engine runs nothing beside the command.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        host_config: Some(restrictions(config, spec, host_cpus)),
        ..ContainerCreateBody::default()
    }
}

fn mounts(config: &SandboxConfig, spec: &ContainerSpec<'_>) -> Vec<Mount> {
    let (input, other, other_target) = match spec.inputs {
        Inputs::Capture { input, problems } => (input, problems, protocol::PROBLEMS_DIR),
        Inputs::Export { input, report } => (input, report, protocol::REPORT_DIR),
    };
    let mut mounts = vec![
        bind(input, Path::new(protocol::IN_DIR), Access::Folder),
        bind(other, Path::new(other_target), Access::Folder),
        bind(spec.output.path(), Path::new(protocol::OUT_DIR), Access::Output),
    ];
    mounts.extend(config.host_mounts().iter().map(HostMount::to_mount));
    if let Some(driver) = gpus(config, spec).driver() {
        mounts.push(HostMount::in_place(driver.to_owned()).to_mount());
    }
    mounts
}

fn gpus<'a>(config: &'a SandboxConfig, spec: &ContainerSpec<'_>) -> &'a GpuAccess {
    match spec.inputs {
        Inputs::Capture { .. } => &config.gpus,
        Inputs::Export { .. } => &GpuAccess::None,
    }
}

/// The image's variables stay; these come on top.
fn environment(config: &SandboxConfig, gpus: &GpuAccess) -> Vec<String> {
    let mut environment = vec!["HOME=/tmp".to_owned(), "TMPDIR=/tmp".to_owned()];
    environment.extend_from_slice(&config.environment);
    environment.extend(gpus.withheld().map(str::to_owned));
    if let Some(driver) = gpus.driver() {
        let driver = driver.display();
        environment.push(format!("LD_LIBRARY_PATH={driver}/lib64:{driver}/lib"));
    }
    environment
}

fn ulimit(name: &str, value: u64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(signed(value)), hard: Some(signed(value)) }
}

/// Settings are checked to fit when they are read.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Reader;

    #[test]
    fn an_image_that_asks_for_every_gpu_gets_none_of_them_by_its_variable() {
        let image_env = [("NCU_SERVICE_WORKER_ENV", "NVIDIA_VISIBLE_DEVICES=all")];
        let config = SandboxConfig::read(&mut Reader::from_pairs(image_env)).unwrap();
        let last_word = |gpus: &str| {
            let variables = environment(&config, &GpuAccess::parse(gpus).unwrap());
            variables.into_iter().rfind(|variable| variable.starts_with("NVIDIA_VISIBLE_DEVICES="))
        };
        for (gpus, expected) in [
            ("none", "void"),
            ("cdi:nvidia.com/gpu=0", "void"),
            ("nodes:/dev/nvidia0", "void"),
            ("all", "all"),
            ("device=1", "all"),
        ] {
            assert_eq!(last_word(gpus), Some(format!("NVIDIA_VISIBLE_DEVICES={expected}")), "{gpus}");
        }
    }
}
