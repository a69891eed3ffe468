"""Submits the cases of cases.py, all at once, and checks what their users read.

    verdicts.py --into FOLDER [--limit SECS] [--only NAME…]

Each is for shape 0 of qr_v2. Prints a Markdown table; exits with 1 when a verdict is not as expected.
"""

import argparse
import hashlib
import pathlib
import re
import sys

import client
from cases import CASES


def launches(ended):
    """[(kernel, stream)] of the report."""
    return re.findall(r"^  (\S.*), Context \d+, Stream (\d+)", ended.read("ncu-details.txt"), re.M)


def mistakes(case, ended):
    """Why a verdict is not as expected; empty when it is."""
    found = []
    if ended.status != case.state:
        found.append(f"{case.state} was expected")
    if case.error and not re.search(case.error, ended.error):
        found.append(f"`{case.error}` is not in the error")
    if not case.error and ended.error:
        found.append("no error was expected")
    if case.state == "succeeded" and not ended.archive:
        found.append("there is no archive")
    if ended.archive:
        seen = launches(ended)
        holds = lambda words: any(re.search(words, kernel) for kernel, _ in seen)
        if case.captured and not holds(case.captured):
            found.append(f"`{case.captured}` was not captured")
        if case.absent and holds(case.absent):
            found.append(f"`{case.absent}` was captured")
        if len({stream for _, stream in seen}) < case.streams:
            found.append(f"launches of fewer than {case.streams} streams were captured")
        if ended.manifest()["submission"]["sha256"] != hashlib.sha256(ended.request.file.read_bytes()).hexdigest():
            found.append("the source did not arrive as it was")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=float, default=540)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    unknown = set(arguments.only) - set(CASES)
    if unknown:
        sys.exit(f"no case is called {sorted(unknown)}; there are {', '.join(CASES)}")
    requests = []
    for name in arguments.only:
        file = arguments.into / client.slug(name) / "submission.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CASES[name].source, encoding="utf-8")
        requests.append(client.Request(name, file, "qr_v2", 0, CASES[name].fields))
    bad = []
    print("| case | state | s | what the user reads | as expected |\n| --- | --- | --- | --- | --- |", flush=True)
    for ended in client.run(requests, arguments.into, arguments.limit):
        name = ended.request.name
        wrong = mistakes(CASES[name], ended)
        bad += [name] if wrong else []
        said = ended.error
        if not said and ended.archive:
            said = "captured: " + ", ".join(kernel[:60] for kernel, _ in launches(ended)[-2:])
        expected = "NO: " + client.cell("; ".join(wrong)) if wrong else "yes"
        print(f"| {name} | {ended.status} | {ended.seconds:.0f} | {client.cell(said, 240)} | {expected} |", flush=True)
    others = f" Not so: {', '.join(bad)}." if bad else ""
    print(f"\n{len(requests) - len(bad)} of {len(requests)} verdicts are as expected.{others}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
