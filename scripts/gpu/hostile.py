"""Hostile submissions that need a GPU, each followed by an honest job that must have the whole GPU to itself.

    hostile.py --into FOLDER --logs FOLDER [--gpu N] [--limit SECS] [--only NAME…]

After each one the driver (NVML) is asked until the GPU shows no process and little memory in use. Prints a Markdown table; exits
with 1 when a verdict is not as expected, the GPU was not idle within two seconds, or an honest job failed.
"""

import argparse
import dataclasses
import pathlib
import re
import sys
import time

import cases
import client
import nvml

IDLE_SECS = 2.0
# The driver keeps some for itself.
IDLE_MIB = 100
# What an honest job must find free.
FREE_SHARE = 0.95

# A process that has left session and family behind.
DAEMON = """
import os, signal, subprocess, sys, time
def daemon(program):
    subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    time.sleep(5)
def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
def profiler():
    # The evaluator's parent.
    return parent_of(os.getppid())
CAPTURING = "NCU_SERVICE_LAUNCHES_DIR" not in os.environ
"""
HOLDS_MEMORY = (
    "import torch, time; hoard = torch.empty(int(torch.cuda.mem_get_info()[0] * 0.6), dtype=torch.uint8, device='cuda'); time.sleep(3600)"
)
ENDLESS = "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import torch\n        torch.cuda._sleep(1 << 62)\n        torch.cuda.synchronize()\n"
TRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
if CAPTURING:
    for pid in (1, profiler()):
        print("ptrace of", pid, libc.ptrace(0x4206, pid, 0, 0), ctypes.get_errno(), flush=True)
    libc.ptrace(0x4207, profiler(), 0, 0)
"""
KILL_NCU = """
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if CAPTURING and open(f"/proc/{pid}/comm").read().strip() == "ncu":
            os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
"""
HONEST = "print('free', *torch.cuda.mem_get_info(), flush=True)\n" + cases.HONEST


@dataclasses.dataclass
class Case:
    """`status` and `error` are regular expressions; `does` stands in the table."""

    does: str
    source: str
    status: str
    error: str = ""
    # The kernel's log tells of an Xid, and the worker notes it.
    xid: bool = False


CASES = {
    "memory-left": Case(
        "a daemon holds most of the GPU's memory",
        cases.submission(f"daemon({HOLDS_MEMORY!r})\n" + cases.HONEST, DAEMON),
        "succeeded|failed|timed_out",
    ),
    "endless-daemon": Case(
        "a double-forked child runs an endless kernel",
        cases.submission(f"daemon({ENDLESS!r})\n" + cases.HONEST, DAEMON),
        "succeeded|failed|timed_out",
    ),
    "illegal-address": Case(
        "writes to an illegal address",
        cases.submission(
            "launch(torch.zeros(64, device='cuda'), 1 << 44)\ntorch.cuda.synchronize()\n" + cases.HONEST, cases.native(cases.TOUCH)
        ),
        "failed",
        "illegal memory access|illegal address",
        xid=True,
    ),
    "traces-ncu": Case(
        "attaches to PID 1 and to ncu by ptrace", cases.submission(TRACE + cases.HONEST, DAEMON), "succeeded|failed|timed_out"
    ),
    "stops-ncu": Case(
        "stops ncu by SIGSTOP",
        cases.submission("if CAPTURING:\n    os.kill(profiler(), signal.SIGSTOP)\n" + cases.HONEST, DAEMON),
        "timed_out",
        "did not end within",
    ),
    "kills-launcher": Case(
        "kills the process that ncu starts the evaluator with",
        cases.submission("if CAPTURING:\n    os.kill(profiler(), signal.SIGKILL)\n" + cases.HONEST, DAEMON),
        "succeeded|failed",
    ),
    "kills-ncu": Case(
        "kills every process that is called ncu", cases.submission(KILL_NCU + cases.HONEST, DAEMON), "failed", "."
    ),
    "exits-in-a-kernel": Case(
        "leaves the process while its kernel runs",
        cases.submission("torch.cuda._sleep(1 << 40)\nos._exit(0)", DAEMON),
        "failed|timed_out",
        ".",
    ),
}


def submit(name, source, leaderboard, arguments):
    file = arguments.into / name / "submission.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return next(client.run([client.Request(name, file, leaderboard)], arguments.into, arguments.limit))


def idle_after(gpu):
    """Seconds until the GPU shows nothing of anybody; None when that is not within the limit."""
    began = time.monotonic()
    while (seconds := time.monotonic() - began) <= IDLE_SECS:
        if gpu.processes() == 0 and gpu.memory_mib() <= IDLE_MIB:
            return seconds
        time.sleep(0.02)
    return None


def xids(logs):
    """How many the workers have noted so far, and whether they can."""
    text = "".join(path.read_text(errors="replace") for path in pathlib.Path(logs).glob("worker-*.log"))
    return text.count("the driver reported an Xid")


def can_read_kernel_log():
    try:
        open("/dev/kmsg", "rb").close()
        return True
    except OSError:
        return False


def free_share(ended):
    """What an honest job found free of the GPU's memory, from 0 to 1."""
    found = re.findall(r"free (\d+) (\d+)", ended.read("stdout.txt")) if ended.archive else []
    return min((int(free) / int(total) for free, total in found), default=0.0)


def mistakes(name, case, arguments, gpu):
    """(what came of it, why that is not as expected)"""
    before = xids(arguments.logs)
    ended = submit(name, case.source, "qr_brief", arguments)
    idle = idle_after(gpu)
    wrong = []
    if not re.fullmatch(case.status, ended.status) or not re.search(case.error, ended.error):
        wrong.append(f"{case.status} with `{case.error}` was expected")
    if idle is None:
        wrong.append(f"the GPU is not idle: {gpu.processes()} processes, {gpu.memory_mib()} MiB")
    if case.xid and can_read_kernel_log() and xids(arguments.logs) == before:
        wrong.append("no worker noted an Xid")
    honest = submit(f"{name}-honest", cases.submission(HONEST), "qr_v2", arguments)
    if honest.status != "succeeded" or honest.error:
        wrong.append(f"the honest job after it: {honest.status} {honest.error}")
    elif free_share(honest) < FREE_SHARE:
        wrong.append(f"the honest job after it found {free_share(honest):.0%} of the memory free")
    shown = "never" if idle is None else f"{idle:.2f}"
    return f"{ended.status} | {ended.seconds:.0f} | {client.cell(ended.error, 200)} | {shown}", wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--logs", required=True)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--limit", type=float, default=540)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(CASES):
        sys.exit(f"no case is called {sorted(unknown)}; there are {', '.join(CASES)}")
    gpu = nvml.Gpu(arguments.gpu)
    passed = 0
    deadline = time.monotonic() + arguments.limit
    print(
        "| the submission | state | s | what the user reads | GPU idle after s | as expected |\n| --- | --- | --- | --- | --- | --- |",
        flush=True,
    )
    for name in arguments.only:
        arguments.limit = max(1.0, deadline - time.monotonic())
        came_to, wrong = mistakes(name, CASES[name], arguments, gpu)
        passed += not wrong
        print(f"| {CASES[name].does} | {came_to} | {'NO: ' + client.cell('; '.join(wrong)) if wrong else 'yes'} |", flush=True)
    note = "" if can_read_kernel_log() else " The kernel's log cannot be read here, so Xids were not looked for."
    print(f"\ncases={len(arguments.only)} passed={passed}.{note}\n")
    return 0 if passed == len(arguments.only) else 1


if __name__ == "__main__":
    sys.exit(main())
