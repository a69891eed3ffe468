"""What the modes of a capture hold, and what they cost: the runner on a bare host, with a folder for its root.

    modes.py --runner PATH --ncu PATH --problems FOLDER --into FOLDER --case 'PROBLEM INDEX MODE [LAUNCHES] [FILE] [warm=CALLS]'… [--gpus N…]

LAUNCHES is the launch count (10); `64-light` stands for 64 launches of which a report holds one section, to learn cheaply which
launches a deep window would hold. Prints a Markdown table: the share of the range's time that belongs to the kernels in the
report, and whether the kernel that takes most of it is there with the sections that tell how fast it is. What each run said
stays in FOLDER/<case>/out.
"""

import argparse
import collections
import concurrent.futures
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import time

import problems

FULL = ["--set", "full"]
LIGHT = ["--section", "LaunchStats"]
OPTIONS = "--nvtx --nvtx-include custom_kernel/ --target-processes all --import-source 1 --check-exit-code yes".split()
OPTIONS += "--graph-profiling node --clock-control base -f -o".split()
# Sections without which a kernel is not held as it should be.
NEEDED = {"GPU Speed Of Light Throughput", "Memory Workload Analysis"}
HEADER = (
    "| problem, shape | submission | mode | launches in the range | overview s | capture s | in all s | report MiB | launches held "
    "| kernels held | their share | coverage as told | heaviest kernel | its share | held in full |"
)


class Case:
    def __init__(self, text):
        self.problem, index, self.mode, *rest = text.split()
        self.warm_calls = int(rest.pop().removeprefix("warm=")) if rest and rest[-1].startswith("warm=") else 0
        self.index = int(index)
        launches = rest.pop(0) if rest and rest[0][0].isdigit() else "10"
        self.is_light = launches.endswith("-light")
        self.launches = int(launches.removesuffix("-light"))
        self.file = pathlib.Path(rest[0]) if rest else None
        self.label = f"{self.mode}, {launches}" if launches != "10" else self.mode
        if self.warm_calls:
            self.label += f", {self.warm_calls} warm calls"

    def name(self):
        return "-".join([self.problem, str(self.index), self.label.replace(", ", "-").replace(" ", "-"), self.file.stem if self.file else "starter"])


def prepare(case, arguments, gpu):
    """The folder that the runner takes for its root, and its environment."""
    root = arguments.into / case.name()
    shutil.rmtree(root, ignore_errors=True)
    for name in ("in", "out", "tmp", "bin"):
        (root / name).mkdir(parents=True)
    (root / "problems").symlink_to(arguments.problems)
    task = arguments.problems / "linalg" / case.problem
    shutil.copy(case.file or task / "submission.py", root / "in" / "submission.py")
    files = [{"name": "submission.py", "source": None}, {"name": "utils.py", "source": "pmpp_v2/utils.py"}]
    files += [{"name": f"{name}.py", "source": f"linalg/{case.problem}/{name}.py"} for name in ("task", "reference", "eval")]
    argv = [arguments.ncu, "--config-file", "off", "--rename-kernels", "off", *(LIGHT if case.is_light else FULL), *OPTIONS]
    request = {
        "task": "capture",
        "files": files,
        "main": "eval.py",
        "spec": problems.spec(task / "task.yml", case.index),
        "ncu": [*argv, f"{root}/out/profile/profile.ncu-rep"],
        "selection": {"mode": case.mode, "max_launches": case.launches},
        "warm_calls": case.warm_calls,
        "landlock": True,
        "warmup_timeout_secs": 120,
        "capture_timeout_secs": 200,
        "max_stream_bytes": 1 << 20,
    }
    (root / "in" / "request.json").write_text(json.dumps(request))
    environment = dict(os.environ)
    if gpu is not None:
        # The runner passes no such variable on.
        shim = root / "bin" / "python3"
        shim.write_text(f'#!/bin/sh\nCUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={gpu} exec {shutil.which("python3")} "$@"\n')
        shim.chmod(0o755)
        environment["PATH"] = f"{root}/bin:{environment['PATH']}"
    return root, environment


