"""The API that is thrown at, with what it needs around it."""

import http.client
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid

import kernelbot
from processes import Program, Trouble, free_port, plain_environment, run, wait_until

BOUNDARY = "an-honest-boundary"
SOURCE = b"def custom_kernel(data): return data\n"
ARCHIVE = b"PK\x05\x06" + bytes(18)


class Service:
    def __init__(self, root, programs, out, ending):
        """Starts everything; `ending` is the ExitStack that takes it down again, whatever happens."""
        self.log = os.path.join(out, "api.log")
        self.cli_id = f"fuzz-{uuid.uuid4().hex}"
        server = run(str(root / "scripts/postgres"), "start").strip()
        name = f"fuzz_{uuid.uuid4().hex}"
        self.database = f"{server.rsplit('/', 1)[0]}/{name}"
        run("psql", "-q", server, "-c", f"CREATE DATABASE {name}")
        ending.callback(run, "psql", "-q", server, "-c", f"DROP DATABASE {name} WITH (FORCE)")

        # A process of its own: it must not wait for those that throw.
        ours, theirs = multiprocessing.Pipe()
        played = multiprocessing.Process(target=play_kernelbot, args=(self.cli_id, theirs), daemon=True)
        played.start()
        ending.callback(played.terminate)
        self.port, self.store = free_port(), os.path.join(out, "artifacts")
        self.program = Program("the API", [f"{programs}/ncu-api", "serve"], plain_environment(
            NCU_SERVICE_LISTEN=f"127.0.0.1:{self.port}",
            NCU_SERVICE_DATABASE_URL=self.database,
            NCU_SERVICE_REFERENCE_PROBLEMS_DIR=str(root / "docker/dev/problems"),
            NCU_SERVICE_ARTIFACTS_URL=f"file://{self.store}",
            NCU_SERVICE_LOG_FORMAT="json",
            KERNELBOT_API_URL=f"http://127.0.0.1:{ours.recv()}",
            # All requests that are let in have one id. Some are over a quota, and soon after none is.
            NCU_SERVICE_MAX_JOBS_PER_USER="1000",
            NCU_SERVICE_MAX_QUEUE="20",
            NCU_SERVICE_MAX_JOBS_PER_HOUR="1000",
            NCU_SERVICE_MAX_BYTES_PER_HOUR="2m",
            # This machine may be slow, and what is looked for is not its speed.
            NCU_SERVICE_KERNELBOT_TIMEOUT_SECS="60",
            NCU_SERVICE_KERNELBOT_MAX_QUESTIONS="16",
            NCU_SERVICE_UPLOAD_TIMEOUT_SECS="5",
        ), self.log)
        ending.callback(self.program.kill)
        self.program.start()
        wait_until(f"the API answers (log: {self.log})", self._is_up, 60)
        self.job, self.artifact = self._profiled_job()
        self.emptying = threading.Event()
        ending.callback(self.emptying.set)
        threading.Thread(target=self._empty, daemon=True).start()

    def _is_up(self):
        if not self.program.lives():
            raise Trouble(f"the API ended; its log: {self.log}")
        try:
            status, body = self.ask("GET", "/health")
            return status == 200 and json.loads(body)["status"] == "ok"
        except OSError:
            return False

    def ask(self, method, path, body=None, headers=()):
        """An honest request; its status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, {"X-Popcorn-Cli-Id": self.cli_id, **dict(headers)})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def submit(self):
        """Submits an honest job; returns its id."""
        head = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        for _ in range(40):
            status, body = self.ask("POST", "/profile", form(), head)
            if status == 202:
                return json.loads(body)["job_id"]
            if status not in (429, 503):
                break
            time.sleep(0.5)
        raise Trouble(f"an honest submission was answered {status}: {body[:300]}")

    def _profiled_job(self):
        """A job with an archive, so that there is something to find."""
        job, name = self.submit(), "profile.0-honest.zip"
        os.makedirs(self.store, exist_ok=True)
        with open(os.path.join(self.store, "archive.zip"), "wb") as file:
            file.write(ARCHIVE)
        self.sql(f"UPDATE runs SET state = 'succeeded', ended_at = now(), artifact_name = '{name}', artifact_path = 'archive.zip', "
                 f"artifact_bytes = {len(ARCHIVE)}, artifact_sha256 = sha256('x') WHERE benchmark_index = 0; "
                 "DELETE FROM runs WHERE benchmark_index > 0; UPDATE jobs SET state = 'succeeded', ended_at = now()")
        return job, f"/jobs/{job}/artifacts/{name}"

    def is_honest(self):
        """Whether a submission, a poll and a download still go well."""
        self.emptying.set()
        time.sleep(1)
        self.sql("DELETE FROM jobs WHERE state = 'queued'")
        job = self.submit()
        asked = [self.ask("GET", path) for path in (f"/jobs/{job}", f"/jobs/{self.job}", self.artifact)]
        return [status for status, _ in asked] == [200] * 3 and asked[2][1] == ARCHIVE

    def sql(self, statements):
        return run("psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", self.database, "-c", statements)

    def _empty(self):
        """Plays the workers: the queue grows full, and is empty again."""
        while not self.emptying.wait(0.5):
            try:
                self.sql("DELETE FROM jobs WHERE state = 'queued'; DELETE FROM apalis.jobs")
            except (Trouble, subprocess.TimeoutExpired):
                pass

    def memory_mib(self):
        return self._status("VmRSS")

    def most_memory_mib(self):
        return self._status("VmHWM")

    def _status(self, name):
        with open(f"/proc/{self.program.child.pid}/status") as file:
            return round(int(re.search(rf"{name}:\s*(\d+)", file.read())[1]) / 1024)

    def open_files(self):
        """What is open once what was thrown has been closed."""
        time.sleep(2)
        return len(os.listdir(f"/proc/{self.program.child.pid}/fd"))

    def panics(self):
        with open(self.log, "rb") as file:
            log = file.read()
        return log.count(b"panicked at") + (0 if self.program.lives() else 1)


def form(source=SOURCE, leaderboard=b"vectoradd_sample", boundary=BOUNDARY.encode()):
    """What popcorn-cli sends."""
    return (
        b"--%b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"submission.py\"\r\n\r\n%b\r\n"
        b"--%b\r\nContent-Disposition: form-data; name=\"leaderboard\"\r\n\r\n%b\r\n--%b--\r\n"
    ) % (boundary, source, boundary, leaderboard, boundary)


def play_kernelbot(good_id, pipe):
    # It is ended by the run, and says nothing of it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nor of questions that the API gave up, because their client hung up.
    sys.stderr = open(os.devnull, "w")
    pipe.send(kernelbot.start(good_id))
    threading.Event().wait()
