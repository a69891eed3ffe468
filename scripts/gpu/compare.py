"""Compares archives of the service with bare runs of ncu: the archive's own command line, on this host, without the service.

    compare.py --ncu PATH --problems FOLDER [--gpus N…] [--logs FOLDER] [--limit SECS] FOLDER-WITH-ZIPS…

A launch is its kernel, grid and block; compared are their order, the executed instructions and the bytes of device memory.
Where a counter differs by more than 0.1 %, a second bare run tells how far bare runs differ, and a third where that does not
explain it. Prints a Markdown table; exits with 1 when launches differ, or instructions by more than 0.1 % and by more than
three times as much as bare runs. Device memory that is as far apart is marked and no more. Bare runs take place on the GPU
that the service used.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import itertools
import json
import pathlib
import sys
import tempfile
import time
import zipfile

import client
import reports

REQUIRED = {
    "ncu-details.txt",
    "ncu-details.csv",
    "profile/profile.ncu-rep",
    "benchmark.json",
    "command.json",
    "manifest.json",
    "popcorn.log",
    "stdout.txt",
    "stderr.txt",
}
# Relative differences beyond this need an explanation,
CLOSE = 0.001
# which is that bare runs differ by a third as much.
SPREAD = 3
# At most, of one archive.
BARE_RUNS = 3
HEADER = (
    "| leaderboard, shape | file | launches | same order | instructions: most | bare runs | device memory: most | in all "
    "| bare runs: most | in all | overview s | capture s | bare s | zip MB |"
)


@dataclasses.dataclass
class Compared:
    """An archive and what is known of it."""

    archive: pathlib.Path
    manifest: dict
    file: pathlib.Path
    gpu: str | None
    ours: list
    # The launches of each bare run.
    bare: list = dataclasses.field(default_factory=list)
    bare_seconds: float = 0.0
    trouble: str = ""

    def same_order(self):
        return [launch.identity() for launch in self.ours] == [launch.identity() for launch in self.bare[0]]

    def differences(self, counter, difference=reports.largest_difference):
        """That to the first bare run, and the largest between two bare runs, if there were two."""
        between = [difference(a, b, counter) for a, b in itertools.combinations(self.bare, 2)]
        return difference(self.ours, self.bare[0], counter), max((one for one in between if one is not None), default=None)

    def beyond(self, counter):
        """Whether a counter is further off than bare runs explain, as far as there were two."""
        ours, bare = self.differences(counter)
        return ours is not None and ours > CLOSE and ours > SPREAD * (bare or 0)

    def needs_another_run(self):
        return bool(self.bare) and self.same_order() and any(map(self.beyond, reports.COUNTERS))

    def is_good(self):
        whole = len(self.ours) == self.manifest["captured_launches"] and self.ours
        counted = whole and all(launch.instructions is not None for launch in self.ours)
        return bool(counted and self.bare and self.same_order() and not self.beyond("instructions"))


def load(archive, arguments):
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive) as zipped:
        missing = REQUIRED - set(zipped.namelist())
        if missing:
            sys.exit(f"{archive}: {sorted(missing)} are missing")
        manifest = json.loads(zipped.read("manifest.json"))
        if manifest["simulated"]:
            sys.exit(f"{archive} is simulated")
        report = zipped.extract("profile/profile.ncu-rep", folder)
        ours = reports.launches(arguments.ncu, report)
    file = reports.source_file(arguments.problems, manifest["submission"]["sha256"])
    gpu = client.worker_of(arguments.logs, manifest["job_id"])[1] if arguments.logs else None
    return Compared(archive, manifest, file, gpu, ours)


def bare_runs(items, arguments):
    """A bare run of each, then two more of those that need it; one at a time on each GPU."""
    deadline = time.monotonic() + arguments.limit
    gpus = list(dict.fromkeys(arguments.gpus)) or [None]
    queues = {gpu: collections.deque() for gpu in gpus}
    for number, item in enumerate(items):
        queues[item.gpu if item.gpu in queues else gpus[number % len(gpus)]].append(item)

    def work(gpu):
        # What further runs would tell is worth less than the first.
        for turn in range(BARE_RUNS):
            for item in queues[gpu]:
                if turn == 0 or item.needs_another_run():
                    one_run(item, gpu)

    def one_run(item, gpu):
        started = time.monotonic()
        try:
            item.bare.append(reports.bare(arguments.ncu, item.manifest, arguments.problems, item.file, gpu, deadline - started))
            item.bare_seconds = item.bare_seconds or time.monotonic() - started
        except reports.Failed as error:
            item.trouble = str(error)
            print(f"{item.archive}: {error}", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(len(gpus)) as pool:
        for _ in pool.map(work, gpus):
            pass


def percent(difference):
    if difference is None:
        return "?"
    return "0" if difference == 0 else f"{100 * difference:.2g} %"


def row(item):
    seconds = {step["name"]: step["seconds"] for step in item.manifest["steps"]}
    shape = item.archive.name.removeprefix("profile.").removesuffix(".zip").split("-seed-")[0]
    head = [f"{item.manifest['leaderboard']} {shape}", item.file.stem, str(len(item.ours))]
    megabytes = item.archive.stat().st_size / 1e6
    tail = [f"{number:.1f}" for number in (seconds["overview"], seconds["capture"], item.bare_seconds, megabytes)]
    if not item.bare:
        return [*head, f"not compared: {client.cell(item.trouble, 80)}", *[""] * 6, *tail]
    if not item.same_order():
        return [*head, f"NO ({len(item.bare[0])} bare)", *[""] * 6, *tail]
    order = "yes" if len(item.ours) == item.manifest["captured_launches"] else "yes, but not all"
    explained = len(item.bare) > 1
    instructions, between = item.differences("instructions")
    cells = [percent(instructions) + (" **NO**" if item.beyond("instructions") else ""), percent(between) if explained else missing(item)]
    dram, between = item.differences("dram")
    whole, whole_between = item.differences("dram", reports.whole_difference)
    cells += [percent(dram) + (" **beyond**" if item.beyond("dram") and explained else ""), percent(whole)]
    cells += [percent(between), percent(whole_between)] if explained else [missing(item), ""]
    return [*head, order, *cells, *tail]


def missing(item):
    """Why there is only one bare run."""
    return "not run" if item.needs_another_run() else "not needed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ncu", required=True)
    parser.add_argument("--problems", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", nargs="*", default=[])
    parser.add_argument("--logs", type=pathlib.Path)
    parser.add_argument("--limit", type=float, default=540)
    parser.add_argument("folders", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    archives = sorted(path for folder in arguments.folders for path in folder.glob("*.zip"))
    if not archives:
        sys.exit("there is no archive to compare")
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        items = list(pool.map(lambda archive: load(archive, arguments), archives))
    bare_runs(items, arguments)
    print(HEADER + "\n" + "| --- " * HEADER.count("| ") + "|")
    for item in items:
        print("| " + " | ".join(row(item)) + " |")
    absent = sorted({item.manifest["leaderboard"] for item in items if all(launch.dram is None for launch in item.ours)})
    if absent:
        print(f"\n**No counter of device memory's bytes is in the reports of {', '.join(absent)}.**")
    manifest = items[-1].manifest
    versions = {"ncu": manifest["ncu_version"], "landlock": manifest["landlock"], **manifest["versions"]}
    print("\nVersions: " + ", ".join(f"{name} {value}" for name, value in versions.items()))
    print(f"\nBytes of device memory are {reports.dram_columns_used()}. The bare runs took {time.monotonic() - started:.0f} s.\n")
    return 0 if all(item.is_good() for item in items) else 1


if __name__ == "__main__":
    sys.exit(main())
