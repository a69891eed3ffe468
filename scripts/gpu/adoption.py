"""A worker is killed in mid-capture: the next one delivers the report of the same container.

    adoption.py --worker PATH --problems FOLDER --into FOLDER [--gpus ACCESS] [--limit SECS]

Starts the workers itself, with the service's settings from the environment. Prints what was seen; exits with 1 when the job was
captured twice, or the report is not that of the container that the first worker had started.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import client

# Well inside the capture: the overview before it takes less.
CAPTURED_SECS = 14


def worker(arguments, name):
    environment = dict(os.environ, **({"NCU_SERVICE_GPUS": arguments.gpus} if arguments.gpus else {}))
    log = open(arguments.into / f"{name}.log", "w")
    return subprocess.Popen([arguments.worker, "run"], env=environment, stdout=log, stderr=log)



class Captures(threading.Thread):
    """Every start and end of a capture's container, as the engine tells it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []  # (action, container, time)
        self.events = subprocess.Popen(
            ["docker", "events", "--filter", "label=ncu-service.role=capture", "--format", "{{json .}}"],
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self):
        for line in self.events.stdout:
            event = json.loads(line)
            if event.get("Action") in ("start", "die"):
                self.seen.append((event["Action"], event["Actor"]["ID"], event["timeNano"] / 1e9))

    def of(self, action):
        return [(container, at) for seen, container, at in self.seen if seen == action]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--problems", type=pathlib.Path, required=True)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--gpus")
    parser.add_argument("--limit", type=float, default=200)
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    captures = Captures()
    captures.start()
    workers = [worker(arguments, "first")]
    killed_at = []

    def kill():
        while not captures.of("start"):
            time.sleep(0.1)
        time.sleep(CAPTURED_SECS)
        workers[0].kill()
        workers[0].wait()
        killed_at.append(time.time())
        workers.append(worker(arguments, "next"))

    threading.Thread(target=kill, daemon=True).start()
    file = arguments.problems / "linalg" / "qr_v2" / "submission.py"
    try:
        ended = next(client.run([client.Request("adopted", file, "qr_v2")], arguments.into, arguments.limit))
    finally:
        for process in workers:
            process.terminate()
            process.wait()
        captures.events.kill()
    started, died = captures.of("start"), captures.of("die")
    print(f"- The job: {ended.status} after {ended.seconds:.0f} s {client.cell(ended.error)}")
    print(f"- Containers of captures that the engine started: {len(started)}")
    if not (ended.archive and killed_at and len(started) == 1 and died):
        return 1
    began = client.moment(ended.manifest()["container"]["started_at"]).timestamp()
    print(f"- The worker was killed {killed_at[0] - started[0][1]:.1f} s after its container's start, and {died[0][1] - killed_at[0]:.1f} s before its end.")
    print(f"- The report's container started {began - started[0][1]:+.2f} s from the engine's own start of the one container.\n")
    same = abs(began - started[0][1]) < 1
    return 0 if ended.status == "succeeded" and same and started[0][1] < killed_at[0] < died[0][1] else 1


if __name__ == "__main__":
    sys.exit(main())
