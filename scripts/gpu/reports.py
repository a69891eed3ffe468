"""Reports of ncu: what is in one, and how one is made without the service."""

import csv
import dataclasses
import hashlib
import io
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

# What is compared of a launch.
COUNTERS = ("instructions", "dram")
INSTRUCTIONS = "smsp__inst_executed.sum"
# The first of these that a report holds: columns to add, and bytes of one.
DRAM = [
    (("dram__bytes_read.sum", "dram__bytes_write.sum"), 1),
    (("dram__bytes.sum",), 1),
    (("dram__sectors_read.sum", "dram__sectors_write.sum"), 32),
]
# A bare run that takes longer hangs.
BARE_SECS = 180
_dram_used = set()


class Failed(Exception):
    """A bare run that gave no report."""


@dataclasses.dataclass
class Launch:
    kernel: str
    grid: str
    block: str
    instructions: float | None
    dram: float | None

    def identity(self):
        return self.kernel, self.grid, self.block


def launches(ncu, report):
    """The launches of a report, in order."""
    argv = [ncu, "--config-file", "off", "--import", str(report), "--page", "raw", "--csv", "--print-units", "base"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    rows = csv.DictReader(io.StringIO(text[text.index('"ID"') :]))
    columns = next(((names, scale) for names, scale in DRAM if set(names) <= set(rows.fieldnames)), None)
    _dram_used.add(" + ".join(columns[0]) if columns else "absent: of dram there is only " + _some_dram(rows.fieldnames))
    # The row without an id holds the units.
    return [_launch(row, columns) for row in rows if row["ID"]]


def _some_dram(names):
    return ", ".join(name for name in names if name.startswith("dram__"))[:400] or "nothing"


def dram_columns_used():
    return "; ".join(sorted(_dram_used))


def _launch(row, columns):
    dram = None
    if columns:
        parts = [_number(row[name]) for name in columns[0]]
        dram = None if None in parts else sum(parts) * columns[1]
    return Launch(row["Kernel Name"], row["Grid Size"], row["Block Size"], _number(row.get(INSTRUCTIONS)), dram)


def _number(text):
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _difference(a, b):
    """Relative to the larger; None where one is unknown."""
    if a is None or b is None or a != a or b != b:
        return None
    return abs(a - b) / max(a, b) if max(a, b) else 0.0


def largest_difference(ours, theirs, counter):
    """The largest difference of two launches that belong together; None where none can be told."""
    pairs = [_difference(getattr(a, counter), getattr(b, counter)) for a, b in zip(ours, theirs)]
    return max((difference for difference in pairs if difference is not None), default=None)


def whole_difference(ours, theirs, counter):
    """The difference of the sums over all launches."""
    total = lambda launches: sum(getattr(launch, counter) or 0 for launch in launches)
    return _difference(total(ours), total(theirs))


def source_file(problems, sha256):
    """The submission of that hash, among the problems' files."""
    for path in sorted(problems.rglob("*.py")):
        if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return path
    raise SystemExit(f"no file of {problems} has the hash {sha256}")


def bare(ncu, manifest, problems, file, gpu, seconds_left):
    """The launches of a report that the archive's command line makes on this host, in a folder as the runner lays it out."""
    # A run that cannot end is not begun.
    if seconds_left < 30:
        raise Failed("no time was left")
    with tempfile.TemporaryDirectory() as folder:
        work, report, log = (pathlib.Path(folder, name) for name in ("work", "bare.ncu-rep", "log"))
        for name in ("work", "home", "tmp"):
            pathlib.Path(folder, name).mkdir()
        for source in [*(problems / manifest["problem_dir"]).iterdir(), problems / "pmpp_v2" / "utils.py"]:
            if source.is_file():
                shutil.copy(source, work / source.name)
        shutil.copy(file, work / "submission.py")
        (work / "cases.txt").write_text(manifest["spec"] + "\n")
        capture = next(step for step in manifest["steps"] if step["name"] == "capture")
        argv = [ncu, *capture["argv"][1:]]
        argv[argv.index("-o") + 1] = str(report)
        # ncu lets only one run at a time profile for each TMPDIR, and looks into HOME for settings.
        environment = dict(
            os.environ, HOME=f"{folder}/home", TMPDIR=f"{folder}/tmp", NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT="1"
        )
        if gpu is not None:
            environment.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=gpu)
        code = _run(argv, work, environment, log, min(BARE_SECS, seconds_left))
        if code != 0 or not report.is_file():
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing was printed"]
            raise Failed(f"the bare run {'ended with ' + str(code) if code is not None else 'did not end'}: {last[0]}")
        return launches(ncu, report)


def _run(argv, work, environment, log, seconds):
    """The exit code, or None where it took too long and was killed with all that it started."""
    reading, writing = os.pipe()
    environment = dict(environment, POPCORN_FD=str(writing), POPCORN_NCU="1")
    try:
        with open(log, "w") as output:
            process = subprocess.Popen(
                argv, cwd=work, env=environment, pass_fds=[writing], stdout=output, stderr=output, start_new_session=True
            )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
    finally:
        os.close(writing)
        os.close(reading)
