"""What it costs ncu to watch launches that it does not profile, by the options that choose launches.

    watching.py --ncu PATH --into FOLDER [--launches 8000] [--limit SECS]

The program launches many small kernels in the range custom_kernel and one matrix product after them, and says how far it is as it
goes, so that a run that is ended at its limit tells its cost too. Prints a Markdown table.
"""

import argparse
import pathlib
import re
import subprocess
import sys

PROGRAM = """
import sys, time, torch
small, large = torch.zeros(1 << 12, device="cuda"), torch.ones(1024, 1024, device="cuda")
small + 1, small * 2, torch.sin(small), torch.cos(small), large @ large
torch.cuda.synchronize()
launches = int(sys.argv[1])
torch.cuda.nvtx.range_push("custom_kernel")
# The first launches are the ones that some options profile; what follows is watched.
for index in range(launches // 4):
    if index == 4:
        torch.cuda.synchronize()
        started = time.monotonic()
    small + 1, small * 2, torch.sin(small), torch.cos(small)
    if index > 4 and index % (10 if index < 100 else 100) == 0:
        torch.cuda.synchronize()
        print("watched", 4 * (index - 4), time.monotonic() - started, flush=True)
torch.cuda.nvtx.range_push("product")
large @ large
torch.cuda.synchronize()
torch.cuda.nvtx.range_pop()
torch.cuda.nvtx.range_pop()
"""
PRODUCT = "regex:^(.*gemm.*|.*cublas.*|.*cutlass.*)$"
MANGLED = ["--kernel-name-base", "mangled"]
FULL = ["--set", "full"]
OUTSIDE = "outside the range"
# As under an evaluator: in a process that another one started, which ncu started.
CHILD = ", in a child"
BY_NAME = [*MANGLED, "--kernel-name", PRODUCT]
OPTIONS = {
    "the first launch": [*FULL, "--launch-count", "1"],
    "by name": [*FULL, *BY_NAME, "--launch-count", "1"],
    "by name, each launch size": [*FULL, *BY_NAME, "--filter-mode", "per-launch-config", "--launch-count", "1"],
    "by name and invocation": [*FULL, *MANGLED, "--kernel-id", f"::{PRODUCT}:1", "--launch-count", "1"],
    "each kernel's first": [*FULL, *MANGLED, "--kernel-id", ":::1", "--launch-count", "9"],
    "each kernel's first" + CHILD: [*FULL, *MANGLED, "--kernel-id", ":::1", "--launch-count", "9"],
    "by name" + CHILD: [*FULL, *BY_NAME, "--launch-count", "1"],
    "each kernel's first, basic set": ["--set", "basic", *MANGLED, "--kernel-id", ":::1", "--launch-count", "9"],
    "each kernel's first, clocks and caches left alone": [
        *FULL, *MANGLED, "--kernel-id", ":::1", "--launch-count", "9", "--clock-control", "none", "--cache-control", "none",
    ],
    "by name, one section": ["--section", "LaunchStats", *BY_NAME, "--launch-count", "1"],
    "after a skip of all before it": [*FULL, "--launch-skip-before-match", "LAUNCHES", "--launch-count", "1"],
    OUTSIDE: [*FULL, "--launch-count", "1"],
}


def run(name, options, arguments):
    program = arguments.into / "watched.py"
    program.write_text(PROGRAM)
    argv = [arguments.ncu, "--config-file", "off", "--nvtx", "--target-processes", "all", *options]
    argv += ["--nvtx-include", "custom_kernel/product/" if name == OUTSIDE else "custom_kernel/"]
    argv += ["-f", "-o", str(arguments.into / "watched")]
    target = [sys.executable, str(program), str(arguments.launches)]
    # The shell has more to do afterwards, so it cannot become the program itself.
    argv += ["sh", "-c", '"$@"; true', "sh", *target] if name.endswith(CHILD) else target
    try:
        text = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=arguments.limit).stdout
        ended = "yes"
    except subprocess.TimeoutExpired as timeout:
        text, ended = timeout.stdout or b"", "no"
    text = text.decode(errors="replace")
    steps = re.findall(r"^watched (\d+) ([\d.]+)$", text, re.M)
    product = "yes" if re.search(r'Profiling "[^"]*(gemm|cublas|cutlass)', text) else "no"
    return steps[-1] if steps else None, text.count("==PROF== Profiling"), product, ended


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ncu", required=True)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--launches", type=int, default=8000)
    parser.add_argument("--limit", type=float, default=25)
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    print("| launches chosen | ms a launch | watched | launches profiled | the product | ended |\n| --- | --- | --- | --- | --- | --- |")
    for name, options in OPTIONS.items():
        options = [str(arguments.launches) if word == "LAUNCHES" else word for word in options]
        last, profiled, product, ended = run(name, options, arguments)
        cost = f"{1000 * float(last[1]) / int(last[0]):.2f} | {int(last[0]):,}" if last else "| 0"
        print(f"| {name} | {cost} | {profiled} | {product} | {ended} |", flush=True)


if __name__ == "__main__":
    main()
