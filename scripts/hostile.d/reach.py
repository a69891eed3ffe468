"""What a submission can reach: the network, the host, the kernel, other jobs, secrets."""

import pathlib
import re
import socket

import probe_submission
from cases import Case, Submission, client, ended, source, submit
from probe import attempts_in

REFUSED = "EACCES|EPERM|EROFS"
ABSENT = "ENOENT|ENXIO|ENODEV"
NO_NETWORK = "EACCES|EPERM|ENETUNREACH|ECONNREFUSED|EADDRNOTAVAIL|gaierror.*"

# The probe that scripts/gpu-e2e makes of a real capture, with the development image's kernel.
PROBE = (
    pathlib.Path(probe_submission.__file__).read_text().split("def custom_kernel")[0]
    + '''
import standin_gpu
def add(a, b):
    return [x + y for x, y in zip(a, b)]
def custom_kernel(data):
    probe()
    return standin_gpu.launch("void add<float>(float *)", 8, 128, add, *data)
'''
)
# These are refused by Landlock; where the kernel has none, or less of it, nobody listens and there is no way.
BY_LANDLOCK = {
    "Landlock",
    "TCP to the host's loopback",
    "TCP to a metadata service",
    "bind a TCP port",
    "an abstract Unix socket of the host",
}


def probed(seen, service):
    rows = attempts_in(seen.read("stdout.txt"))
    full = seen.manifest.get("landlock") == "full"
    wrong = [f"{name}: {row[1]} instead of {row[2]}" for name, row in rows.items() if row[0] != "yes" and (full or name not in BY_LANDLOCK)]
    missing = [name for name, *_ in probe_submission.attempts() if name not in rows]
    return wrong + [f"not tried: {name}" for name in missing]


NETWORK = source(
    inside='''
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(3)
        one.connect(address)
        one.send(b"x")
for name, address in {"world": ("1.1.1.1", 443), "metadata": ("169.254.169.254", 80), "loopback": ("127.0.0.1", 8765), "bridge": ("172.17.0.1", 22)}.items():
    tried("TCP " + name, connect, socket.AF_INET, address)
    tried("UDP " + name, connect, socket.AF_INET, address, socket.SOCK_DGRAM)
tried("TCP6", connect, socket.AF_INET6, ("2606:4700:4700::1111", 443))
tried("DNS", socket.getaddrinfo, "example.org", 443)
tried("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
tried("packet", socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
tried("netlink", lambda: [name for _, name in socket.if_nameindex()])
'''
)

SOCKETS = source(
    inside='''
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/var/run/postgresql/.s.PGSQL.5432", "/run/dbus/system_bus_socket"):
    tried(path, lambda: socket.socket(socket.AF_UNIX).connect(path))
'''
)

WRITES = source(
    inside='''
def write(path):
    with open(path, "ab") as file:
        file.write(b"x")
for path in ("/x", "/usr/x", "/usr/local/bin/ncu", "/usr/local/bin/ncu-runner", "/etc/passwd", "/etc/ld.so.preload", "/in/submission.py", "/in/request.json",
             "/problems/sample/eval.py", "/problems/x", "/root/x", "/home/x", "/var/tmp/x", "/dev/x", "/sys/x", "/lib/x"):
    tried(path, write, path)
tried("rename of /in", os.rename, "/in/submission.py", "/in/x")
tried("unlink in /problems", os.unlink, "/problems/sample/eval.py")
tried("mode of /usr", os.chmod, "/usr", 0o777)
tried("times of an input", os.utime, "/in/submission.py")
'''
)

SETUID = source(
    before='''
import shutil
for folder in ("/tmp", "/out"):
    copy = folder + "/suid-python"
    shutil.copy(os.path.realpath("/usr/bin/id"), copy)
    tried("set bits in " + folder, os.chmod, copy, 0o6755)
    tried("run in " + folder, lambda: subprocess.run([copy, "-u"], capture_output=True, text=True, check=True).stdout.strip())
    os.unlink(copy)
tried("own to root", os.chown, "/tmp", 0, 0)
tried("su", lambda: subprocess.run(["su", "-c", "id -u"], capture_output=True, stdin=subprocess.DEVNULL, check=True).stdout)
tried("setuid", os.setuid, 0)
tried("setresgid", os.setresgid, 0, 0, 0)
tried("capabilities", lambda: [line for line in open("/proc/self/status") if line.startswith("CapEff") and line.split()[1] != "0" * 16])
'''
)

