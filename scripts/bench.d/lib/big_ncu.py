#!/usr/bin/env python3
"""The stand-in ncu with large reports: what it writes is its own report, padding, and the length of the former."""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile

STANDIN = "/usr/local/bin/ncu"
HERE = pathlib.Path(__file__).resolve().parent


def main(argv):
    if "--import" in argv:
        place = argv.index("--import") + 1
        with open(argv[place], "rb") as report, tempfile.NamedTemporaryFile(suffix=".ncu-rep") as small:
            report.seek(-8, os.SEEK_END)
            (length,) = struct.unpack("<Q", report.read())
            report.seek(0)
            small.write(report.read(length))
            small.flush()
            return subprocess.run([STANDIN, *argv[:place], small.name, *argv[place + 1 :]], check=False).returncode
    # close_fds: the evaluator inherits a descriptor of our caller's.
    code = subprocess.run([STANDIN, *argv], check=False, close_fds=False).returncode
    path = argv[argv.index("-o") + 1] if "-o" in argv else None
    if code == 0 and path and os.path.exists(path):
        sys.path.insert(0, str(HERE))
        sys.dont_write_bytecode = True
        import report

        length = os.path.getsize(path)
        report.write(path, int((HERE / "size-mib").read_text()) << 20)
        with open(path, "ab") as file:
            file.write(struct.pack("<Q", length))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
