"""Six jobs of one shape for two workers on one GPU: all succeed, and no two captures overlap.

    turns.py --problems FOLDER --into FOLDER --logs FOLDER [--limit SECS]

When the capture's container of each job ran is read from its manifest. Prints a Markdown table; exits with 1 when a job failed,
two captures overlapped, or one worker did all the work.
"""

import argparse
import pathlib
import sys

import client

JOBS = 6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=pathlib.Path, required=True)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--logs", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=float, default=540)
    arguments = parser.parse_args()
    file = arguments.problems / "linalg" / "qr_v2" / "submission.py"
    requests = [client.Request(f"job {number}", file, "qr_v2") for number in range(1, JOBS + 1)]
    captures, failed = [], 0
    for ended in client.run(requests, arguments.into, arguments.limit):
        if ended.status != "succeeded":
            failed += 1
            print(f"- {ended.request.name}: {ended.status}, {client.cell(ended.error)}", flush=True)
            continue
        manifest = ended.manifest()
        started, over = (client.moment(manifest["container"][key]) for key in ("started_at", "ended_at"))
        captures.append((started, over, ended.request.name, client.worker_of(arguments.logs, manifest["job_id"])[0]))
    captures.sort()
    print("| capture of | worker | started s | ended s | after the one before s |\n| --- | --- | --- | --- | --- |")
    overlaps, latest = 0, None
    for started, over, name, worker in captures:
        since = lambda moment: f"{(moment - captures[0][0]).total_seconds():.2f}"
        gap = "" if latest is None else f"{(started - latest).total_seconds():.2f}"
        overlaps += latest is not None and started < latest
        latest = over if latest is None else max(latest, over)
        print(f"| {name} | {worker} | {since(started)} | {since(over)} | {gap} |")
    workers = {worker for *_, worker in captures}
    print(f"\n{len(captures)} of {JOBS} jobs succeeded, on {len(workers)} workers; {overlaps} captures overlapped.\n")
    return 0 if not failed and not overlaps and len(workers) == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