SECRETS = source(
    inside='''
import re
found = []
for process in pathlib.Path("/proc").glob("[0-9]*"):
    for name in ("environ", "cmdline", "maps"):
        try:
            content = (process / name).read_bytes()
        except OSError:
            continue
        found += re.findall(rb"postgres://|DATABASE_URL|KERNELBOT|X-Popcorn|AWS_|word[0-9a-f]{32}", content)
tried("environments", lambda: found)
tried("PID 1's environment", lambda: open("/proc/1/environ").read())
tried("PID 1's files", lambda: os.listdir("/proc/1/fd"))
tried("PID 1's root", lambda: os.listdir("/proc/1/root/var"))
tried("PID 1's folder", lambda: os.listdir("/proc/1/cwd"))
others = []
for top in ("/in", "/out", "/problems", "/tmp", "/var", "/srv", "/opt", "/home", "/root", "/run", "/mnt", "/media"):
    for folder, _, names in os.walk(top):
        others += [os.path.join(folder, name) for name in names if name in ("Cargo.toml", ".env", "request.json.old") or "canary" in name or name.endswith((".zip", ".pem", ".key"))]
tried("files of the service", lambda: others)
tried("file of the host", lambda: open("SECRET_FILE").read())
tried("inputs", lambda: sorted(os.listdir("/in")))
tried("processes", lambda: len([name for name in os.listdir("/proc") if name.isdigit()]) < 12)
tried("mounts", lambda: [line for line in open("/proc/self/mountinfo") if "ncu-hostile" in line and not any(f" {target} " in line for target in ("/in", "/out", "/problems"))])
tried("kernel log", lambda: open("/dev/kmsg").read(1))
tried("keys", lambda: open("/proc/keys").read())
'''
)

PROCFS = source(
    inside='''
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
for path, text in {
    "/proc/sys/kernel/core_pattern": "|/tmp/x", "/proc/sysrq-trigger": "c", "/proc/sys/vm/panic_on_oom": "1", "/proc/sys/kernel/modprobe": "/tmp/x",
    "/proc/sys/fs/binfmt_misc/register": ":x:M::x::/tmp/x:", "/proc/1/oom_score_adj": "1000", "/proc/self/uid_map": "0 65534 1", "/proc/self/gid_map": "0 65534 1",
    "/proc/self/attr/current": "unconfined", "/proc/irq/0/smp_affinity": "1", "/proc/acpi/wakeup": "x", "/proc/bus/pci/00/00.0": "x", "/proc/mtrr": "x",
    "/sys/kernel/uevent_helper": "/tmp/x", "/sys/power/state": "mem", "/sys/fs/cgroup/release_agent": "/tmp/x", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "-1",
    "/sys/fs/cgroup/memory.max": "max", "/sys/fs/cgroup/pids.max": "max", "/sys/fs/cgroup/pids/pids.max": "max", "/sys/fs/cgroup/devices/devices.allow": "a",
}.items():
    tried(path, write, path, text)
tried("less likely to be killed", write, "/proc/self/oom_score_adj", "-1000")
tried("memory of the kernel", lambda: open("/proc/kcore", "rb").read(1))
tried("timers of others", lambda: open("/proc/timer_list").read(1))
'''
)

MEMFD = source(
    inside='''
program = os.memfd_create("ncu-runner")
with open(os.path.realpath("/usr/bin/id"), "rb") as file:
    os.write(program, file.read())
def run_it():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.execve(program, ["ncu-runner", "-u"], {})
    os.waitpid(child, 0)
    os.close(write)
    return os.read(read, 20).decode().strip()
tried("run from memory", run_it)
tried("as root", lambda: run_it() == "0")
'''
)

