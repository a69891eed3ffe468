"""Small filesystems of the run's own, that can be filled and made read-only without harm to the machine."""

import contextlib
import os
import subprocess
import time

from processes import Trouble, run


class SmallDisk:
    """A folder on a tmpfs."""

    def __init__(self, path, mebibytes):
        self.path, self.filler = path, os.path.join(path, ".filler")
        os.makedirs(path)
        run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=755", "ncu-chaos", path)

    @contextlib.contextmanager
    def full(self):
        """Without a byte to spare."""
        try:
            with open(self.filler, "wb", buffering=0) as file:
                for size in (1 << 20, 4096):
                    with contextlib.suppress(OSError):
                        while file.write(bytes(size)) == size:
                            pass
            yield
        finally:
            os.remove(self.filler)

    @contextlib.contextmanager
    def read_only(self):
        deadline = time.monotonic() + 20
        # Refused while a file is open for writing.
        while subprocess.run(["mount", "-o", "remount,ro", self.path], capture_output=True).returncode != 0:
            if time.monotonic() > deadline:
                raise Trouble(f"{self.path} cannot be made read-only")
            time.sleep(0.02)
        try:
            yield
        finally:
            run("mount", "-o", "remount,rw", self.path)


def unmount_beneath(folder):
    """Everything mounted there, the engine's leftovers included, the innermost first."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        points = [line.split(" ")[1] for line in file]
    for point in reversed(points):
        if point.startswith(folder + "/"):
            subprocess.run(["umount", "--lazy", point], capture_output=True)
