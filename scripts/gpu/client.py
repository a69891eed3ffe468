"""Jobs of a running service: many are submitted at once, and told of as they end.

The service's URL is read from POPCORN_BREV_PROFILER_URL, the popcorn id from POPCORN_CLI_ID.
"""

import dataclasses
import datetime
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import sys
import time
import zipfile

_loader = importlib.machinery.SourceFileLoader("ncu_client", str(pathlib.Path(__file__).resolve().parent.parent / "ncu-client"))
ncu_client = importlib.util.module_from_spec(importlib.util.spec_from_loader("ncu_client", _loader))
_loader.exec_module(ncu_client)

ENDED = ("succeeded", "failed", "timed_out")


@dataclasses.dataclass
class Request:
    """One shape to profile. `name` is the folder of its archive."""

    name: str
    file: pathlib.Path
    leaderboard: str
    index: int = 0
    fields: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Ended:
    """What became of a request; `status` is `refused` or `late` where no job ended."""

    request: Request
    status: str
    error: str = ""
    seconds: float = 0.0
    archive: pathlib.Path | None = None

    def read(self, name):
        with zipfile.ZipFile(self.archive) as zipped:
            return zipped.read(name).decode(errors="replace")

    def manifest(self):
        return json.loads(self.read("manifest.json"))


def run(requests, into, limit_secs):
    """Submits all requests and yields each as it ends; those that have not ended after `limit_secs` come last, as `late`."""
    service = ncu_client.Service(os.environ["POPCORN_BREV_PROFILER_URL"], os.environ.get("POPCORN_CLI_ID"))
    deadline = time.monotonic() + limit_secs
    waiting = {}
    for request in requests:
        fields = {"leaderboard": request.leaderboard, "benchmark_index": request.index, **request.fields}
        try:
            waiting[service.submit(request.file, fields)] = request
        except (ncu_client.Refused, OSError) as error:
            yield Ended(request, "refused", str(error))
    while waiting and time.monotonic() < deadline:
        time.sleep(0.5)
        for job_id, request in list(waiting.items()):
            try:
                job = service.job(job_id)
                if job["status"] in ENDED:
                    ended = _ended(service, request, job, into)
                    del waiting[job_id]
                    print(f"{job_id} {request.name}: {ended.status} {ended.error}", file=sys.stderr, flush=True)
                    yield ended
            except (ncu_client.Refused, OSError) as error:
                print(f"{job_id} {request.name} not reached ({error}); trying again", file=sys.stderr, flush=True)
    for request in waiting.values():
        yield Ended(request, "late", f"not ended within {limit_secs:.0f} s")


def _ended(service, request, job, into):
    shape = job["runs"][0]
    archive = None
    if job["artifacts"]:
        folder = pathlib.Path(into, slug(request.name))
        folder.mkdir(parents=True, exist_ok=True)
        archive = service.fetch(job["artifacts"][0], folder)
    return Ended(request, job["status"], shape["error"] or job["error"] or "", _seconds(shape), archive)


def _seconds(shape):
    if not (shape["started_at"] and shape["ended_at"]):
        return 0.0
    return (moment(shape["ended_at"]) - moment(shape["started_at"])).total_seconds()


def moment(text):
    """A timestamp of the service or of a manifest."""
    # Nine digits of a second are more than Python reads.
    return datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text).replace("Z", "+00:00"))


def slug(name):
    return re.sub(r"\W+", "-", name)


def cell(text, length=300):
    """Text as it can stand in a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")[:length]


def worker_of(logs, job_id):
    """The log of the worker that had a job last, and its GPU: the log's name tells it."""
    found = [path for path in sorted(pathlib.Path(logs).glob("worker-*-gpu*.log")) if job_id in path.read_text(errors="replace")]
    if not found:
        return "?", None
    gpu = re.search(r"-gpu(\d+)\.log$", found[-1].name)
    return found[-1].stem, gpu and gpu[1]
