"""Programs of a run: started with a log of their own, signalled, and gone at its end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request


class Trouble(Exception):
    """The run cannot go on; the text says what to do."""


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(*command, timeout_secs=120, **options):
    """Runs a command to its end and returns what it printed; a failure is Trouble."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_secs, **options)
    if done.returncode != 0:
        raise Trouble(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def rows(execute, query):
    """The rows of a query, each as a dictionary; `execute` runs SQL with psql and returns what that prints."""
    return json.loads(execute(f"SELECT coalesce(json_agg(row_to_json(found)), '[]') FROM ({query}) found"))


def health(url):
    """What an API says of itself; empty where it does not answer."""
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            return json.load(answer)
    return {}


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, condition, limit_secs, pause_secs=0.1):
    deadline = time.monotonic() + limit_secs
    while not condition():
        if time.monotonic() > deadline:
            raise Trouble(f"{what}: not within {limit_secs} s")
        time.sleep(pause_secs)


class Program:
    """One program that may be started and ended many times. All its output goes to one log."""

    def __init__(self, name, command, environment, log):
        self.name, self.command, self.environment, self.log = name, command, environment, log
        self.child = None

    def start(self):
        with open(self.log, "ab") as log:
            log.write(f"--- {time.strftime('%H:%M:%S')} {self.name} starts\n".encode())
            # A session of its own: ctrl-C is for the run, which ends its programs in their order.
            self.child = subprocess.Popen(
                self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def lives(self):
        return self.child is not None and self.child.poll() is None

    def signal(self, number):
        if self.lives():
            self.child.send_signal(number)

    def kill(self):
        """Ends it at once, and returns when it is gone."""
        self.signal(signal.SIGKILL)
        if self.child is not None:
            self.child.wait()

    def stop(self, limit_secs):
        """Asks it to end; False when it had to be killed after all."""
        self.signal(signal.SIGTERM)
        try:
            if self.child is not None:
                self.child.wait(limit_secs)
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    @contextlib.contextmanager
    def frozen(self):
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


def plain_environment(**settings):
    """PATH and the settings alone: what a person has set for a service of his own must not reach this one."""
    return {"PATH": os.environ["PATH"], **settings}
