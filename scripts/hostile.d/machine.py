"""What a run takes of the machine and what it leaves there."""

import contextlib
import json
import os
import pathlib
import subprocess
import threading
import time

from service import EXPORT, MIB, OUTPUT, WORKERS

LOOK_EVERY_SECS = 0.5
# Sweeps are half a minute apart, and one can be in vain.
LEFTOVERS_SECS = 75
# What each program may hold in memory at its peak, and by how much it may have grown from its first jobs to the end.
PEAK_BYTES, GROWTH_BYTES = 128 * MIB, 32 * MIB
# The jobs folder: each worker has one container that writes, whose folder is measured a few times a second, and one report beside it.
DISK_BYTES = WORKERS * (4 * OUTPUT + 2 * EXPORT) + 32 * MIB
LOG_BYTES = 32 * MIB


class Machine:
    def __init__(self, service):
        self.service = service
        self.mounts = mounts()
        self.seen, self.peak_disk, self.first, self.last = set(), 0, {}, {}
        label = f"label=ncu-service.worker-scope={service.scope}"
        self._events = subprocess.Popen(
            ["docker", "events", "--filter", "type=container", "--filter", "event=create", "--filter", label, "--format", "{{json .}}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._note_containers, daemon=True).start()
        self._stop = threading.Event()
        self._looking = threading.Thread(target=self._look_on, daemon=True)
        self._looking.start()

    def _note_containers(self):
        for line in self._events.stdout:
            self.seen.add(json.loads(line)["Actor"]["ID"])

    def _look_on(self):
        while not self._stop.wait(LOOK_EVERY_SECS):
            self.peak_disk = max(self.peak_disk, allocated(self.service.jobs_dir))

    def warm(self):
        """From here on growth counts."""
        self.first = {program.name: memory(program, "VmRSS") for program in self.service.programs}

    def report(self):
        """(lines for a reader, what is out of bounds), once the service had its time to clean up."""
        service = self.service
        deadline = time.monotonic() + LEFTOVERS_SECS
        while (service.containers() or service.run_folders()) and time.monotonic() < deadline:
            time.sleep(1)
        self._stop.set()
        self._looking.join()
        lines, wrong = [], []

        def bounded(what, value, limit, unit="MiB"):
            shown = (lambda number: f"{number / MIB:.1f} MiB") if unit == "MiB" else str
            lines.append(f"{what}: {shown(value)} (at most {shown(limit)})")
            if value > limit:
                wrong.append(lines[-1])

        left = service.containers()
        bounded(f"containers left, of {len(self.seen)}", len(left), 0, "")
        bounded("folders of attempts left", len(service.run_folders()), 0, "")
        bounded("processes of those containers left", len(processes_of(self.seen)), 0, "")
        bounded("mounts left", len(self._mounts_left()), 0, "")
        bounded("jobs folder at its fullest", self.peak_disk, DISK_BYTES)
        bounded("jobs folder at the end", allocated(service.jobs_dir), MIB)
        published = service.rows("SELECT coalesce(sum(artifact_bytes), 0)::bigint AS bytes FROM runs WHERE artifact_path IS NOT NULL")[0][
            "bytes"
        ]
        bounded("archives beside those that jobs name", max(0, allocated(service.artifacts, apparent=True) - published), MIB)
        bounded("logs", allocated(service.logs, apparent=True), LOG_BYTES)
        for program in service.programs:
            bounded(f"memory of {program.name} at its peak", memory(program, "VmHWM"), PEAK_BYTES)
            if before := self.first.get(program.name):
                bounded(f"memory that {program.name} gained", max(0, memory(program, "VmRSS") - before), GROWTH_BYTES)
        for what, place in secrets_in_logs(service):
            wrong.append(f"{what} in {place}")
        lines.append(f"secrets in logs: {sum(' in ' in text and text.endswith('.log') for text in wrong)} (at most 0)")
        return lines, wrong

    def _mounts_left(self):
        """Others may use the engine meanwhile: a container's mounts count when it was one of ours."""
        return [
            point
            for point in mounts() - self.mounts
            if point.startswith(self.service.work) or any(identity in point for identity in self.seen)
        ]

    def end(self):
        self._stop.set()
        self._events.kill()
        self._events.wait()


def mounts():
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return {line.split(" ")[1] for line in file}


def memory(program, field):
    """In bytes; 0 when it has ended."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{program.child.pid}/status", encoding="utf-8") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(field + ":")), 0)
    return 0


def allocated(folder, apparent=False):
    """Bytes on the disk; holes count only as `apparent` ones. What goes meanwhile does not count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(place, name))
                total += found.st_size if apparent else found.st_blocks * 512
    return total


def processes_of(containers):
    """Processes whose control group names one of the containers."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            groups = (process / "cgroup").read_text()
            if any(identity in groups for identity in containers):
                found.append(process.name)
    return found


def secrets_in_logs(service):
    for log in pathlib.Path(service.logs).iterdir():
        content = log.read_bytes()
        yield from ((what, log.name) for what, secret in service.secrets.items() if secret.encode() in content)