ABSTRACT = source(
    inside='''
def connect(name):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\\0" + name)
tried("host", connect, "ncu-service-hostile")
tried("list", lambda: [line.split()[-1] for line in open("/proc/net/unix") if "@" in line.split()[-1] and "ncu-service" in line])
def own():
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("\\0own")
tried("own", own)
'''
)


class AbstractSockets(Submission):
    def run(self, service):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("\0ncu-service-hostile")
            listener.listen()
            return super().run(service)


LEAVES = source(
    inside='''
import multiprocessing.shared_memory
libc = ctypes.CDLL(None, use_errno=True)
shared = libc.shmget(0x5e1f, 4096, 0o1666)
say("left", shared >= 0, libc.semget(0x5e1f, 1, 0o1666) >= 0, libc.msgget(0x5e1f, 0o1666) >= 0)
for path in ("/dev/shm/left", "/tmp/left", "/tmp/.left", "/out/left", "/dev/mqueue/left", os.environ["TORCH_EXTENSIONS_DIR"] + "/left", os.environ["TRITON_CACHE_DIR"] + "/left"):
    try:
        open(path, "w").write("left")
    except OSError as error:
        say(path, error)
''',
    after='''
def hang():
    one = socket.socket(socket.AF_UNIX)
    one.bind("\\0left")
    one.listen()
    time.sleep(600)
daemon(hang)
''',
)
FINDS = source(
    before='''
if not CAPTURING:
    libc = ctypes.CDLL(None, use_errno=True)
    tried("System V", lambda: [libc.shmget(0x5e1f, 0, 0), libc.semget(0x5e1f, 0, 0), libc.msgget(0x5e1f, 0)])
    tried("files", lambda: [os.path.join(folder, name) for top in ("/tmp", "/dev/shm", "/out", "/dev/mqueue") for folder, _, names in os.walk(top) for name in names if "left" in name])
    tried("abstract", lambda: [line for line in open("/proc/net/unix") if "@left" in line])
    tried("processes", lambda: [open(f"/proc/{name}/comm").read() for name in os.listdir("/proc") if name.isdigit() and "sleep" in open(f"/proc/{name}/cmdline").read()])
'''
)


class Leftovers(Case):
    """Two jobs of two people, at the same time and one after the other: neither finds anything of the other."""

    def run(self, service):
        first, second, third = client(service), client(service), client(service)
        sources = [LEAVES.encode(), FINDS.encode(), FINDS.encode()]
        jobs = [submit(service, first, sources[0]), submit(service, second, sources[1])]
        seen = [ended(service, who, job, text) for who, job, text in zip((first, second), jobs, sources)]
        seen.append(ended(service, third, submit(service, third, sources[2]), sources[2]))
        wrong = [defect for one in seen for defect in one.defects()]
        wrong += [f"{one.status}: {one.error[:200]}" for one in seen if one.status != "succeeded"]
        for one in seen[1:]:
            for name, nothing in {
                "System V": r"done \[-1, -1, -1\]",
                "files": r"done \[\]",
                "abstract": r"done \[\]",
                "processes": r"done \[\]",
            }.items():
                # The overview asks, so what stands in the capture's part is its repetition.
                if not re.search(rf"tried\t{name}\t{nothing}", one.printed):
                    wrong.append(f"{name}: {one.tried.get(name)}")
        return wrong


