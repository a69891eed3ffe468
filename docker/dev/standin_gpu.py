"""A GPU that is not there: "kernels" are Python functions, run at once on the CPU.

The stand-in ncu sets a folder in the environment; every launch is then noted there, with the ranges it was made in.
Another folder is for the overview: launches in the range custom_kernel are counted there, as the launch tracer of the worker
image does for a real GPU and in its format. Without those folders the functions only run.
"""

import contextlib
import json
import os
import re
import sys
import threading
import time

TRACE_DIR_VARIABLE = "STANDIN_NCU_TRACE_DIR"
OVERVIEW_DIR_VARIABLE = "NCU_SERVICE_LAUNCHES_DIR"
OVERVIEW_RANGE = "custom_kernel"
# The tracer's own limits.
MAX_KERNELS = 4096
MAX_RUNS = 65536

_ranges = threading.local()


def _stack():
    if not hasattr(_ranges, "names"):
        _ranges.names = []
    return _ranges.names


def range_push(name):
    """Opens a push/pop range of this thread; returns its depth, from 0."""
    _stack().append(name)
    if name == OVERVIEW_RANGE:
        _overview.enter()
    return len(_stack()) - 1


def range_pop():
    """Closes the innermost range; returns its depth, or -1 where none is open."""
    if not _stack():
        return -1
    if _stack().pop() == OVERVIEW_RANGE:
        _overview.leave()
    return len(_stack())


@contextlib.contextmanager
def nvtx_range(name):
    """A push/pop range of this thread."""
    range_push(name)
    try:
        yield
    finally:
        range_pop()


def launch(name, grid, block, function, *args, counters=True, saved_bytes=0):
    """Runs `function(*args)` as the kernel `name` (a demangled name, such as "void add<float>(float *)").

    `grid` and `block` are a number or up to three numbers. `counters=False` plays a GPU that this ncu cannot read:
    every metric of the launch is nan. `saved_bytes` is what a profiler keeps of the GPU's memory between passes. Returns what
    the function returns.
    """
    started = time.perf_counter_ns()
    result = function(*args)
    duration_ns = time.perf_counter_ns() - started
    folder = os.environ.get(TRACE_DIR_VARIABLE)
    _overview.note(mangled(name), _three(grid) + _three(block), duration_ns)
    if folder:
        _note(folder, {
            "name": name,
            "mangled": mangled(name),
            "grid": _three(grid),
            "block": _three(block),
            "ranges": list(_stack()),
            "started_ns": started,
            "duration_ns": duration_ns,
            "counters": counters,
            "saved_bytes": saved_bytes,
            "pid": os.getpid(),
            "thread": threading.get_native_id(),
            "process": os.path.basename(os.path.realpath(sys.executable)),
        })
    return result


_TYPES = {"float": "f", "double": "d", "int": "i", "unsigned": "j", "bool": "b", "char": "c"}


def mangled(name):
    """`void space::add<float>(float *)` -> `_Z3addIfEvv`; what is no function's signature is a name by itself."""
    function = re.fullmatch(r"(?:.*[ :])?([A-Za-z_]\w*)(?:<(.*)>)?\(.*\)", name)
    if not function:
        return name
    base = f"_Z{len(function[1])}{function[1]}"
    if not function[2]:
        return f"{base}v"
    words = re.findall(r"\w+", function[2])
    types = (_TYPES.get(word) or f"{len('T' + word)}T{word}" for word in words)
    return f"{base}I{''.join(types)}Evv"


class _Overview:
    """Launches by kernel and launch size, and their order."""

    def __init__(self):
        self.kernels = {}  # (name, sizes): [launches in the range, launches outside of it, nanoseconds in the range]
        self.other = [0, 0, 0]
        self.runs = []  # [(name, sizes) or None, launches in a row]
        self.entered = self.left = 0

    def enter(self):
        self.entered += 1
        self.write()

    def leave(self):
        self.left += 1
        self.write()

    def note(self, name, sizes, duration_ns):
        key = (name, *sizes)
        if key not in self.kernels and len(self.kernels) == MAX_KERNELS:
            key, totals = None, self.other
        else:
            totals = self.kernels.setdefault(key, [0, 0, 0])
        if OVERVIEW_RANGE not in _stack():
            totals[1] += 1
            return
        totals[0] += 1
        totals[2] += duration_ns
        if self.runs and self.runs[-1][0] == key:
            self.runs[-1][1] += 1
        elif len(self.runs) < MAX_RUNS:
            self.runs.append([key, 1])

    def write(self):
        folder = os.environ.get(OVERVIEW_DIR_VARIABLE)
        if not folder:
            return
        numbers = {key: number for number, key in enumerate([*self.kernels, None])}
        lines = ["launches 2", f"process {os.getpid()}", "lost 0", f"range {self.entered} {self.left}"]
        for (name, *sizes), totals in self.kernels.items():
            lines.append(" ".join(map(str, ["kernel", *totals, *sizes, _escaped(name)])))
        lines.append(" ".join(map(str, ["other", *self.other])))
        lines.extend(f"run {numbers[key]} {count}" for key, count in self.runs)
        path = os.path.join(folder, str(os.getpid()))
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("\n".join([*lines, "end", ""]))
        os.replace(path + ".new", path)


_overview = _Overview()


def _escaped(name):
    plain = lambda byte: chr(byte) if 0x20 < byte < 0x7F and byte != 0x25 else f"%{byte:02X}"
    return "".join(map(plain, name.encode()))


def _three(size):
    sizes = [size] if isinstance(size, int) else list(size)
    return (sizes + [1, 1, 1])[:3]


def _note(folder, launch_record):
    # One write a line: an evaluator ends its child with a signal, so nothing may be left in a buffer.
    line = json.dumps(launch_record) + "\n"
    with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "ab", buffering=0) as file:
        file.write(line.encode())
