//! Each line of the list of restrictions, seen from inside.

use std::fs;

use super::{Bench, LONG};
use jobs::sandbox::{ContainerSpec, How, Inputs};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn network_connections_are_disabled() {
    let seen = Bench::new()
        .await
        .python(
            r#"
import os, socket
print(os.listdir("/sys/class/net"))
for address in [("1.1.1.1", 53), ("169.254.169.254", 80), ("172.17.0.1", 80)]:
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
        try:
            socket.socket(socket.AF_INET, kind).connect(address)
            print("connected to", address)
        except OSError as error:
            print(error.strerror)
try:
    socket.getaddrinfo("example.com", 80)
    print("resolved")
except socket.gaierror:
    print("no name service")
"#,
        )
        .await;
    let unreachable = "Network is unreachable\n".repeat(6);
    assert_eq!(seen, format!("['lo']\n{unreachable}no name service\n"));
}

#[tokio::test]
async fn only_output_and_scratch_can_be_written() {
    let seen = Bench::new()
        .await
        .python(
            r#"
import os
for folder, folders, _ in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys")]
    try:
        open(os.path.join(folder, "probe"), "w").close()
        print(folder)
    except OSError:
        pass
"#,
        )
        .await;
    let mut writable: Vec<&str> = seen.lines().collect();
    writable.sort_unstable();
    assert_eq!(writable, ["/dev/mqueue", "/dev/shm", "/out", "/tmp"]);
}

#[tokio::test]
async fn the_root_file_system_is_read_only() {
    // A folder that everybody may write, were it not for the file system.
    let ended = Bench::new().await.run(&["sh", "-c", "exec 2>&1; ls -ld /var/tmp; touch /var/tmp/x"]).await;
    assert!(ended.log_tail.starts_with("drwxrwxrwt"), "{}", ended.log_tail);
    assert!(ended.log_tail.contains("Read-only file system"), "{}", ended.log_tail);
}

/// Tries everything that would change a folder, and prints what it was answered.
const TAMPER: &str = r#"
import os, sys
for folder in sys.argv[1:]:
    file = folder + "/file"
    for change in [
        lambda: open(file, "w"),
        lambda: open(folder + "/new", "w"),
        lambda: os.unlink(file),
        lambda: os.rename(file, folder + "/other"),
        lambda: os.chmod(file, 0o777),
        lambda: os.symlink("/", folder + "/link"),
        lambda: os.utime(file),
    ]:
        try:
            change()
            print("changed", folder)
        except OSError as error:
            print(error.strerror)
"#;