CASES = [
    Submission(
        "probe",
        "1, 5, 19, 20",
        "tries about a hundred forbidden things while its kernel is captured (`scripts/gpu/probe_submission.py`)",
        "every one is refused; the profile is there",
        source=PROBE,
        look=probed,
    ),
    Submission(
        "network",
        "1",
        "connects to the world, to 169.254.169.254, to the host's loopback, asks DNS, opens raw sockets",
        "no way anywhere; it sees no interface but `lo`",
        source=NETWORK,
        tried={
            **{f"{kind} {name}": NO_NETWORK for kind in ("TCP", "UDP") for name in ("world", "metadata", "bridge")},
            "TCP loopback": NO_NETWORK,
            "TCP6": NO_NETWORK + "|EAFNOSUPPORT",
            "DNS": ".*name resolution.*|.*not known.*",
            "raw": REFUSED,
            "packet": REFUSED,
            "netlink": r"done \['lo'\]",
        },
    ),
    Submission(
        "engine-sockets",
        "1, 20",
        "connects to the sockets of the engine, of containerd, of Postgres and of D-Bus",
        "they are not there",
        source=SOCKETS,
        tried={
            path: f"{REFUSED}|{ABSENT}"
            for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/var/run/postgresql/.s.PGSQL.5432")
        },
    ),
    Submission(
        "writes",
        "5",
        "writes to `/`, `/usr`, `/etc`, `/in`, `/problems`, `/dev`, and renames, deletes and changes modes there",
        "read-only; the profile is there",
        source=WRITES,
        tried={
            path: f"{REFUSED}|{ABSENT}"
            for path in (
                "/x",
                "/usr/local/bin/ncu",
                "/usr/local/bin/ncu-runner",
                "/etc/ld.so.preload",
                "/in/submission.py",
                "/in/request.json",
                "/problems/sample/eval.py",
                "/dev/x",
                "/sys/x",
                "rename of /in",
                "unlink in /problems",
                "mode of /usr",
                "times of an input",
            )
        },
    ),
    Submission(
        "setuid-bits",
        "19",
        "sets setuid bits on programs in /tmp and /out and runs them, becomes root, changes owners",
        "it stays who it is, without a capability",
        source=SETUID,
        tried={
            "set bits in /tmp": "done None",
            "set bits in /out": "done None",
            "run in /tmp": r"done '[1-9]\d*'",
            "run in /out": r"done '[1-9]\d*'|EACCES",
            "own to root": "EPERM",
            "setuid": "EPERM",
            "setresgid": "EPERM",
            "capabilities": r"done \[\]",
        },
    ),
    Submission(
        "secrets",
        "20",
        "reads every environment and command line, PID 1's files, and looks for keys, archives and other jobs' folders",
        "nothing of the service is there",
        source=SECRETS,
        tried={
            "environments": r"done \[\]",
            "PID 1's environment": "EACCES|EPERM",
            "PID 1's files": "EACCES|EPERM",
            "PID 1's root": "EACCES|EPERM|done \\[.*",
            "files of the service": r"done \[\]",
            "file of the host": "ENOENT",
            "inputs": r"done \['request.json', 'submission.py'\]",
            "processes": "done True",
            "mounts": r"done \[\]",
            "kernel log": f"{REFUSED}|{ABSENT}",
            "keys": "done ''|EACCES|ENOENT",
        },
    ),
    Submission(
        "procfs",
        "19",
        "writes core_pattern, sysrq, binfmt_misc, the limits of its control group, uid maps; lowers its own oom score",
        "refused",
        source=PROCFS,
        tried={
            path: f"{REFUSED}|{ABSENT}|EINVAL|EIO"
            for path in (
                "/proc/sys/kernel/core_pattern",
                "/proc/sysrq-trigger",
                "/proc/sys/kernel/modprobe",
                "/proc/1/oom_score_adj",
                "/sys/kernel/uevent_helper",
                "/sys/fs/cgroup/release_agent",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/pids/pids.max",
                "/sys/fs/cgroup/memory.max",
                "less likely to be killed",
            )
        }
        | {"memory of the kernel": f"{REFUSED}|{ABSENT}|done b''", "/proc/self/uid_map": "EPERM|EINVAL|EACCES"},
    ),
    Submission(
        "memfd",
        "19",
        "runs a program out of memfd_create under the runner's name",
        "it runs as nobody, like everything else",
        source=MEMFD,
        tried={"run from memory": r"done '[1-9]\d*'", "as root": "done False"},
    ),
    AbstractSockets(
        "abstract-sockets",
        "1",
        "connects to an abstract Unix socket that the host listens on, and binds one",
        "it sees no abstract socket of the host",
        source=ABSTRACT,
        tried={"host": "ECONNREFUSED|EPERM", "list": r"done \[\]", "own": "done None"},
    ),
    Leftovers(
        "leftovers",
        "20",
        "leaves files, System V objects, abstract sockets and a daemon for the jobs beside and after it",
        "they find nothing",
    ),
]
