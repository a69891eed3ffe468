"""Clients that do what popcorn-cli does: submit, poll, fetch the zips. Any answer to a poll but 2xx would end a user's run."""

import dataclasses
import hashlib
import http.client
import json
import pathlib
import random
import sys
import threading
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu.client import ENDED, ncu_client  # noqa: E402

POLL_SECS = 1
# The library makes an HTTPException of an answer that breaks off.
TRANSPORT = (OSError, http.client.HTTPException, ValueError)

# Each kernel sleeps, so that faults fall into its capture.
SOURCES = {
    "vectoradd_sample": """import time
import standin_gpu

def add(a, b):
    time.sleep({seconds})
    return [x + y for x, y in zip(a, b)]

def custom_kernel(data):
    return standin_gpu.launch("void add<float>(float *)", 8, 128, add, *data)
""",
    "rowsum-sample": """import math
import time
import standin_gpu

def sums(rows):
    time.sleep({seconds})
    return [math.fsum(row) for row in rows]

def custom_kernel(data):
    return standin_gpu.launch("void row_sums<float>(float *)", 8, 128, sums, data)
""",
}


@dataclasses.dataclass
class Job:
    id: str
    leaderboard: str
    status: str = ""
    body: dict = dataclasses.field(default_factory=dict)
    failed_polls: list = dataclasses.field(default_factory=list)
    bad_archives: list = dataclasses.field(default_factory=list)
    broken_downloads: int = 0
    archives: dict = dataclasses.field(default_factory=dict)


class Load:
    def __init__(self, url, cli_id, folder, seed, clients):
        self.url, self.cli_id = url, cli_id
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.jobs, self.refused = [], []
        self._enough, self._given_up = threading.Event(), threading.Event()
        self._clients = [
            threading.Thread(target=self._client, args=(number, random.Random(f"{seed} client {number}")), daemon=True)
            for number in range(clients)
        ]
        for client in self._clients:
            client.start()

    def end(self, limit_secs):
        """No further job; waits for those there are. False when some did not end in time."""
        self._enough.set()
        deadline = time.monotonic() + limit_secs
        for client in self._clients:
            client.join(max(0, deadline - time.monotonic()))
        self._given_up.set()
        return not any(client.is_alive() for client in self._clients)

    def _client(self, number, rng):
        service = ncu_client.Service(self.url, self.cli_id)
        file = self.folder / f"submission-{number}.py"
        while not self._enough.is_set():
            leaderboard = rng.choice(sorted(SOURCES))
            file.write_text(SOURCES[leaderboard].format(seconds=round(rng.uniform(0.1, 0.8), 2)), encoding="utf-8")
            if job := self._submit(service, file, leaderboard):
                self._see_to_its_end(service, job)

    def _submit(self, service, file, leaderboard):
        try:
            job = Job(service.submit(file, {"leaderboard": leaderboard}), leaderboard)
        except ncu_client.Refused as error:
            # No job is promised yet: a person reads why, and tries again.
            self.refused.append(str(error))
        except TRANSPORT:
            pass
        else:
            self.jobs.append(job)
            return job
        self._given_up.wait(POLL_SECS)
        return None

    def _see_to_its_end(self, service, job):
        while not self._given_up.wait(POLL_SECS):
            try:
                job.body = service.job(job.id)
            except ncu_client.Refused as error:
                job.failed_polls.append(f"{time.strftime('%H:%M:%S')} {error}")
                continue
            except TRANSPORT:
                continue
            if job.body["status"] in ENDED:
                break
        else:
            return
        for artifact in job.body["artifacts"]:
            self._fetch(service, job, artifact)
        job.status = job.body["status"]

    def _fetch(self, service, job, artifact):
        folder = self.folder / job.id
        folder.mkdir(exist_ok=True)
        while not self._given_up.is_set():
            try:
                path = service.fetch(artifact, folder)
                if why := defect(path, job, artifact):
                    job.bad_archives.append(f"{artifact['name']}: {why}")
                else:
                    job.archives[artifact["benchmark_index"]] = hashlib.sha256(path.read_bytes()).hexdigest()
                path.unlink()
                return
            except ncu_client.Refused as error:
                job.failed_polls.append(f"{time.strftime('%H:%M:%S')} {artifact['name']}: {error}")
                return
            except TRANSPORT:
                # popcorn-cli would leave this one out and go on.
                job.broken_downloads += 1
                self._given_up.wait(POLL_SECS)


def defect(path, job, artifact):
    """What is wrong with a zip; "" when all is well."""
    try:
        with zipfile.ZipFile(path) as archive:
            if broken := archive.testzip():
                return f"{broken} is damaged"
            manifest = json.loads(archive.read("manifest.json"))
            details = archive.read("ncu-details.txt")
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        return str(error)
    if (manifest["job_id"], manifest["benchmark_index"]) != (job.id, artifact["benchmark_index"]):
        return "it is of another job or shape"
    return "" if details.startswith(b"[") else "its report does not begin as one"
