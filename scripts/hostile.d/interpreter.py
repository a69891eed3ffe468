"""What a submission can do to Python and to the programs that run after it, and sources that are hard to read."""

from cases import Submission, source
from output import not_forged

# Done in the overview alone: what shows in the capture is what survived.
PLANT = "if not CAPTURING:\n"


def planted(body):
    return source(PLANT + "".join(f"    {line}\n" for line in body.strip("\n").splitlines()))


def unharmed(seen, service):
    wrong = not_forged(seen, service)
    after = seen.printed.split("ncu-runner: capture", 1)[-1]
    return wrong + (["something that was planted ran in the capture"] if "planted-ran" in after else [])


SHADOW = "print('planted-ran', flush=True)\nraise SystemExit(0)\n"

CASES = [
    Submission(
        "shadowed-modules",
        "12, 14",
        "overwrites the evaluator and its modules, and puts modules of the names random, torch, multiprocessing beside them",
        "made anew before the capture",
        source=planted(f'''
for name in ("eval", "task", "utils", "reference", "random", "torch", "multiprocessing", "standin_gpu", "json", "encodings"):
    for path in (name + ".py",):
        open(path, "w").write({SHADOW!r})
'''),
        look=unharmed,
    ),
    Submission(
        "poisoned-caches",
        "12",
        "writes compiled modules for the evaluator into every __pycache__ and into the caches that are kept",
        "no effect on the capture",
        source=planted(f'''
import importlib.util, py_compile
open("/tmp/evil.py", "w").write({SHADOW!r})
for folder in ("__pycache__", os.environ["HOME"], os.environ["TORCH_EXTENSIONS_DIR"], os.environ["TRITON_CACHE_DIR"], os.environ["XDG_CACHE_HOME"], "/tmp/work/__pycache__"):
    for name in ("eval", "utils", "reference", "task"):
        for suffix in ("cpython-311.pyc", "pyc"):
            try:
                py_compile.compile("/tmp/evil.py", cfile=f"{{folder}}/{{name}}.{{suffix}}", invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
            except OSError as error:
                say(error)
'''),
        look=unharmed,
    ),
    Submission(
        "sitecustomize",
        "14",
        "plants sitecustomize, usercustomize, .pth files, .pythonrc and pyvenv.cfg in HOME, in its folder and in the packages",
        "no effect on the capture",
        source=planted(f'''
version = f"python{{sys.version_info[0]}}.{{sys.version_info[1]}}"
for folder in (".", os.environ["HOME"], os.environ["HOME"] + f"/.local/lib/{{version}}/site-packages", "/tmp/home/.local/lib/" + version + "/site-packages", "/tmp", f"/usr/lib/{{version}}", "/usr/local/lib/" + version + "/dist-packages"):
    try:
        os.makedirs(folder, exist_ok=True)
        for name in ("sitecustomize.py", "usercustomize.py", ".pythonrc", "pyvenv.cfg"):
            open(f"{{folder}}/{{name}}", "w").write({SHADOW!r})
        open(folder + "/evil.pth", "w").write("import sys; print('planted-ran', flush=True); sys.exit(0)\\n")
    except OSError as error:
        say(folder, error)
'''),
        look=unharmed,
    ),
    Submission(
        "environment",
        "14, 21",
        "sets LD_PRELOAD, PATH, PYTHONPATH and the profiler's variables for whatever runs after it",
        "no later step sees them",
        source=source('''
seen = [name for name in ("LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "NV_EVIL", "NCU_SERVICE_EVIL") if name in os.environ]
say("set before:", seen)
for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "NV_EVIL", "NCU_SERVICE_EVIL", "NVIDIA_VISIBLE_DEVICES"):
    os.environ[name] = "/tmp/evil.so"
os.environ["PATH"] = "/tmp:."
'''),
        printed=r"set before: \[\].*set before: \[\]",
        look=unharmed,
    ),
    Submission(
        "preload-child",
        "14",
        "runs programs with LD_PRELOAD, LD_AUDIT and a library search path of its own",
        "its own children only; the profile is there",
        source=source(
            "",
            '''
for name in ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"):
    subprocess.run(["/bin/true"], env={name: "/tmp/none.so"}, stderr=subprocess.DEVNULL)
''',
        ),
    ),
    Submission(
        "fake-ncu",
        "14",
        "puts programs named ncu, python3 and ncu-runner on its PATH, in its folder and in /tmp",
        "the image's own are run",
        source=planted('''
for folder in (".", "/tmp", "/tmp/work", os.environ["HOME"], "/usr/local/bin", "/usr/local/sbin"):
    for name in ("ncu", "python3", "ncu-runner", "sh"):
        try:
            open(f"{folder}/{name}", "w").write("#!/bin/sh\\necho planted-ran\\n")
            os.chmod(f"{folder}/{name}", 0o755)
        except OSError as error:
            say(folder, error)
'''),
        look=unharmed,
    ),
    Submission(
        "work-replaced",
        "10, 14",
        "replaces its working folder, HOME and the caches by links to /out and /usr",
        "made anew before the capture; the profile is there, or failed",
        source=planted('''
for path, target in {os.getcwd(): "/out", os.environ["HOME"]: "/usr", os.environ["TMPDIR"]: "/", os.environ["TRITON_CACHE_DIR"]: "/in"}.items():
    try:
        os.rename(path, path + "-away")
        os.symlink(target, path)
    except OSError as error:
        say(path, error)
'''),
        look=unharmed,
    ),
    Submission(
        "warm-call-tricks",
        "23",
        "asks for warm calls and redefines globals, range and callable, and calls itself",
        "its own affair; the profile is there",
        fields={"ncu_warm_calls": "2"},
        source=source(
            "", 'if not custom_kernel.__dict__.get("again"):\n    custom_kernel.__dict__["again"] = True\n    custom_kernel(data)'
        )
        + "range = callable = None\nglobals = lambda: {}\n",
    ),
    Submission(
        "open-end",
        "23",
        "asks for warm calls with a source that ends in the middle of a statement",
        "failed, with Python's own error",
        fields={"ncu_warm_calls": "1"},
        source=source() + "@(lambda function: function)\n",
        status="failed",
        error="SyntaxError|IndentationError",
    ),
    # What follows is about the source itself.
    Submission(
        "byte-order-mark",
        "24",
        "begins with a byte order mark",
        "read as Python reads it: the profile is there",
        source=("\ufeff" + source()),
    ),
    Submission(
        "mixed-newlines",
        "24",
        "mixes LF, CRLF and CR, and ends without a newline",
        "the profile is there",
        source=source("x = 1\r\ny = 2\r").rstrip("\n"),
    ),
    Submission(
        "one-long-line", "24", "is one line of 900,000 characters", "the profile is there", source=source("x = '" + "é" * 450_000 + "'")
    ),
    Submission(
        "a-million-bytes",
        "24",
        "is exactly as large as a submission may be",
        "the profile is there",
        source=source().encode() + b"#" * (1_000_000 - len(source().encode())),
    ),
    Submission(
        "nested-source",
        "24",
        "nests 100,000 brackets, which a parser walks by recursion",
        "failed, with Python's own error",
        source=source("x = " + "(" * 100_000 + ")" * 100_000),
        status="failed",
        error=".",
    ),
    Submission(
        "unary-source",
        "24",
        "negates a number 300,000 times",
        "failed",
        source=source("x = " + "-" * 300_000 + "1"),
        status="failed",
        error=".",
    ),
    Submission(
        "other-encodings",
        "24",
        "claims to be UTF-7, in which anything can be hidden",
        "failed, or read as Python reads it",
        source="# -*- coding: utf-7 -*-\n" + source(),
        status="failed|succeeded",
        error="",
    ),
    Submission(
        "hidden-text",
        "24",
        "hides code by bidirectional controls and look-alike names",
        "its own affair; the profile is there",
        source=source("# \u202e\u2066 }\u2069 \u2066\nо = 1  # a Cyrillic name\n"),
    ),
    Submission(
        "odd-errors",
        "15",
        "fails with a message of a megabyte of escapes, newlines and broken UTF-8",
        "failed; a short sentence that is safe to print",
        source=source(
            "",
            r'''
os.write(2, b"\xff\xfe\x00\x1b[31m" * 1000)
raise RuntimeError("\x1b[2J\x07" + "evil\r\n" * 200_000 + "\x00\x9b")
''',
        ),
        status="failed",
        error=".",
    ),
    Submission(
        "error-without-end",
        "15",
        "fails with an exception whose text never ends, and hooks that raise",
        "failed or timed_out",
        source=source(
            "",
            '''
class Endless(Exception):
    def __str__(self):
        while True:
            pass
sys.excepthook = lambda *_: 1 / 0
raise Endless()
''',
        ),
        status="failed|timed_out",
        error=".",
    ),
    Submission(
        "pickle-trap",
        "23",
        "returns an answer whose comparison and pickling run its own code",
        "the evaluator calls it wrong, or failed",
        source=source(
            "",
            "",
            '''
class Trap(list):
    def __reduce__(self):
        return os.system, ("echo pickled",)
    def __len__(self):
        raise SystemExit(0)
result = Trap(result)
''',
        ),
        status="failed|succeeded|timed_out",
        error="",
    ),
]
