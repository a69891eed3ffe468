"""GPU idle between the captures of queued jobs, by the times of their containers. See scripts/bench.d/gpu-gap."""

import argparse
import pathlib
import statistics
import sys

import result

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import client  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaderboard", required=True)
    parser.add_argument("--file", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--simulated", action="store_true")
    arguments = parser.parse_args()
    requests = [client.Request(f"job {number}", arguments.file, arguments.leaderboard) for number in range(arguments.jobs)]
    captures = []
    for ended in client.run(requests, arguments.into, 1200):
        if ended.status != "succeeded":
            sys.exit(f"error: {ended.request.name} ended as {ended.status}: {ended.error}")
        times = ended.manifest()["container"]
        captures.append((client.moment(times["started_at"]), client.moment(times["ended_at"])))
    captures.sort()
    gaps = [round((later[0] - earlier[1]).total_seconds(), 3) for earlier, later in zip(captures, captures[1:])]
    if min(gaps) < 0:
        sys.exit(f"error: two captures overlapped: {gaps}")
    goal = 0.3
    result.tell(
        "gpu-gap", max(gaps), goal, max(gaps) <= goal, unit="s", median=statistics.median(gaps), gaps=gaps,
        simulated=arguments.simulated,
    )


if __name__ == "__main__":
    main()
