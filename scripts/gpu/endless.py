"""A kernel that never ends: the verdict, how soon after its container the GPU is idle, and an honest job after it.

    endless.py --into FOLDER [--gpu N] [--limit SECS]

The GPU is idle when nvidia-smi shows no process that computes, no utilisation and little memory in use; it is asked every tenth
of a second from the end of the container on, as the engine tells it. Exits with 1 when that takes more than two seconds or a
verdict is not as expected.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

import client

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
        self.gpu = gpu
        self.busy = None  # What the GPU did while the container ran.
        self.samples = []  # (seconds since the container's end, memory in MiB, utilisation in %, processes)
        # Without a client of its own the driver may shut the GPU down between two questions, and then answers late.
        self.holder = subprocess.Popen(["nvidia-smi", "-l", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
            asked = time.time()
            self.samples.append((asked - ended, *self.ask()))
            time.sleep(max(0.0, 0.1 - (time.time() - asked)))

    def look_at_work(self):
        # In the capture by then, whose kernel runs.
        time.sleep(15)
        self.busy = self.ask()

    def ask(self):
        state = self.smi("--query-gpu=memory.used,utilization.gpu").split(",")
        processes = self.smi("--query-compute-apps=pid").split()
        number = lambda text: int(text) if text.strip().isdigit() else -1
        return number(state[0]), number(state[-1]), len([word for word in processes if word.isdigit()])

    def smi(self, query):
        argv = ["nvidia-smi", "-i", self.gpu, query, "--format=csv,noheader,nounits"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=20).stdout

    def is_idle(self):
        _, memory, utilisation, processes = self.samples[-1]
        return 0 <= memory <= IDLE_MIB and utilisation == 0 and processes == 0

    def close(self):
        for process in (self.events, self.holder):
            process.kill()
            process.wait()


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
    show = lambda memory, utilisation, processes: f"{memory} MiB, {utilisation} %, {processes} processes"
    if watch.busy:
        print(f"- While it ran the GPU showed {show(*watch.busy)}.")
    for seconds, *state in watch.samples[:10] if len(watch.samples) <= 10 else [*watch.samples[:5], *watch.samples[-5:]]:
        print(f"  - {seconds:.2f} s after the container's end: {show(*state)}")
    if watch.samples and watch.is_idle():
        seconds = watch.samples[-1][0]
        step = seconds / max(1, len(watch.samples) - 1)
        print(f"- The GPU was idle, with no process, {seconds:.2f} s after the container's end (asked every {step:.2f} s).")
        good = good and seconds <= IDLE_SECS
    else:
        print(f"- **The GPU was not seen idle** ({len(watch.samples)} samples).")
        good = False
    honest = submit("honest", HONEST, "qr_v2", arguments)
    print(f"- An honest job after it: {honest.status} after {honest.seconds:.0f} s {client.cell(honest.error)}\n")
    return 0 if good and honest.status == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
