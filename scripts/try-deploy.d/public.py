"""The proxy's real program, and a client that polls through it as popcorn-cli does."""

import contextlib
import http.client
import json
import pathlib
import threading
import time
import urllib.error
import urllib.request

from client import ENDED, ncu_client
from processes import Program, free_port, wait_until

POLL_SECS = 0.2


class Proxy:
    def __init__(self, name, root, release, environment, logs):
        self.port, self.log = free_port(), f"{logs}/{name}.log"
        self.url = f"http://127.0.0.1:{self.port}"
        settings = environment | {
            "NCU_SERVICE_PROXY_RELEASE": release,
            "NCU_SERVICE_PROXY_PORT": str(self.port),
            "NCU_SERVICE_PROXY_TUNNEL_PORT": str(free_port()),
            "NCU_SERVICE_PROXY_CONTROL_PORT": str(free_port()),
            "PATH": f"{environment['PATH']}:/usr/sbin:/sbin",
        }
        self.program = Program(name, [f"{root}/docker/proxy/entry"], settings, self.log)

    def start(self):
        self.program.start()

    def end(self):
        self.program.stop(20)

    def health(self):
        """(status, body) of the proxy's own health; None while nothing answers."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            try:
                with urllib.request.urlopen(f"{self.url}/_proxy/health", timeout=5) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)
        return None

    def await_deploy(self, wanted, limit_secs=90):
        """Waits until the deploy has come out as wanted."""
        wait_until(f"the deploy is {wanted} (log: {self.log})", lambda: (self.health() or (0, {}))[1].get("deploy") == wanted, limit_secs)

    def await_open(self):
        """Waits until the tunnel is open and the API answers."""
        wait_until(f"the tunnel is open (log: {self.log})", lambda: (self.health() or (0, {}))[0] == 200, 30)

    def text(self):
        return pathlib.Path(self.log).read_text(errors="replace")

    def processes(self):
        """Command lines and environments of the program and of all that it has started."""
        session, found = str(self.program.child.pid), []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "stat").read_text().rpartition(")")[2].split()[3] == session:
                    found.append(((folder / "cmdline").read_bytes(), (folder / "environ").read_bytes(), int(folder.name)))
        return found


class Poller:
    """Polls a job until its end. Whatever is not answered with 2xx is a failed poll: popcorn-cli ends its user's run then."""

    def __init__(self, url, cli_id, job):
        self.service, self.job = ncu_client.Service(url, cli_id), job
        self.failed, self.body, self.polls, self.longest_secs = [], {}, 0, 0.0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self):
        while not self._enough.wait(POLL_SECS):
            began = time.monotonic()
            try:
                self.body = self.service.job(self.job)
                self.polls += 1
            except (ncu_client.Refused, OSError, http.client.HTTPException, ValueError) as error:
                self.failed.append(f"{time.strftime('%H:%M:%S')} {type(error).__name__} {error} after {time.monotonic() - began:.1f} s")
            self.longest_secs = max(self.longest_secs, time.monotonic() - began)

    def status(self):
        return self.body.get("status")

    def await_end(self, limit_secs=120):
        wait_until(f"job {self.job} ends", lambda: self.status() in ENDED, limit_secs)
        self.end()
        return self.body

    def end(self):
        self._enough.set()
        self._thread.join()
