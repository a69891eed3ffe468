"""Profiles the shapes that compare.py compares with bare runs of ncu: each its own job, all at once.

    fidelity.py --problems FOLDER --into FOLDER [--limit SECS] [--only 'LEADERBOARD INDEX [FILE]'…]

Prints what went wrong, and how long it all took; exits with 1 when a shape was not profiled.
"""

import argparse
import pathlib
import sys
import time

import client

STARTER = "submission.py"
# (leaderboard, folder, shape, file). The window of eigh holds 64 launches by default; ten keep its time within bounds.
SHAPES = [
    # The heavy ones first: nothing waits for them at the end.
    ("qr_v2", "qr_v2", 3, STARTER),
    ("eigh", "eigh_py", 4, STARTER),
    ("cholesky", "cholesky_py", 5, STARTER),
    ("qr_v2", "qr_v2", 8, STARTER),
    ("qr", "qr_py", 0, STARTER),
    ("qr", "qr_py", 2, STARTER),
    ("qr_v2", "qr_v2", 0, STARTER),
    ("eigh", "eigh_py", 0, STARTER),
    ("eigh_diagonal", "eigh_diagonal", 0, "submissions/triton_diagonal_fast_path.py"),
    ("cholesky", "cholesky_py", 0, STARTER),
    ("cholesky", "cholesky_py", 8, STARTER),
    ("cholesky", "cholesky_py", 0, "submissions/triton_cholesky32.py"),
]
LAUNCHES = {"eigh": 10, "eigh_diagonal": 20}
# What the report of such a file must hold, lest something else was compared.
KERNELS = {
    "submissions/triton_diagonal_fast_path.py": "_write_permuted_eye_kernel",
    "submissions/triton_cholesky32.py": "_cholesky32_left_kernel",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=pathlib.Path, required=True)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=float, default=540)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    requests, kernels = [], {}
    for leaderboard, folder, index, file in SHAPES:
        if arguments.only and not {f"{leaderboard} {index}", f"{leaderboard} {index} {file}"} & set(arguments.only):
            continue
        path = arguments.problems / "linalg" / folder / file
        fields = {"ncu_launch_count": LAUNCHES[leaderboard]} if leaderboard in LAUNCHES else {}
        requests.append(client.Request(f"{leaderboard} {index} {path.stem}", path, leaderboard, index, fields))
        kernels[requests[-1].name] = KERNELS.get(file, "")
    if not requests:
        sys.exit("no shape is called that")
    started, bad = time.monotonic(), 0
    for ended in client.run(requests, arguments.into, arguments.limit):
        if ended.status != "succeeded" or ended.error:
            bad += 1
            print(f"- {ended.request.name}: {ended.status}, {client.cell(ended.error)}", flush=True)
        elif kernels[ended.request.name] not in ended.read("ncu-details.txt"):
            bad += 1
            print(f"- {ended.request.name}: `{kernels[ended.request.name]}` is not in the report", flush=True)
    print(f"\nProfiled {len(requests) - bad} of {len(requests)} shapes in {time.monotonic() - started:.0f} s.\n", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
