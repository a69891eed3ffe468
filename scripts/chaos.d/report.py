"""The one line that a run ends with. The numbers named in ZEROS must be 0."""

import collections
import json
import statistics

from audit import store_defects, stray_archives

ZEROS = ["accepted_twice", "lost", "failed_jobs", "failed_polls", "bad_archives", "overlapping", "orphans", "not_recovered", "ended_by_themselves", "quarantined"]


def report(seed, stack, audit, load, faults, left):
    jobs, shapes = audit.jobs(), audit.shapes()
    lost = losses(jobs, shapes, load)
    archives = store_defects(stack.store_disk.path, shapes) + [defect for job in load.jobs for defect in job.bad_archives]
    failed = [f"{job['id']}: {job['error_kind']}: {job['error']} ({job['last_fault']})" for job in jobs if job["state"] in ("failed", "timed_out")]
    overlapping = stack.watch.overlapping()
    recoveries = [fault.recovery_secs for fault in faults if fault.recovery_secs is not None]
    line = {
        "seed": seed,
        "faults": len(faults),
        "by_kind": dict(sorted(collections.Counter(fault.kind for fault in faults).items())),
        "jobs": len(jobs),
        "shapes": len(shapes),
        "accepted_once": sum(shape["accepted"] == 1 for shape in shapes),
        "accepted_twice": sum(shape["accepted"] > 1 for shape in shapes),
        "lost": len(lost),
        "failed_jobs": len(failed),
        "failed_polls": sum(len(job.failed_polls) for job in load.jobs),
        "bad_archives": len(archives),
        "overlapping": len(overlapping),
        "orphans": len(left),
        "not_recovered": len(faults) - len(recoveries),
        "ended_by_themselves": sum(len(fault.ended_by_themselves) for fault in faults),
        "quarantined": len(stack.quarantines()),
        "captures": len(stack.watch.captures()),
        "attempts": {str(attempt): count for attempt, count in sorted(collections.Counter(job["attempt"] for job in jobs).items())},
        "refused_submissions": len(load.refused),
        "broken_downloads": sum(job.broken_downloads for job in load.jobs),
        "stray_archives": len(stray_archives(stack.store_disk.path, shapes)),
        "recovery_secs": spread(recoveries),
        "recovery_secs_by_kind": {
            kind: spread([fault.recovery_secs for fault in faults if fault.kind == kind and fault.recovery_secs is not None])
            for kind in sorted({fault.kind for fault in faults})
        },
    }
    details = {
        "lost": lost, "failed_jobs": failed, "bad_archives": archives, "overlapping": overlapping, "orphans": left,
        "failed_polls": {job.id: job.failed_polls for job in load.jobs if job.failed_polls},
        "refused_submissions": load.refused,
        "stray_archives": stray_archives(stack.store_disk.path, shapes),
        "quarantined": stack.quarantines(),
        "ended_by_themselves": {fault.number: fault.ended_by_themselves for fault in faults if fault.ended_by_themselves},
        "not_recovered": [fault.number for fault in faults if fault.recovery_secs is None],
    }
    return line, {name: found for name, found in details.items() if found}


def losses(jobs, shapes, load):
    """What was promised and is not there, by the tables and by the clients."""
    states = {job["id"].replace("-", ""): job["state"] for job in jobs}
    published = collections.defaultdict(dict)
    for shape in shapes:
        published[shape["job_id"].replace("-", "")][shape["benchmark_index"]] = shape
    lost = [f"{job}: {state}" for job, state in states.items() if state in ("queued", "running")]
    for job in load.jobs:
        if job.id not in states:
            lost.append(f"{job.id}: no such job")
        elif job.status == "succeeded":
            for index, shape in published[job.id].items():
                if shape["accepted"] == 0 or job.archives.get(index) != shape["sha256"]:
                    lost.append(f"{job.id}, shape {index}: {shape['state']}, and the client has no such archive")
    return lost


def spread(seconds):
    return {"p50": round(statistics.median(seconds), 1), "max": round(max(seconds), 1)} if seconds else None


def is_good(line):
    return not any(line[name] for name in ZEROS)


def write(line, details, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"summary": line, "details": details}, file, indent=2)
        file.write("\n")
