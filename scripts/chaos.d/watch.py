"""When each capture's container lived: read from the engine's own files and from the kernel, so that it is known while the
engine is stopped, too.

The end is the last time that the container's first process was seen, so two that are said to overlap did overlap.
"""

import contextlib
import json
import os
import threading
import time

LOOK_EVERY_SECS = 0.05


class Watch:
    def __init__(self, folder):
        self.folder = folder
        # Of each container: its name, and the first and the last time that its process was seen.
        self.seen = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def end(self):
        self._stop.set()
        self._thread.join()

    def _look_on(self):
        while not self._stop.wait(LOOK_EVERY_SECS):
            with contextlib.suppress(FileNotFoundError):
                for identity in os.listdir(self.folder):
                    # It may go, or be half written, in this moment.
                    with contextlib.suppress(OSError, ValueError, KeyError):
                        self._look(identity)

    def _look(self, identity):
        known = self.seen.get(identity)
        if known is None or not known["pid"]:
            with open(f"{self.folder}/{identity}/config.v2.json", encoding="utf-8") as file:
                found = json.load(file)
            known = {"name": found["Name"].lstrip("/"), "pid": found["State"]["Pid"], "first": None, "last": None}
            self.seen[identity] = known
        if known["pid"] and _belongs(known["pid"], identity):
            now = time.time()
            known["first"] = known["first"] or now
            known["last"] = now

    def captures(self):
        """First and last time that each was seen, and its name."""
        return sorted(
            (known["first"], known["last"], known["name"]) for known in list(self.seen.values())
            if known["first"] and known["name"].endswith("-capture")
        )

    def overlapping(self):
        """Pairs of captures that ran at the same time: there is one GPU."""
        captures = self.captures()
        return [
            (first[2], second[2]) for position, first in enumerate(captures) for second in captures[position + 1:]
            if second[0] < first[1]
        ]


def _belongs(pid, identity):
    """Whether the process is of this container; its number may be another's by now."""
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
        return identity in file.read()
