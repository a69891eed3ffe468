"""Submits probe_submission.py and checks that every attempt was refused while its kernel was captured.

    probe.py --into FOLDER [--limit SECS]

Prints a Markdown table; exits with 1 when an attempt was not refused as expected, Landlock was not in force as a whole, or
nothing was captured.
"""

import argparse
import os
import pathlib
import socket
import sys

import client
import probe_submission

SUBMISSION = pathlib.Path(probe_submission.__file__)


def attempts_in(stdout):
    """What the capture printed. The overview before it has printed the same attempts, so the last ones count."""
    rows = {}
    for line in stdout.splitlines():
        # The profiler's progress can stand before it on the same line.
        fields = line[line.find("probe\t") :].split("\t")
        if len(fields) == 5:
            rows[fields[1]] = tuple(fields[2:])
    return rows


def grouped(rows):
    """The names of the attempts that ended alike."""
    groups = {}
    for name, row in rows.items():
        groups.setdefault(row, []).append(name)
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=float, default=540)
    arguments = parser.parse_args()
    # So that a refusal is none for want of a listener. On the port the API itself listens.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(probe_submission.HOST_ABSTRACT)
        listener.listen()
        ended = next(client.run([client.Request("probe", SUBMISSION, "qr_v2")], arguments.into, arguments.limit))
    if ended.archive is None:
        print(f"The probe has no archive: {ended.status}, {client.cell(ended.error)}\n")
        return 1
    rows = attempts_in(ended.read("stdout.txt"))
    print("| attempts | answer | as expected |\n| --- | --- | --- |")
    for (as_expected, seen, expected), names in grouped(rows).items():
        verdict = "yes" if as_expected == "yes" else f"NO, but `{client.cell(expected)}`"
        print(f"| {client.cell(', '.join(names), 2000)} | {client.cell(seen, 80)} | {verdict} |")
    bad = [name for name, (as_expected, *_) in rows.items() if as_expected != "yes"]
    # A worker that is root runs containers as nobody.
    if os.getuid() == 0 and "user" in rows and rows["user"][1] != "65534:65534":
        bad.append("user")
    # Names alone: some of what is expected is looked up inside.
    missing = [name for name, *_ in probe_submission.attempts() if name not in rows]
    manifest = ended.manifest()
    captured = "geqr2" in ended.read("ncu-details.txt")
    print(f"\n{len(rows) - len(bad)} of {len(rows)} attempts ended as they should.", f"Not so: {', '.join(bad)}." if bad else "", end="")
    print(f" Not tried: {', '.join(missing)}." if missing else "")
    print(f"Meanwhile {manifest['captured_launches']} launches were captured (geqrf {'among' if captured else 'NOT among'} them)", end="")
    print(f" with `landlock: {manifest['landlock']}`; the job {ended.status}. {client.cell(ended.error)}\n")
    good = not bad and not missing and captured and manifest["landlock"] == "full" and ended.status == "succeeded"
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
