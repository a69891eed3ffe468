"""All cases, and docs/hostile.md, which is made of them."""

import faults
import forgeries
import interpreter
import limits
import output
import reach
import reads
import uploads
import verdicts

# The long ones first: at the end nothing waits for them.
CASES = sorted(
    [
        *reach.CASES,
        *limits.CASES,
        *output.CASES,
        *verdicts.CASES,
        *forgeries.CASES,
        *interpreter.CASES,
        *uploads.CASES,
        *reads.CASES,
        *faults.CASES,
    ],
    key=lambda case: "timed_out" not in getattr(case, "status", ""),
)
GROUPS = {
    "What it can reach": reach,
    "What it can use up": limits,
    "What it can leave in /out and /tmp": output,
    "What it can claim": verdicts,
    "What it can put into a report": forgeries,
    "What it can do to Python, and odd sources": interpreter,
    "Hostile uploads": uploads,
    "Other hostile requests": reads,
    "Faults": faults,
}

HEAD = """# Hostile submissions and requests

`scripts/hostile` starts an API, workers and a Postgres of its own, with the development image, and attacks them. Each case is a
submission or a request of a stranger; after each an honest job must pass. {count} cases need no GPU; `scripts/gpu-e2e hostile` has
those that do.

    scripts/hostile                             # {minutes}
    scripts/hostile --only symlinks,smuggling   # some of them
    scripts/hostile --list

Of every job, whatever was submitted, this is checked as well: its archive has the entries that ours have and no other, each once;
none of the run's secrets (CLI id, the database's password, a file of the host) and no account of the host is in the archive or in
the job's body; the body is short and holds no control character; the manifest is of this job and this source. A job that failed by
its own fault took one attempt and does not count as a fault of the service. At the end no container, process, mount or folder of
the run is left, and disk and memory were within the bounds that are printed.

"Row" is the number of an attempt in the list that the service was built against: 1 to 25 are submissions and requests, 26 to 31
faults.

This file is made by `scripts/hostile --table`.
"""

ELSEWHERE = """
## Shown elsewhere

| row | what happens | what must come out | shown by |
| --- | --- | --- | --- |
| 4 | a file without a name fills the disk | the container ends before the disk is full | `a_file_without_a_name_cannot_fill_the_disk` |
| 17 | an endless GPU kernel; a child in a session of its own that holds the GPU; GPU memory that is left | killed; the GPU is idle again; the next job has all of its memory | `scripts/gpu-e2e endless hostile` |
| 18, 19 | ptrace, SIGSTOP and SIGKILL of the real ncu | failed or timed_out; the next job is fine | `scripts/gpu-e2e hostile` |
| 22 | an illegal address, an Xid | failed with the text; the Xid is read from outside; the next job is fine | `scripts/gpu-e2e hostile verdicts`, `an_xid_that_a_submission_causes_leaves_its_failure_its_own` |
| 26 | a worker is killed, stopped or frozen at any point | one result, no second container on the GPU, no orphan | `scripts/chaos`, `a_worker_killed_in_mid_shape_loses_nothing` |
| 27 | the engine is restarted in mid-run | our fault, tried again within a limit | `scripts/chaos --only engine_restart,engine_kill` |
| 28 | Postgres is gone in mid-run and comes back | the result is neither lost nor doubled | `scripts/chaos --only postgres_crash`, `an_outage_of_postgres_fails_no_poll_and_loses_no_shape` |
| 29 | the artifact store is full or fails | tried again; never `succeeded` without the bytes | `scripts/chaos --only store_full,store_read_only` |
| 30 | a stale attempt finishes late | its write is refused | `every_write_of_an_attempt_that_lost_its_lease_is_refused` |
| 31 | the disk is nearly full | no job is taken, and the health says so | `scripts/chaos --only disk_full` |
"""


def document():
    """docs/hostile.md"""
    cell = lambda text: text.replace("|", "\\|")
    parts = [HEAD.format(count=len(CASES), minutes=MINUTES)]
    for title, module in GROUPS.items():
        parts.append(f"\n## {title}\n\n| case | row | what it does | what must come out |\n| --- | --- | --- | --- |\n")
        parts += [f"| `{case.name}` | {case.rows} | {cell(case.does)} | {cell(case.expected)} |\n" for case in module.CASES]
    return "".join(parts) + ELSEWHERE


MINUTES = "about nine minutes on two cores"
