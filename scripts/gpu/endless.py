"""A kernel that never ends: the verdict, how soon after its container the GPU is idle, and an honest job after it.

    endless.py --into FOLDER [--gpu N] [--limit SECS]

The GPU is idle when the driver (NVML) shows no process that computes, little memory in use, and no utilisation: that is asked
every few hundredths of a second, and the driver's own samples tell when it was last busy. The time counts from the end of the
container on, as the engine tells it. Exits with 1 when that takes more than two seconds or a verdict is not as expected.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

import client
import nvml

IDLE_SECS = 2.0
# Given up after this.
WATCHED_SECS = 20.0
# The driver keeps some for itself.
IDLE_MIB = 100

ENDLESS = "import torch\n\ndef custom_kernel(data):\n    torch.cuda._sleep(1 << 62)\n    return torch.geqrf(data)\n"
HONEST = "import torch\n\ndef custom_kernel(data):\n    return torch.geqrf(data)\n"


class Watch(threading.Thread):
    """Waits for the first container of a capture to end, and then for the GPU to be idle."""

    def __init__(self, gpu):
        super().__init__(daemon=True)
        self.gpu = nvml.Gpu(gpu)
        self.busy = None  # What the GPU did while the container ran.
        self.samples = []  # (seconds since the container's end, memory in MiB, processes)
        self.last_busy = None  # seconds since the container's end
        self.events = subprocess.Popen(
            ["docker", "events", "--filter", "type=container", "--filter", "label=ncu-service.job", "--format", "{{json .}}"],
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self):
        for line in self.events.stdout:
            event = json.loads(line)
            action = event.get("Action") or event.get("status") or ""
            if action == "start":
                threading.Thread(target=self.look_at_work, daemon=True).start()
            if action == "die":
                ended = event["timeNano"] / 1e9
                break
        else:
            return
        while not self.samples or (not self.is_idle() and self.samples[-1][0] < WATCHED_SECS):
            memory, processes = self.gpu.memory_mib(), self.gpu.processes()
            self.samples.append((time.time() - ended, memory, processes))
            time.sleep(0.02)
        # A sample tells of the time before it.
        time.sleep(1.5)
        self.last_busy = max((at - ended for at, percent in self.gpu.utilisation() if percent), default=None)

    def look_at_work(self):
        # In the run by then, whose kernel runs.
        time.sleep(15)
        percent = max((percent for _, percent in self.gpu.utilisation()), default=0)
        self.busy = f"{self.gpu.memory_mib()} MiB, {percent} %, {self.gpu.processes()} processes"

    def is_idle(self):
        _, memory, processes = self.samples[-1]
        return memory <= IDLE_MIB and processes == 0

    def idle_after(self):
        """Seconds from the container's end until nothing was left; None when that was not seen."""
        if not self.samples or not self.is_idle() or self.last_busy is None:
            return None
        return max(self.samples[-1][0], self.last_busy)

    def close(self):
        self.events.kill()
        self.events.wait()


def submit(name, source, leaderboard, arguments):
    file = arguments.into / name / "submission.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    request = client.Request(name, file, leaderboard)
    return next(client.run([request], arguments.into, arguments.limit))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--limit", type=float, default=540)
    arguments = parser.parse_args()
    watch = Watch(arguments.gpu)
    try:
        watch.start()
        ended = submit("endless", ENDLESS, "qr_brief", arguments)
        watch.join(WATCHED_SECS + 5)
    finally:
        watch.close()
    print(f"- Endless kernel: {ended.status} after {ended.seconds:.0f} s: {client.cell(ended.error)}")
    good = ended.status == "timed_out"
    if watch.busy:
        print(f"- While it ran the GPU showed {watch.busy}.")
    shown = watch.samples if len(watch.samples) <= 10 else [*watch.samples[:5], *watch.samples[-5:]]
    for seconds, memory, processes in shown:
        print(f"  - {seconds:.2f} s after the container's end: {memory} MiB, {processes} processes")
    idle = watch.idle_after()
    if idle is not None:
        print(f"- The driver's last sample with work in it ended {watch.last_busy:.2f} s after the container's end.")
        print(f"- The GPU was idle, with no process, {idle:.2f} s after the container's end.")
        good = good and idle <= IDLE_SECS
    else:
        print(f"- **The GPU was not seen idle** ({len(watch.samples)} samples).")
        good = False
    honest = submit("honest", HONEST, "qr_v2", arguments)
    print(f"- An honest job after it: {honest.status} after {honest.seconds:.0f} s {client.cell(honest.error)}\n")
    return 0 if good and honest.status == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
