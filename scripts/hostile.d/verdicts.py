"""What a submission can claim: forged answers, ended profilers, and spoiled neighbours of its own container."""

from cases import Submission, source

# The profiler is an ancestor of the process that the submission runs in.
ANCESTORS = '''
def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
def named(pid):
    return open(f"/proc/{pid}/cmdline").read().replace("\\0", " ")
def ancestors():
    pid, found = os.getpid(), []
    while pid > 1:
        pid = parent_of(pid)
        found.append(pid)
    return found
EVALUATOR, NCU = (ancestors() + [1, 1])[:2]
'''


def is_marked(seen, service):
    """A profile whose report may be anything says so."""
    note = seen.manifest.get("note", "")
    return [] if seen.archive is None or "submission" in note else ["the manifest does not say how far it can be trusted"]


CASES = [
    Submission(
        "kills-ncu",
        "18",
        "kills the profiler",
        "failed",
        source=source(ANCESTORS, "if CAPTURING:\n    os.kill(NCU, signal.SIGKILL)"),
        status="failed",
        error=".",
    ),
    Submission(
        "stops-ncu",
        "16, 18",
        "stops the profiler by SIGSTOP",
        "timed_out",
        source=source(ANCESTORS, "if CAPTURING:\n    os.kill(NCU, signal.SIGSTOP)"),
        status="timed_out",
        error="did not end within",
    ),
    Submission(
        "interrupts-ncu",
        "18",
        "sends the profiler and the evaluator every signal",
        "failed, or the profile is there",
        source=source(
            ANCESTORS,
            "if CAPTURING:\n    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGINT, signal.SIGTERM):\n        for pid in (NCU, EVALUATOR):\n            try:\n                os.kill(pid, number)\n            except OSError:\n                pass",
        ),
        status="failed|timed_out|succeeded",
        error="",
    ),
    Submission(
        "kills-the-runner",
        "18",
        "sends PID 1 every signal there is",
        "it lives on; the profile is there",
        source=source(
            "",
            '''
for number in sorted(signal.valid_signals()):
    try:
        os.kill(1, number)
    except OSError:
        pass
say("sent them all")
''',
        ),
        printed="sent them all",
    ),
    Submission(
        "kills-everything",
        "18",
        "kills every process that it may",
        "failed, never succeeded",
        source=source("", "if CAPTURING:\n    os.kill(-1, signal.SIGKILL)"),
        status="failed|timed_out",
        error=".",
    ),
    Submission(
        "traces-the-runner",
        "18, 19",
        "attaches to PID 1 and reads and writes its memory",
        "refused",
        source=source(
            "",
            '''
libc = ctypes.CDLL(None, use_errno=True)
def ptrace(request, pid):
    if libc.ptrace(request, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
tried("attach", ptrace, 16, 1)
tried("seize", ptrace, 0x4206, 1)
for name in ("mem", "maps", "environ", "auxv", "syscall", "stack"):
    tried(name, lambda: open("/proc/1/" + name, "rb").read(16))
tried("write", lambda: open("/proc/1/mem", "r+b").write(b"x"))
tried("files", lambda: os.readlink("/proc/1/fd/3"))
''',
        ),
        tried={name: "EPERM|EACCES|ESRCH" for name in ("attach", "seize", "mem", "maps", "environ", "write", "files")},
    ),
    Submission(
        "evaluators-memory",
        "18, 23",
        "overwrites the memory of the evaluator, which is its own user's",
        "failed or timed_out: it spoils its own job only",
        source=source(
            ANCESTORS,
            '''
if CAPTURING:
    with open(f"/proc/{EVALUATOR}/maps") as maps, open(f"/proc/{EVALUATOR}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            start, end = (int(part, 16) for part in place.split("-"))
            if rights.startswith("rw") and end - start < 64 << 20:
                memory.seek(start)
                try:
                    memory.write(b"\\xcc" * (end - start))
                except OSError:
                    pass
''',
        ),
        status="failed|timed_out",
        error=".",
    ),
    Submission(
        "own-memory",
        "23",
        "writes its own code through /proc/self/mem",
        "its own affair; the profile is there",
        source=source(
            "",
            '''
text = next(line for line in open("/proc/self/maps") if "r-xp" in line and "python" in line)
start = int(text.split("-")[0], 16)
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(start)
    same = memory.read(64)
    memory.seek(start)
    tried("code", memory.write, same)
''',
        ),
        tried={"code": "done 64|EIO|EPERM|EACCES"},
    ),
    Submission(
        "forged-check",
        "23",
        "gives a wrong answer and writes `check: pass` into the evaluator's own pipe",
        "the evaluator's exit code counts: the answer is called wrong",
        source=source(
            ANCESTORS,
            "",
            '''
for pid in (EVALUATOR, NCU):
    for fd in range(3, 64):
        try:
            if "pipe" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                file = os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
                if fd > 2:
                    os.write(file, b"check: pass\\n") if fd == int(os.environ.get("POPCORN_FD", "-1")) else None
        except OSError:
            pass
result = [0.0] * len(result)
''',
        ),
        error="The evaluator found the answer wrong",
    ),
    Submission(
        "forged-check-without-kernel",
        "23",
        "launches nothing and prints `check: pass`, `==PROF== Profiling` and a report's lines",
        "failed: no kernel was captured",
        source=source(
            "",
            'say("check: pass\\n==PROF== Profiling \\"add\\" - 0: 0%....50%....100% - 38 passes\\n==PROF== Report: /out/profile/profile.ncu-rep")\nreturn add(*data)',
        ),
        status="failed",
        error="No kernel was captured",
    ),
    Submission(
        "forged-host-trouble",
        "23",
        "prints what ncu prints when the host is not set up (ERR_NVGPUCTRPERM) and fails",
        "tried again as a fault of ours, within the limit, then failed",
        source=source("", 'say("==ERROR== ERR_NVGPUCTRPERM driver resource was unavailable")\nraise RuntimeError("x")'),
        status="failed",
        error=".",
        retried=True,
    ),
    Submission(
        "exit-codes",
        "18, 23",
        "ends the profiler and leaves with the codes of a right and of a wrong answer, printing ncu's line for it",
        "failed, never succeeded",
        source=source(
            ANCESTORS,
            'if CAPTURING:\n    say("==ERROR== The application returned an error code (112).")\n    os.kill(NCU, signal.SIGKILL)\n    os._exit(112)',
        ),
        status="failed",
        error=".",
    ),
    *[
        Submission(
            f"exits-{code}",
            "18",
            f"leaves by os._exit({code}) inside of custom_kernel",
            "failed: the process ended before custom_kernel returned",
            source=source("", f"os._exit({code})"),
            status="failed",
            error="ended before custom_kernel returned|.",
        )
        for code in (0, 112, 137)
    ],
    Submission(
        "evaluator-exits",
        "18",
        "makes the evaluator leave with code 0 and no verdict, by a debugger's way",
        "failed, or a profile of what was captured",
        source=source(ANCESTORS, "", 'if CAPTURING:\n    os.kill(EVALUATOR, signal.SIGKILL)'),
        status="failed|succeeded",
        error="",
    ),
    Submission(
        "segfault",
        "18",
        "reads at address 0, in native code",
        "failed; no core is left",
        source=source("", "ctypes.string_at(0)"),
        status="failed",
        error=".",
    ),
    Submission(
        "abort",
        "18",
        "aborts with a core dump asked for",
        "failed; no core is left",
        source=source(
            "",
            '''
import resource
tried("core", resource.setrlimit, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.chdir("/out")
os.abort()
''',
        ),
        status="failed",
        error=".",
    ),
    Submission(
        "patched-check",
        "23",
        "replaces the evaluator's check by one that is always content",
        "the profile is there; a verdict from inside is a claim, and the manifest says so",
        source=source("sys.modules['__mp_main__'].run_once.__globals__['check_implementation'] = lambda *_: (True, '')", "", "result = 7"),
        look=is_marked,
    ),
    Submission(
        "traced",
        "23",
        "traces and profiles every call of the evaluator in its process, by sys.settrace and audit hooks",
        "its own affair; the profile is there",
        source=source(
            "calls = []\nsys.settrace(lambda *_: calls.append(1) and None)\nthreading.settrace(lambda *_: None)\nsys.addaudithook(lambda *_: None)\n"
        ),
    ),
    Submission(
        "clock-games",
        "23",
        "lets time run backwards and stand still in its process",
        "failed or the profile is there; nothing negative in the body",
        source=source(
            "import itertools\nticks = itertools.count(10**18, -10**15)\ntime.perf_counter_ns = lambda: next(ticks)\ntime.time = lambda: -1.0\n"
        ),
        status="succeeded|failed",
        error="",
    ),
    Submission(
        "names-of-others",
        "18",
        "calls itself `ncu-runner`, then `ncu`, in comm and in its arguments",
        "its own affair; the profile is there",
        source=source(
            "",
            '''
libc = ctypes.CDLL(None)
for name in (b"ncu", b"ncu-runner"):
    libc.prctl(15, name, 0, 0, 0)
say(open("/proc/self/comm").read().strip())
''',
            'if os.fork() == 0:\n    os.execv("/bin/sleep", ["/usr/local/bin/ncu-runner", "600"])',
        ),
        printed="ncu-runner",
    ),
]
