"""A GPU that is not there: "kernels" are Python functions, run at once on the CPU.

The stand-in ncu sets a folder in the environment; every launch is then noted there, with the ranges it was made in.
Without that folder the functions only run.
"""

import contextlib
import json
import os
import sys
import threading
import time

TRACE_DIR_VARIABLE = "STANDIN_NCU_TRACE_DIR"

_ranges = threading.local()


def _stack():
    if not hasattr(_ranges, "names"):
        _ranges.names = []
    return _ranges.names


@contextlib.contextmanager
def nvtx_range(name):
    """A push/pop range of this thread."""
    _stack().append(name)
    try:
        yield
    finally:
        _stack().pop()


def launch(name, grid, block, function, *args, counters=True):
    """Runs `function(*args)` as the kernel `name` (a demangled name, such as "void add<float>(float *)").

    `grid` and `block` are a number or up to three numbers. `counters=False` plays a GPU that this ncu cannot read:
    every metric of the launch is nan. Returns what the function returns.
    """
    started = time.perf_counter_ns()
    result = function(*args)
    duration_ns = time.perf_counter_ns() - started
    folder = os.environ.get(TRACE_DIR_VARIABLE)
    if folder:
        _note(folder, {
            "name": name,
            "grid": _three(grid),
            "block": _three(block),
            "ranges": list(_stack()),
            "started_ns": started,
            "duration_ns": duration_ns,
            "counters": counters,
            "pid": os.getpid(),
            "thread": threading.get_native_id(),
            "process": os.path.basename(os.path.realpath(sys.executable)),
        })
    return result


def _three(size):
    sizes = [size] if isinstance(size, int) else list(size)
    return (sizes + [1, 1, 1])[:3]


def _note(folder, launch_record):
    # One write a line: an evaluator ends its child with a signal, so nothing may be left in a buffer.
    line = json.dumps(launch_record) + "\n"
    with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "ab", buffering=0) as file:
        file.write(line.encode())
