"""A large report through a worker: memory and time. See scripts/bench.d/big-report."""

import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
import urllib.request

import result

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import client  # noqa: E402

PHASES = ("collect", "take_report", "zip")
REPORT = "profile/profile.ncu-rep"
MEMORY_GOAL_MIB = 64


def memory_mib(worker, field):
    status = pathlib.Path(f"/proc/{worker}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB$", status, re.M)[1]) / 1024


def cpu_secs(worker):
    fields = pathlib.Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def phase_secs(metrics):
    """What the worker has spent in the phases that are measured."""
    text = urllib.request.urlopen(metrics, timeout=30).read().decode()
    found = re.findall(r"^ncu_service_shape_phase_duration_seconds_sum\{(.*)\} (\S+)$", text, re.M)
    return sum(float(value) for labels, value in found if any(f'phase="{name}"' in labels for name in PHASES))


def profile(arguments, name):
    request = client.Request(name, arguments.file, "vectoradd_sample")
    (ended,) = client.run([request], arguments.into, 1200)
    if ended.status != "succeeded":
        sys.exit(f"error: the job ended as {ended.status}: {ended.error}")
    return ended.archive


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", type=int, required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--file", type=pathlib.Path, required=True)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    time.sleep(3)
    idle = memory_mib(arguments.worker, "VmRSS")
    cpu_before = cpu_secs(arguments.worker)
    archive = profile(arguments, "big")
    growth = memory_mib(arguments.worker, "VmHWM") - idle
    cpu, seconds = cpu_secs(arguments.worker) - cpu_before, phase_secs(arguments.metrics)

    files = arguments.into / "files"
    subprocess.run(["unzip", "-q", str(archive), "-d", str(files)], check=True)
    spent = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # noqa: E731
    began, cpu_began = time.monotonic(), spent()
    subprocess.run(["zip", "-q", "-6", "-r", str(arguments.into / "zip-6.zip"), "."], cwd=files, check=True)
    zip_seconds, zip_cpu = time.monotonic() - began, spent() - cpu_began
    value, goal = round(seconds / zip_seconds, 3), 0.8
    result.tell(
        "big-report", value, goal, value <= goal and growth <= MEMORY_GOAL_MIB,
        memory_growth_mib=round(growth, 1), memory_goal_mib=MEMORY_GOAL_MIB,
        report_mib=(files / REPORT).stat().st_size >> 20,
        seconds=round(seconds, 2), zip_6_seconds=round(zip_seconds, 2),
        # The worker's covers all of the job, its storing and checksum included.
        worker_cpu_seconds=round(cpu, 2), zip_6_cpu_seconds=round(zip_cpu, 2),
        archive_mib=round(archive.stat().st_size / 2**20, 1),
        zip_6_archive_mib=round((arguments.into / "zip-6.zip").stat().st_size / 2**20, 1),
    )


if __name__ == "__main__":
    main()