#[tokio::test]
async fn inputs_cannot_be_written() {
    let it = Bench::new().await;
    let ended = it.run(&["python3", "-c", TAMPER, "/in", "/problems"]).await;
    assert_eq!(ended.log_tail, "Read-only file system\n".repeat(14));
    for name in ["in", "problems"] {
        assert_eq!(fs::read_to_string(it.path(name).join("file")).unwrap(), "original");
        assert_eq!(fs::read_dir(it.path(name)).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn an_export_reads_its_report_and_cannot_write_it() {
    let it = Bench::new().await;
    let (input, report) = (it.path("in"), it.path("problems"));
    let spec = ContainerSpec {
        labels: it.labels,
        inputs: Inputs::Export { input: &input, report: &report },
        output: &it.output,
        command: ["python3", "-c", TAMPER, "/report"].map(str::to_owned).to_vec(),
        limit: LONG,
    };
    let ended = it.sandbox.run(&spec, &CancellationToken::new()).await.unwrap();
    assert_eq!(ended.log_tail, "Read-only file system\n".repeat(7));
}

#[tokio::test]
async fn a_folder_of_the_host_is_there_and_read_only() {
    let host = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(host.path().join("file"), "original").unwrap();
    fs::set_permissions(host.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mount = format!("{}:/opt/lent", host.path().display());
    let it = Bench::with(&[("NCU_SERVICE_WORKER_MOUNTS", &mount)]).await;
    assert_eq!(it.python("print(open('/opt/lent/file').read())").await, "original\n");
    let ended = it.run(&["python3", "-c", TAMPER, "/opt/lent"]).await;
    assert_eq!(ended.log_tail, "Read-only file system\n".repeat(7));
}

#[tokio::test]
async fn a_fork_bomb_stops_at_the_pids_limit() {
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_PIDS", "32")]).await;
    let seen = it
        .python(
            r"
import os, signal
count = 0
try:
    while True:
        if os.fork() == 0:
            signal.pause()
        count += 1
except OSError as error:
    print(count, error.strerror)
",
        )
        .await;
    assert_eq!(seen, "31 Resource temporarily unavailable\n");
}

#[tokio::test]
async fn memory_is_limited_and_the_limit_is_named() {
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_MEMORY", "64m")]).await;
    let ended = it.run(&["python3", "-c", "held = [bytes([1]) * (1 << 20) for _ in range(1 << 12)]"]).await;
    assert_eq!(ended.how, How::Exited { code: 137, oom_killed: true });
}

#[tokio::test]
async fn no_capabilities_are_left() {
    let seen = Bench::new()
        .await
        .python(
            r#"
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "NoNewPrivs", "Seccomp:")):
        print(*line.split())
"#,
        )
        .await;
    let none = "0000000000000000";
    assert_eq!(
        seen,
        format!(
            "CapInh: {none}\nCapPrm: {none}\nCapEff: {none}\nCapBnd: {none}\nCapAmb: {none}\nNoNewPrivs: 1\nSeccomp: \
             2\n"
        )
    );
}

#[tokio::test]
async fn setuid_programs_gain_nothing() {
    let seen = Bench::new()
        .await
        .python(
            r#"
import os, stat
assert os.stat("/usr/bin/umount").st_mode & stat.S_ISUID and os.stat("/usr/bin/umount").st_uid == 0
pid = os.fork()
if pid == 0:
    os.execv("/usr/bin/umount", ["umount", "--version"])
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
effective = [line.split()[2] for line in open(f"/proc/{pid}/status") if line.startswith("Uid:")]
print(effective[0] == str(os.getuid()))
"#,
        )
        .await;
    assert!(seen.ends_with("True\n"), "{seen}");
}

#[tokio::test]
async fn namespaces_and_mounts_are_refused() {
    let seen = Bench::new()
        .await
        .python(
            r#"
import subprocess
for command in [["unshare", "-Ur", "true"], ["unshare", "-m", "true"], ["mount", "-t", "tmpfs", "x", "/out"]]:
    print(subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0)
"#,
        )
        .await;
    assert_eq!(seen, "True\nTrue\nTrue\n");
}

#[tokio::test]
async fn containers_do_not_run_as_root() {
    let it = Bench::new().await;
    let user = it.sandbox.config().user;
    let seen = it.python("import os; print(os.getresuid(), os.getresgid(), os.getgroups())").await;
    let (uid, gid) = (user.uid, user.gid);
    assert_ne!(uid, 0);
    assert_eq!(seen, format!("({uid}, {uid}, {uid}) ({gid}, {gid}, {gid}) [{gid}]\n"));
}

/// Fills a file until an error, and prints that error and how many mebibytes there are.
const FILL: &str = r#"
import sys
written = 0
try:
    with open(sys.argv[1], "wb", buffering=0) as file:
        while written < 64:
            file.write(bytes(1 << 20))
            written += 1
    print("filled")
except OSError as error:
    print(written, error.strerror)
"#;

#[tokio::test]
async fn tmp_is_executable_and_bounded() {
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_TMP", "16m")]).await;
    let ended = it.run(&["sh", "-c", "cp /usr/bin/id /tmp/id && exec /tmp/id -u"]).await;
    assert_eq!(ended.log_tail, format!("{}\n", it.sandbox.config().user.uid));
    let ended = it.run(&["python3", "-c", FILL, "/tmp/file"]).await;
    assert_eq!(ended.log_tail, "16 No space left on device\n");
}

#[tokio::test]
async fn shared_memory_is_bounded() {
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_SHM", "8m")]).await;
    let ended = it.run(&["python3", "-c", FILL, "/dev/shm/file"]).await;
    assert_eq!(ended.log_tail, "8 No space left on device\n");
}

#[tokio::test]
async fn a_file_cannot_grow_past_the_output_limit() {
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_OUTPUT", "4m")]).await;
    let ended = it.run(&["python3", "-c", FILL, "/out/file"]).await;
    assert_eq!(ended.log_tail, "4 File too large\n");
    assert_eq!(fs::metadata(it.path("out/file")).unwrap().len(), 4 << 20);
    let ended = it.run(&["python3", "-c", "import os; os.truncate('/out/file', 1 << 40)"]).await;
    assert!(ended.log_tail.contains("File too large"), "{}", ended.log_tail);
    assert_eq!(fs::metadata(it.path("out/file")).unwrap().len(), 4 << 20);
}

#[tokio::test]
async fn many_files_together_end_the_container_at_the_output_limit() {
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_OUTPUT", "4m")]).await;
    let program = r#"
import signal
for index in range(2):
    open(f"/out/{index}", "wb").write(bytes(3 << 20))
signal.pause()
"#;
    let ended = it.run(&["python3", "-c", program]).await;
    assert_eq!(ended.how, How::OutputLimit);
}

#[tokio::test]
async fn a_file_without_a_name_cannot_fill_the_disk() {
    let it = Bench::new().await;
    let disk = rustix::fs::statvfs(it.output.path()).unwrap();
    let floor = disk.f_bavail * disk.f_frsize - (128 << 20);
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_FREE_DISK", &floor.to_string())]).await;
    let program = r#"
import os, signal
file = open("/out/file", "wb")
os.unlink("/out/file")
os.posix_fallocate(file.fileno(), 0, 512 << 20)
signal.pause()
"#;
    let ended = it.run(&["python3", "-c", program]).await;
    assert_eq!(ended.how, How::DiskFull);
    assert_eq!(fs::read_dir(it.output.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn too_many_files_are_noticed_even_when_the_container_ends_at_once() {
    let it = Bench::new().await;
    let ended = it.run(&["python3", "-c", "for i in range(20_000): open(f'/out/{i}', 'w')"]).await;
    assert_eq!(ended.how, How::OutputLimit);
    it.output.remove_all().unwrap();
}

#[tokio::test]
async fn no_core_is_dumped() {
    let it = Bench::new().await;
    let seen = it.python("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))").await;
    assert_eq!(seen, "(0, 0)\n");
}

#[tokio::test]
async fn processor_time_is_limited_and_the_cgroup_tells_no_host_path() {
    let it = Bench::with(&[("NCU_SERVICE_CONTAINER_CPUS", "1")]).await;
    let seen = it
        .python(
            r#"
import os
print({line.strip().split(":", 2)[2] for line in open("/proc/self/cgroup")})
# The second version of cgroups, then the first.
if os.path.exists("/sys/fs/cgroup/cpu.max"):
    print(open("/sys/fs/cgroup/cpu.max").read().split()[0])
else:
    print(open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read().strip())
"#,
        )
        .await;
    assert_eq!(seen, "{'/'}\n100000\n");
}

#[tokio::test]
async fn the_kernel_takes_the_container_before_the_worker() {
    assert_eq!(Bench::new().await.python("print(open('/proc/self/oom_score_adj').read().strip())").await, "500\n");
}

#[tokio::test]
async fn of_the_hosts_file_systems_only_the_mounts_are_there() {
    let seen = Bench::new()
        .await
        .python(
            r#"
import os
print([path for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd") if os.path.exists(path)])
kernel = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"}
for line in open("/proc/self/mountinfo"):
    fields, types = line.split(" - ")
    target, options = fields.split()[4:6]
    if types.split()[0] not in kernel and not target.startswith("/etc/"):
        print(target, options.split(",")[0])
"#,
        )
        .await;
    let mut mounts: Vec<&str> = seen.lines().skip(1).collect();
    mounts.sort_unstable();
    assert_eq!(seen.lines().next(), Some("[]"));
    assert_eq!(mounts, ["/ ro", "/in ro", "/out rw", "/problems ro"]);
}

#[tokio::test]
async fn the_environment_holds_nothing_of_the_workers() {
    let seen = Bench::new().await.python("import os; print(*sorted(os.environ), sep='\\n')").await;
    // LC_CTYPE is set by Python itself.
    let names: Vec<&str> = seen.lines().filter(|name| *name != "LC_CTYPE").collect();
    assert_eq!(names, ["HOME", "HOSTNAME", "NVIDIA_VISIBLE_DEVICES", "PATH", "TMPDIR"]);
}
