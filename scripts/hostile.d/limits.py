"""What a submission can use up: processes, memory, disk, files, output, time."""

from cases import Submission, source
from service import MEMORY, MIB, OUTPUT, PIDS, STREAM

MEMORY_ERROR = f"memory limit of {MEMORY // MIB} MiB"
OUTPUT_ERROR = f"output limit of {OUTPUT // MIB} MiB"

FILL = '''
def fill(path, most):
    with open(path, "wb", buffering=0) as file:
        total = 0
        while total < most:
            total += file.write(bytes(1 << 20))
    return "endless"
'''


def flooded(seen, service):
    stdout = seen.archive.read("stdout.txt")
    wrong = [] if len(stdout) <= STREAM + 4096 else [f"stdout.txt has {len(stdout)} bytes"]
    if b"bytes are left out here" not in stdout:
        wrong.append("the cut is not marked")
    return wrong


CASES = [
    Submission(
        "fork-bomb",
        "2",
        "every process starts processes for ever",
        f"stops at {PIDS} processes; failed or timed_out",
        source=source("while True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"),
        status="failed|timed_out",
        error=".",
    ),
    Submission(
        "fork-until-refused",
        "2",
        "starts processes that sleep until one is refused",
        "EAGAIN; all of them are ended, and the profile is there",
        source=source(
            "def until_refused():\n    for number in range(100_000):\n        if os.fork() == 0:\n            time.sleep(600)\n            os._exit(0)\n",
            'tried("fork", until_refused)',
        ),
        tried={"fork": "EAGAIN"},
        status="succeeded|failed",
        error=None,
    ),
    Submission(
        "thread-bomb",
        "2",
        "starts threads that sleep until one is refused",
        "refused at the limit; the profile is there",
        source=source(
            "def until_refused():\n    for _ in range(100_000):\n        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
            'tried("threads", until_refused)',
        ),
        tried={"threads": ".*can't start new thread.*"},
    ),
    Submission(
        "memory",
        "3",
        "takes memory for ever",
        "failed; the memory limit is named",
        source=source("", "hoard = []\nwhile True:\n    hoard.append(bytearray(8 << 20))"),
        status="failed",
        error=MEMORY_ERROR,
    ),
    Submission(
        "memory-in-files",
        "3, 4",
        "takes memory by memfd_create, whose files lie in no folder",
        "failed; the memory limit is named",
        source=source("", 'held = []\nwhile True:\n    held.append(os.memfd_create("x"))\n    os.write(held[-1], bytes(8 << 20))'),
        status="failed",
        error=MEMORY_ERROR,
    ),
    Submission(
        "tmp-full",
        "4",
        "fills /tmp and leaves it full",
        "no space; failed by its own fault",
        source=source(
            FILL,
            '''
tried("one file", fill, "/tmp/large", 1 << 36)
tried("many files", lambda: [fill(f"/tmp/{number}", 8 << 20) for number in range(100)])
''',
        ),
        status="failed",
        error="No space left|could not begin|no space",
    ),
    Submission(
        "shm-full",
        "4",
        "fills /dev/shm",
        "no space; the profile is there",
        source=source(FILL, 'tried("fill", lambda: [fill(f"/dev/shm/{number}", 8 << 20) for number in range(100)])'),
        tried={"fill": "ENOSPC"},
    ),
    Submission(
        "out-full",
        "4, 6",
        "fills /out with many files",
        "failed; the output limit is named",
        source=source(FILL, 'tried("fill", lambda: [fill(f"/out/{number}", 8 << 20) for number in range(100)])\ntime.sleep(5)'),
        status="failed",
        error=OUTPUT_ERROR,
    ),
    Submission(
        "huge-file",
        "6",
        "writes a file of 100 GB in /out",
        f"ends at {OUTPUT // MIB} MiB; failed, the output limit is named",
        source=source(FILL, 'tried("fill", fill, "/out/large", 100 << 30)\ntime.sleep(3)'),
        status="failed",
        error=OUTPUT_ERROR,
    ),
    Submission(
        "sparse-file",
        "6",
        "makes a sparse file of 1 TB in /out, then a thousand that are as large as allowed",
        "refused; the holes count: failed, the output limit is named, no byte on the host",
        source=source(
            "",
            '''
def sparse(path, size):
    open(path, "w").close()
    os.truncate(path, size)
tried("one", sparse, "/out/sparse", 1 << 40)
tried("many", lambda: [sparse(f"/out/{number}", 15 << 20) for number in range(1000)])
time.sleep(3)
''',
        ),
        status="failed",
        error=OUTPUT_ERROR,
    ),
    Submission(
        "files-without-names",
        "4",
        "writes files in /out that it has deleted and holds open",
        "their bytes are gone with the container",
        source=source(
            "held = []",
            '''
for number in range(6):
    held.append(open(f"/out/{number}", "wb", buffering=0))
    os.unlink(f"/out/{number}")
    held[-1].write(bytes(8 << 20))
''',
        ),
    ),
    Submission(
        "many-files",
        "7",
        "makes a million files in /out",
        "failed at 10,000 with the output limit named (or timed_out where the disk is slow), and the clean-up ends",
        source=source("", 'for number in range(1_000_000):\n    os.close(os.open(f"/out/{number}", os.O_CREAT))'),
        status="failed|timed_out",
        error=f"{OUTPUT_ERROR}|did not return within",
    ),
    Submission(
        "many-files-in-tmp",
        "7",
        "makes a million files in /tmp",
        "no space or no memory for them; failed or timed_out",
        source=source("", 'tried("files", lambda: [os.close(os.open(f"/tmp/{number:0200}", os.O_CREAT)) for number in range(1_000_000)])'),
        status="failed|timed_out|succeeded",
        error="",
    ),
    Submission(
        "deep-folders",
        "7",
        "makes folders 5,000 deep in /out, some of them closed to everybody",
        "failed; the output limit is named, and the clean-up ends",
        source=source(
            "",
            '''
os.chdir("/out")
for number in range(5000):
    os.mkdir("deep")
    os.chdir("deep")
os.chmod(".", 0)
time.sleep(3)
''',
        ),
        status="failed",
        error=OUTPUT_ERROR,
    ),
    Submission(
        "stdout-flood",
        "15",
        "prints half a gigabyte without a newline",
        "cut in the middle while it streams, and the cut is marked; the profile is there",
        source=source("", 'block = b"x" * (1 << 20)\nfor _ in range(500):\n    os.write(1, block)'),
        look=flooded,
    ),
    Submission(
        "stderr-endless",
        "15",
        "prints for ever to both streams",
        "timed_out",
        source=source("", 'block = b"\\xff\\x00\\x1b[2J" * 1000\nwhile True:\n    os.write(2, block)\n    os.write(1, block)'),
        status="timed_out",
        error="did not return within",
    ),
    Submission(
        "loop",
        "16",
        "loops for ever",
        "timed_out; container gone",
        source=source("", "while True:\n    pass"),
        status="timed_out",
        error="custom_kernel did not return within",
    ),
    Submission(
        "stop-itself",
        "16",
        "stops itself by SIGSTOP",
        "timed_out",
        source=source("", "os.kill(os.getpid(), signal.SIGSTOP)"),
        status="timed_out",
        error="did not return within",
    ),
    Submission(
        "ignores-sigterm",
        "16",
        "ignores SIGTERM, by which an evaluator ends its child, and never ends, in the capture alone",
        "timed_out at the capture's limit",
        source=source(
            "if CAPTURING:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL})\n    threading.Thread(target=time.sleep, args=(3600,)).start()"
        ),
        status="timed_out",
        error="did not end within",
    ),
    Submission(
        "sleeps-at-import",
        "16",
        "sleeps for ever while it is imported, with every signal blocked",
        "timed_out",
        source=source("signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL})\ntime.sleep(3600)"),
        status="timed_out",
        error=".",
    ),
    Submission(
        "closes-streams",
        "16",
        "closes every file that it has, standard output and the evaluator's pipe among them",
        "failed or timed_out",
        source=source("", "os.closerange(0, 4096)"),
        status="failed|timed_out|succeeded",
        error="",
    ),
    Submission(
        "daemon-keeps-streams",
        "16",
        "leaves a daemon in a session of its own that holds the streams and prints for ever",
        "the capture ends without it; nothing of it is left",
        source=source(
            "", "", 'def chatter():\n    while True:\n        os.write(1, b"still here\\n")\n        time.sleep(0.01)\ndaemon(chatter)\n'
        ),
    ),
    Submission(
        "threads-keep-writing",
        "15, 16",
        "leaves threads that go on writing after custom_kernel has returned",
        "the capture ends without them",
        source=source(
            "",
            "",
            'def chatter():\n    while True:\n        os.write(2, b"still here\\n")\nfor _ in range(8):\n    threading.Thread(target=chatter, daemon=True).start()\n',
        ),
    ),
    Submission(
        "open-files",
        "2",
        "opens files until it may have no more",
        "EMFILE; the profile is there",
        source=source(
            "",
            '''
held = []
def until_refused():
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
tried("open", until_refused)
for file in held:
    os.close(file)
''',
        ),
        tried={"open": "EMFILE"},
    ),
    Submission(
        "locked-memory",
        "3",
        "locks memory, asks for huge limits and for real-time scheduling",
        "no limit rises, and no priority",
        source=source(
            "",
            '''
import resource
for name in ("RLIMIT_FSIZE", "RLIMIT_CORE", "RLIMIT_NOFILE"):
    tried(name, resource.setrlimit, getattr(resource, name), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
tried("real time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))
tried("niceness", os.nice, -10)
''',
        ),
        tried={
            "RLIMIT_FSIZE": "EPERM|ValueError .*",
            "RLIMIT_CORE": "EPERM|ValueError .*",
            "real time": "EPERM",
            "niceness": "EPERM|EACCES",
        },
    ),
]
