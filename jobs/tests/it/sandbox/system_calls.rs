//! Which system calls a container can make.

use std::fs;
use std::path::Path;

use ncu_runner::protocol::{CaptureMode, CaptureRequest, LandlockState, Outcome, Request, Selection, TaskFile};

use super::Bench;
use jobs::sandbox::How;

/// Makes system calls by number and prints the names of the errors. Where it can be, the arguments are such that a call
/// which is let through says something else than EPERM.
const CALLS: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
NEW_USER, SIGCHLD = 0x10000000, 17
calls = {
    "io_uring_setup": (425, 1, 0), "io_uring_enter": (426, -1, 0, 0, 0, 0, 0), "io_uring_register": (427, -1, 0, 0, 0),
    "bpf": (321, 0, 0, 0), "add_key": (248, 0, 0, 0, 0, 0), "request_key": (249, 0, 0, 0, 0), "keyctl": (250, 0, -3, 0),
    "userfaultfd": (323, 1), "perf_event_open": (298, 0, 0, -1, -1, 0), "process_vm_readv": (310, os.getpid(), 0, 0, 0, 0, 0),
    "process_vm_writev": (311, os.getpid(), 0, 0, 0, 0, 0), "kcmp": (312, os.getpid(), os.getpid(), 1, 0, 0),
    "pidfd_getfd": (438, -1, 0, 0), "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0), "pivot_root": (155, 0, 0),
    "fsopen": (430, 0, 0), "open_tree": (428, -1, 0, 0), "move_mount": (429, -1, 0, -1, 0, 0), "unshare": (272, 0),
    "setns": (308, -1, 0), "clone": (56, NEW_USER | SIGCHLD, 0, 0, 0, 0), "clone3": (435, 0, 0),
    "name_to_handle_at": (303, -1, 0, 0, 0, 0),
    "open_by_handle_at": (304, -1, 0, 0), "chroot": (161, 0), "kexec_load": (246, 0, 0, 0, 0), "init_module": (175, 0, 0, 0),
    "finit_module": (313, -1, 0, 0), "personality": (135, 0x0040000), "AF_ALG": (41, 38, 5, 0), "AF_VSOCK": (41, 40, 1, 0),
    "ptrace": (101, 0, 0, 0, 0),
}
for name, call in calls.items():
    result = libc.syscall(*map(ctypes.c_long, call))
    if name == "clone" and result == 0:
        os._exit(0)
    print(name, "done" if result >= 0 else errno.errorcode[ctypes.get_errno()])
"#;

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn calls_that_reach_deep_into_the_kernel_or_into_others_are_refused() {
    let seen = Bench::new().await.python(CALLS).await;
    // Its arguments cannot be filtered, and the C library takes this answer for an older kernel's.
    let seen = seen.replace("clone3 ENOSYS\n", "");
    let let_through: Vec<&str> = seen.lines().filter(|line| !line.ends_with(" EPERM")).collect();
    assert_eq!((let_through, seen.lines().count()), (vec![], 32));
}

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn another_list_of_calls_can_be_set() {
    let list = include_str!("../../../../docker/seccomp.json").replace("\"sysinfo\", ", "");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), list).unwrap();
    let asks = "import ctypes; print(ctypes.CDLL(None).sysinfo(ctypes.create_string_buffer(256)))";
    for (setting, expected) in [("builtin", "0\n"), (file.path().to_str().unwrap(), "-1\n")] {
        let it = Bench::with(&[("NCU_SERVICE_SECCOMP", setting)]).await;
        assert_eq!(it.python(asks).await, expected, "{setting}");
    }
}

#[tokio::test]
async fn what_programs_ordinarily_do_works() {
    let program = r#"
import asyncio, concurrent.futures, ctypes, mmap, multiprocessing, os, select, shutil, socket, subprocess, threading, time
from multiprocessing import shared_memory

def double(number): return 2 * number

thread = threading.Thread(target=time.sleep, args=(0.001,)); thread.start(); thread.join()
with multiprocessing.Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]
with concurrent.futures.ProcessPoolExecutor(2) as pool: assert list(pool.map(double, [3])) == [6]
assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
assert os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0
block = shared_memory.SharedMemory(create=True, size=4096); block.unlink()
memory = os.memfd_create("x"); os.truncate(memory, 4096)
mmap.mmap(memory, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
listener = socket.socket(socket.AF_UNIX); listener.bind("/tmp/socket"); listener.listen()
client = socket.socket(socket.AF_UNIX); client.connect("/tmp/socket"); client.sendall(b"x")
assert listener.accept()[0].recv(1) == b"x"
local = socket.socket(); local.bind(("127.0.0.1", 0)); local.listen(); socket.create_connection(local.getsockname())
socket.if_nameindex()
async def main(): await (await asyncio.create_subprocess_exec("true")).wait()
asyncio.run(main())
shutil.copy("/bin/true", "/tmp/true"); assert os.spawnl(os.P_WAIT, "/tmp/true", "true") == 0
os.mkfifo("/tmp/pipe"); os.eventfd(0); select.epoll(); os.pidfd_open(os.getpid()); os.sched_setaffinity(0, {0})
libc = ctypes.CDLL(None); assert libc.inotify_init1(0) >= 0 and libc.timerfd_create(1, 0) >= 0
assert libc.mlock(ctypes.create_string_buffer(64), 64) == 0
print("fine")
"#;
    assert_eq!(Bench::new().await.python(program).await, "fine\n");
}

#[tokio::test]
async fn a_whole_capture_works() {
    let it = Bench::new().await;
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker/dev/problems/sample");
    let mut files = vec![TaskFile { name: "submission.py".to_owned(), source: None }];
    for path in ["utils.py", "eval.py", "vectoradd_py/task.py", "vectoradd_py/reference.py"] {
        let name = Path::new(path).file_name().unwrap().to_str().unwrap().to_owned();
        fs::copy(sample.join(path), it.path("problems").join(&name)).unwrap();
        files.push(TaskFile { source: Some(name.clone()), name });
    }
    fs::copy(sample.join("vectoradd_py/submission.py"), it.path("in/submission.py")).unwrap();
    let ncu = "ncu --nvtx --nvtx-include custom_kernel/ --target-processes all -f -o /out/profile/profile.ncu-rep";
    let request = Request::Capture(CaptureRequest {
        files,
        main: "eval.py".to_owned(),
        spec: "size: 1024; seed: 31232".to_owned(),
        ncu: ncu.split(' ').map(str::to_owned).collect(),
        selection: Selection { mode: CaptureMode::Window, max_launches: 10 },
        warm_calls: 0,
        landlock: true,
        warmup_timeout_secs: 60,
        capture_timeout_secs: 60,
        max_stream_bytes: 64 << 10,
    });
    fs::write(it.path("in/request.json"), serde_json::to_vec(&request).unwrap()).unwrap();

    let ended = it.run(&[]).await;
    assert_eq!(ended.how, How::Exited { code: 0, oom_killed: false }, "{}", ended.log_tail);
    let outcome: Outcome = serde_json::from_slice(&fs::read(it.path("out/outcome.json")).unwrap()).unwrap();
    assert!(matches!(outcome.landlock, LandlockState::Full | LandlockState::Partial), "{outcome:?}");
    assert!(outcome.steps.len() == 2 && outcome.steps.iter().all(|step| step.exit_code == Some(0)), "{outcome:?}");
    assert!(fs::read(it.path("out/profile/profile.ncu-rep")).unwrap().starts_with(b"NVR\0"));
}
