"""Tries everything that a container may not do, while its kernel is captured, and prints one line for each attempt.

A line is `probe`, the attempt, whether it ended as it should, what it was answered and what was expected, with tabs between.
Nothing here does harm where it succeeds: files are opened and not changed, and system calls get arguments that do nothing.
"""

import ctypes
import errno
import os
import re
import socket
import stat

libc = ctypes.CDLL(None, use_errno=True)

# Refusals: of the file system, of Landlock, of a missing privilege; or the thing is not there at all.
REFUSED = "EACCES|EPERM|EROFS"
ABSENT = "ENOENT|ENXIO|ENODEV"
NEW_USER, SIGCHLD = 0x10000000, 17
PTRACE_SEIZE = 0x4206

# Numbers of x86-64, and arguments with which a call that is let through does nothing, or says something else than EPERM.
CALLS = {
    "io_uring_setup": (425, 1, 0),
    "io_uring_enter": (426, -1, 0, 0, 0, 0, 0),
    "io_uring_register": (427, -1, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0),
    "keyctl": (250, 0, -3, 0),
    "userfaultfd": (323, 1),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "process_vm_readv of PID 1": (310, 1, 0, 0, 0, 0, 0),
    "process_vm_writev of PID 1": (311, 1, 0, 0, 0, 0, 0),
    "ptrace of PID 1": (101, PTRACE_SEIZE, 1, 0, 0),
    "kcmp": (312, 1, 1, 1, 0, 0),
    "pidfd_getfd": (438, -1, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "umount2": (166, 0, 0),
    "pivot_root": (155, 0, 0),
    "fsopen": (430, 0, 0),
    "open_tree": (428, -1, 0, 0),
    "move_mount": (429, -1, 0, -1, 0, 0),
    "chroot": (161, 0),
    "unshare": (272, 0),
    "unshare of the user namespace": (272, NEW_USER),
    "setns": (308, -1, 0),
    "clone of a user namespace": (56, NEW_USER | SIGCHLD, 0, 0, 0, 0),
    "name_to_handle_at": (303, -1, 0, 0, 0, 0),
    "open_by_handle_at": (304, -1, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "finit_module": (313, -1, 0, 0),
    "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, 0, 0),
    "sethostname": (170, 0, 0),
    "clock_settime": (227, 0, 0),
    "syslog": (103, 10, 0, 0),
    "iopl": (172, 3),
    "acct": (163, 0),
    "personality": (135, 0x0040000),
    "socket AF_ALG": (41, 38, 5, 0),
    "socket AF_VSOCK": (41, 40, 1, 0),
    "socket AF_PACKET": (41, 17, 3, 0),
}
# Not to be written. What lies below /proc and /dev is for Landlock free, so others guard it.
FOLDERS = ["/", "/usr", "/usr/bin", "/opt", "/etc", "/in", "/problems", "/root", "/home", "/var/tmp", "/dev", "/sys", "/sys/fs/cgroup"]
FILES = ["/etc/passwd", "/in/submission.py", "/in/request.json", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"]
DEVICES = ["/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/sda", "/dev/vda", "/dev/loop0", "/dev/net/tun"]
SECRETS = ["/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/kcore", "/etc/shadow"]
SOCKETS = ["/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/var/run/postgresql/.s.PGSQL.5432"]
# What the host listens on while this runs; see probe.py.
HOST_PORT, HOST_ABSTRACT = 8765, "\0ncu-service-probe"


def answer(attempt, *arguments):
    """`done` or what it gave, or the name of the error."""
    try:
        result = attempt(*arguments)
        return "done" if result is None else str(result)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def call(number, *arguments):
    result = libc.syscall(*map(ctypes.c_long, (number, *arguments)))
    if result == 0 and number == 56:
        os._exit(0)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def make_file(folder):
    path = os.path.join(folder, f".probe-{os.getpid()}")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(path)


def open_for(flags):
    return lambda path: os.close(os.open(path, flags))


def read_some(path):
    """Some files are hidden by an empty one."""
    file = os.open(path, os.O_RDONLY)
    try:
        return "read" if os.read(file, 16) else "empty"
    finally:
        os.close(file)


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(3)
        one.connect(address)


def bind(address):
    with socket.socket() as one:
        one.bind(address)


def make_device():
    os.mknod(f"/tmp/.probe-{os.getpid()}", stat.S_IFCHR | 0o600, os.makedev(1, 1))


def landlock_abi():
    abi = libc.syscall(ctypes.c_long(444), None, ctypes.c_long(0), ctypes.c_long(1))
    return f"ABI {abi}" if abi > 0 else errno.errorcode[ctypes.get_errno()]


def status(name):
    return next(line.split(":")[1].strip() for line in open("/proc/self/status") if line.startswith(name + ":"))


def writable_mounts():
    kernel = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"}
    found = []
    for line in open("/proc/self/mountinfo"):
        fields, kind = line.split(" - ")
        target, options = fields.split()[4:6]
        # Device nodes may be mounts; the engine's files in /etc belong to root.
        if kind.split()[0] not in kernel and "rw" in options.split(",") and not target.startswith(("/dev/", "/etc/")):
            found.append(target)
    return " ".join(sorted(found)) or "none"


def foreign_variables():
    ours = re.compile(r"NCU_SERVICE_(?!LAUNCHES_)|DATABASE|PGPASS|KERNELBOT|AWS_|_CLI_ID")
    return " ".join(sorted(name for name in os.environ if ours.search(name))) or "none"


def attempts():
    """[(attempt, what is expected, the attempt itself and its arguments)]"""
    yield "write into /tmp", "done", make_file, "/tmp"
    yield "write into /out", "done", make_file, "/out"
    for folder in FOLDERS:
        yield f"write into {folder}", f"{REFUSED}|{ABSENT}", make_file, folder
    for file in FILES:
        yield f"open {file} for writing", f"{REFUSED}|{ABSENT}", open_for(os.O_WRONLY), file
    for file in SECRETS:
        yield f"read {file}", f"{REFUSED}|{ABSENT}|empty", read_some, file
    for device in DEVICES:
        yield f"open {device}", f"{REFUSED}|{ABSENT}", open_for(os.O_RDWR), device
    yield "make a device node in /tmp", REFUSED, make_device
    yield "Landlock", r"ABI ([6-9]|\d\d+)", landlock_abi
    # Without Landlock the first two would be refused by nobody listening, and the third would succeed.
    yield "TCP to the host's loopback", "EACCES", connect, socket.AF_INET, ("127.0.0.1", HOST_PORT)
    yield "TCP to a metadata service", "EACCES", connect, socket.AF_INET, ("169.254.169.254", 80)
    yield "bind a TCP port", "EACCES", bind, ("127.0.0.1", 18_765)
    yield "UDP to the world", "ENETUNREACH", connect, socket.AF_INET, ("1.1.1.1", 53), socket.SOCK_DGRAM
    yield "network interfaces", "lo", lambda: " ".join(name for _, name in socket.if_nameindex())
    yield "an abstract Unix socket of the host", "ECONNREFUSED|EPERM", connect, socket.AF_UNIX, HOST_ABSTRACT
    for path in SOCKETS:
        yield f"connect to {path}", f"{REFUSED}|{ABSENT}", connect, socket.AF_UNIX, path
    for name, arguments in CALLS.items():
        yield name, "EPERM", call, *arguments
    # Its arguments cannot be filtered, and the C library takes this answer for an older kernel's.
    yield "clone3", "ENOSYS", call, 435, 0, 0
    yield "setuid 0", "EPERM", os.setuid, 0
    yield "setgid 0", "EPERM", os.setgid, 0
    yield "setgroups", "EPERM", os.setgroups, [0]
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        yield name, "0{16}", status, name
    yield "NoNewPrivs", "1", status, "NoNewPrivs"
    yield "Seccomp", "2", status, "Seccomp"
    yield "user", r"[1-9]\d*:[1-9]\d*", lambda: f"{os.getuid()}:{os.getgid()}"
    yield "groups", rf"{os.getgid()}|", lambda: " ".join(map(str, os.getgroups()))
    yield "mounts that can be written", "/out", writable_mounts
    yield "variables of the service", "none", foreign_variables
    yield "host name", "sandbox", socket.gethostname


def probe():
    for name, expected, attempt, *arguments in attempts():
        seen = answer(attempt, *arguments)
        as_expected = "yes" if re.fullmatch(expected, seen) else "NO"
        # A line in one write: the profiler prints meanwhile.
        print(f"probe\t{name}\t{as_expected}\t{seen}\t{expected}\n", end="", flush=True)


def custom_kernel(data):
    import torch

    result = torch.geqrf(data)
    torch.cuda.synchronize()
    probe()
    return result
