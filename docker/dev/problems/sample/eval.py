"""Evaluator of the sample problems: `python3 eval.py test|profile cases.txt`.

It speaks as the evaluators of reference-kernels do: results go to the file descriptor that POPCORN_FD names, and the
exit code is 0, or 112 for a wrong answer, 111 without POPCORN_FD, 113 for a bad case, 2 for an unknown mode.
"""

import multiprocessing
import os
import re
import sys

from torch.cuda.nvtx import range as nvtx_range

from reference import check_implementation, generate_input
from utils import set_seed

WRONG_ANSWER = 112
NO_POPCORN_FD = 111
BAD_CASE = 113
NO_SUCH_MODE = 2

PART = re.compile(r"\s*([a-zA-Z]+)\s*:\s*([a-zA-Z]+|[+-]?[0-9]+)\s*")


class Log:
    """`key: value` lines for whoever started the evaluator."""

    def __init__(self, fd):
        os.set_inheritable(fd, False)
        self.file = os.fdopen(fd, "w")

    def write(self, key, value):
        print(f"{key}: {value}", file=self.file, flush=True)


def read_cases(path):
    """[(the line, its parameters)]; exits when a line cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        print(f"cannot read {path}: {error}", file=sys.stderr)
        sys.exit(BAD_CASE)
    return [(line, parameters(line)) for line in lines]


def parameters(line):
    found = {}
    for part in line.split(";"):
        matched = PART.fullmatch(part)
        if matched is None:
            print(f"cannot read {part!r} of the case {line!r}", file=sys.stderr)
            sys.exit(BAD_CASE)
        key, value = matched.groups()
        found[key] = value if value.isalpha() else int(value)
    return found


def run_once(case):
    """In the child: one call of the submission, inside the range that a profiler looks for. (good, message)"""
    from submission import custom_kernel

    with nvtx_range("generate input"):
        data = generate_input(**case)
        given = generate_input(**case)
    with nvtx_range("custom_kernel"):
        output = custom_kernel(given)
    return check_implementation(data, output)


def test(log, pool, cases):
    all_good = True
    log.write("test-count", len(cases))
    for index, (line, case) in enumerate(cases):
        log.write(f"test.{index}.spec", line)
        good, message = pool.apply(run_once, (case,))
        log.write(f"test.{index}.status", "pass" if good else "fail")
        if not good:
            log.write(f"test.{index}.error", message)
        all_good = all_good and good
    log.write("check", "pass" if all_good else "fail")
    return 0 if all_good else WRONG_ANSWER


def profile(log, pool, cases):
    line, case = cases[0]
    log.write("benchmark-count", len(cases))
    log.write("benchmark.0.spec", line)
    good, message = pool.apply(run_once, (case,))
    if not good:
        log.write("benchmark.0.status", "fail")
        log.write("benchmark.0.error", message)
    log.write("check", "pass" if good else "fail")
    return 0 if good else WRONG_ANSWER


def main():
    fd = os.environ.get("POPCORN_FD")
    if not fd:
        return NO_POPCORN_FD
    mode = {"test": test, "profile": profile}.get(sys.argv[1]) if len(sys.argv) == 3 else None
    if mode is None:
        return NO_SUCH_MODE
    set_seed(42)
    cases = read_cases(sys.argv[2])
    if not cases:
        return BAD_CASE
    log = Log(int(fd))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return mode(log, pool, cases)


if __name__ == "__main__":
    sys.exit(main())