def measure(case, arguments, gpu):
    """One row of the table."""
    root, environment = prepare(case, arguments, gpu)
    started = time.monotonic()
    with open(root / "log", "w") as log:
        subprocess.run([arguments.runner, "--root", root], env=environment, stdout=log, stderr=log, timeout=360)
    seconds = time.monotonic() - started
    outcome = json.loads((root / "out" / "outcome.json").read_text())
    steps = {step["name"]: step for step in outcome["steps"]}
    shown = lambda name: f"{steps[name]['seconds']:.1f}{ending(steps[name])}"
    overview, choice = outcome["overview"] or {}, outcome["choice"] or {}
    told = "" if choice.get("coverage") is None else f"{100 * choice['coverage']:.1f} %"
    file = case.file.stem if case.file else "starter"
    row = [f"{case.problem} {case.index}", file, case.label, f"{overview.get('launches', 0):,}"]
    row += [shown("overview"), shown("capture"), f"{seconds:.0f}"] if "capture" in steps else ["", "", outcome["error"] or "?"]
    report = root / "out" / "profile" / "profile.ncu-rep"
    held, sections = report_kernels(arguments.ncu, report) if report.is_file() else ([], {})
    shares = time_shares(root / "out" / "launches.csv")
    heaviest = max(shares, key=shares.get, default="")
    share = sum(shares.get(kernel, 0) for kernel in set(held))
    row += [f"{report.stat().st_size / (1 << 20):.0f}" if held else "", str(len(held)), str(len(set(held))), f"{100 * share:.1f} %", told]
    whole = NEEDED <= sections.get(heaviest, set())
    verdict = "yes" if whole else "only its launch" if case.is_light and heaviest in held else "in part" if heaviest in held else "no"
    return [*row, f"`{heaviest[:60]}`", f"{100 * shares.get(heaviest, 0):.1f} %", verdict]


def ending(step):
    if step["timed_out"]:
        return " (ended at its limit)"
    return "" if step["exit_code"] == 0 else f" (exit {step['exit_code']})"


def report_kernels(ncu, report):
    """The mangled names of the launches, in order; and for each name the sections that hold a number in every launch."""
    argv = [ncu, "--config-file", "off", "--import", str(report), "--page", "details", "--csv", "--print-kernel-base", "mangled"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    names, sections = {}, collections.defaultdict(set)
    for row in csv.DictReader(io.StringIO(text[text.index('"ID"') :])):
        names[int(row["ID"])] = row["Kernel Name"]
        if is_number(row["Metric Value"]):
            sections[int(row["ID"])].add(row["Section Name"])
    of_kernel = {}
    for launch, name in names.items():
        of_kernel[name] = of_kernel.get(name, sections[launch]) & sections[launch]
    return [names[launch] for launch in sorted(names)], of_kernel


def is_number(text):
    try:
        return float(text.replace(",", "")) == float(text.replace(",", ""))
    except (ValueError, AttributeError):
        return False


def time_shares(path):
    """The share of each kernel, by its mangled name, from the overview's table."""
    shares = collections.Counter()
    if path.is_file():
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                shares[row["Mangled Name"]] += float(row["Share of Duration"])
    return shares


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("runner", "problems", "into"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--ncu", required=True)
    parser.add_argument("--case", type=Case, action="append", required=True)
    parser.add_argument("--gpus", nargs="*", default=[])
    arguments = parser.parse_args()
    waiting = collections.deque(arguments.case)
    print(HEADER + "\n" + "| --- " * HEADER.count("| ") + "|", flush=True)

    def work(gpu):
        while waiting:
            case = waiting.popleft()
            try:
                row = measure(case, arguments, gpu)
            except Exception as error:  # One run must not cost the others.
                row = [case.name(), f"{type(error).__name__}: {error}"[:200]]
            print("| " + " | ".join(row) + " |", flush=True)

    gpus = arguments.gpus or [None]
    with concurrent.futures.ThreadPoolExecutor(len(gpus)) as pool:
        list(pool.map(work, gpus))


if __name__ == "__main__":
    main()
