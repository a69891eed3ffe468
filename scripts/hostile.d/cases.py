"""What a case is, and what every submission of one is checked for."""

import dataclasses
import io
import json
import pathlib
import re
import time
import uuid
import zipfile

from client import ENDED, ncu_client

LEADERBOARD = "vectoradd_sample"
# Three tries of both steps at their limits, behind the jobs of other lanes.
PATIENCE_SECS = 300
ENTRIES = {
    "manifest.json",
    "benchmark.json",
    "command.json",
    "ncu-details.txt",
    "ncu-details.csv",
    "ncu-raw.csv",
    "digest.json",
    "digest.md",
    "report.html",
    "popcorn.log",
    "stdout.txt",
    "stderr.txt",
    "launches.csv",
    "profile/profile.ncu-rep",
}
# Longest body of a job of one shape; the runs table and the runner cut what is in it.
MAX_BODY_BYTES = 64 << 10

# What submissions have at hand. `say` writes at once, since an evaluator ends its child by a signal; `tried` is read back by Seen.
PRELUDE = '''
import ctypes, errno, functools, os, pathlib, signal, socket, stat, subprocess, sys, threading, time
import standin_gpu
say = functools.partial(print, flush=True)
CAPTURING = "NCU_SERVICE_LAUNCHES_DIR" not in os.environ
def tried(name, act, *arguments):
    try:
        ended = f"done {act(*arguments)!r:.60}"
    except OSError as error:
        ended = errno.errorcode.get(error.errno, str(error))
    except BaseException as error:
        ended = f"{type(error).__name__} {error}"
    say(f"tried\\t{name}\\t{ended}")
def daemon(act):
    """Does it in a process that has left session and family behind."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            try:
                act()
            finally:
                os._exit(0)
        os._exit(0)
    os.wait()
def add(a, b):
    return [x + y for x, y in zip(a, b)]
def honest(data):
    return standin_gpu.launch("void add<float>(float *)", 8, 128, add, *data)
'''


def source(before="", inside="", after=""):
    """A submission that is honest but for `before` (while it is imported), `inside` (before its kernel) and `after` (behind it)."""
    indented = lambda text: "".join(f"    {line}\n" for line in text.strip("\n").splitlines())
    return (
        f"{PRELUDE}\n{before}\ndef custom_kernel(data):\n{indented(inside)}    result = honest(data)\n{indented(after)}    return result\n"
    )


@dataclasses.dataclass
class Case:
    """`rows` are those of docs/hostile.md that it belongs to, `does` and `expected` stand in its table."""

    name: str
    rows: str
    does: str
    expected: str
    # What it does would disturb others.
    alone: bool = False

    def run(self, service):
        """What is not as expected; empty when all is."""
        raise NotImplementedError


@dataclasses.dataclass
class Submission(Case):
    # SECRET_FILE in it becomes the path of a file of the host that nobody may read.
    source: str | bytes = ""
    fields: dict = dataclasses.field(default_factory=dict)
    # Words that the final status matches, and the error; no error where that is None.
    status: str = "succeeded"
    error: str | None = None
    # What each attempt of the submission's own, by its name, must have ended as.
    tried: dict = dataclasses.field(default_factory=dict)
    # Words that must be, and that must not be, in what it printed.
    printed: str | None = None
    # A further look at what came of it: returns what is wrong.
    look: object = None
    # Whether all may be tried again as a fault of ours.
    retried: bool = False

    def run(self, service):
        text = self.source.replace("SECRET_FILE", service.secret_file) if isinstance(self.source, str) else self.source
        seen = submitted(service, text, self.fields)
        wrong = seen.defects()
        if not re.fullmatch(self.status, seen.status):
            wrong.append(f"{self.status} was expected: {seen.status}, {seen.error[:300]}")
        if self.error is None and seen.status == "succeeded" and seen.error:
            wrong.append(f"no error was expected: {seen.error[:300]}")
        if self.error is not None and not re.search(self.error, seen.error):
            wrong.append(f"/{self.error}/ is not in the error: {seen.error[:300]}")
        if not self.retried and seen.body["attempt"] != 1:
            wrong.append(f"it took {seen.body['attempt']} attempts")
        if not self.retried and seen.body["error_kind"] == "service_fault":
            wrong.append("it counts as a fault of the service")
        for name, ended in self.tried.items():
            if not re.fullmatch(ended, seen.tried.get(name, "was not tried"), re.S):
                wrong.append(f"{name}: {seen.tried.get(name, 'was not tried')} instead of {ended}")
        if self.printed and not re.search(self.printed, seen.printed, re.S):
            wrong.append(f"/{self.printed}/ was not printed: {seen.printed[-300:]!r}")
        if self.look:
            wrong += self.look(seen, service)
        return wrong


class Seen:
    """What the user of a job got."""

    def __init__(self, service, body, archives, sent):
        self.service, self.body, self.archives, self.sent = service, body, archives, sent
        self.status, self.error = body["status"], body["error"] or body["runs"][0]["error"] or ""
        self.printed = self.read("stdout.txt") or body["runs"][0]["output_tail"] or ""
        # The last one counts: the overview before the capture has tried the same.
        self.tried = {}
        for line in self.printed.splitlines():
            fields = line[line.find("tried\t") :].split("\t", 2) if "tried\t" in line else []
            if len(fields) == 3:
                self.tried[fields[1]] = fields[2]

    @property
    def archive(self):
        return next(iter(self.archives.values()), None)

    def read(self, name):
        if self.archive is None or name not in self.archive.namelist():
            return ""
        return self.archive.read(name).decode(errors="replace")

    @property
    def manifest(self):
        return json.loads(self.read("manifest.json") or "{}")

    def defects(self):
        """What may not be so in any job, whatever was submitted."""
        wrong = []
        body = json.dumps(self.body, ensure_ascii=False)
        if len(body) > MAX_BODY_BYTES:
            wrong.append(f"the job's body has {len(body)} bytes")
        wrong += [
            f"control characters in the job's body: {text[:80]!r}"
            for text in strings_in(self.body)
            if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
        ]
        wrong += self.leaks("the job's body", body.encode())
        if (self.status == "succeeded") != bool(self.archives):
            wrong.append(f"{self.status} with {len(self.archives)} archives")
        for name, archive in self.archives.items():
            wrong += [f"{name}: {defect}" for defect in self.defects_of(archive)]
        return wrong

    def defects_of(self, archive):
        names = archive.namelist()
        if len(names) != len(set(names)) or not ENTRIES >= set(names) or not set(names) >= ENTRIES - {"launches.csv"}:
            yield f"its entries are {names}"
        if broken := archive.testzip():
            yield f"{broken} is damaged"
        if any(entry.external_attr >> 16 & 0o170000 not in (0, 0o100000) for entry in archive.infolist()):
            yield "an entry is no plain file"
        for name in names:
            yield from self.leaks(name, archive.read(name))
        manifest = json.loads(archive.read("manifest.json"))
        if (manifest["job_id"], manifest["simulated"], manifest["submission"]["bytes"]) != (self.body["id"], True, len(self.sent)):
            yield "its manifest is of something else"
        if not archive.read("ncu-details.txt").startswith(b"["):
            yield "its report does not begin as one"

    def leaks(self, place, content):
        return [f"{what} in {place}" for what, secret in self.service.secrets.items() if secret.encode() in content] + (
            [f"an account of the host in {place}"] if re.search(rb"root:[*!$x]?[^\n:]*:\d*:", content) else []
        )


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings_in(key)
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def client(service):
    """A client whose id nobody else has."""
    return ncu_client.Service(service.url, f"{service.cli_id}-{uuid.uuid4().hex[:12]}")


def submit(service, who, text, fields=None):
    """Submits a source; its job's id."""
    file = pathlib.Path(service.work, f"submission-{uuid.uuid4().hex}.py")
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return who.submit(file, {"leaderboard": LEADERBOARD, "benchmark_index": 0, **(fields or {})})
    finally:
        file.unlink()


def ended(service, who, job_id, sent=b""):
    """Waits for a job, and fetches what there is."""
    deadline = time.monotonic() + PATIENCE_SECS
    while (body := who.job(job_id))["status"] not in ENDED:
        if time.monotonic() > deadline:
            raise TimeoutError(f"job {job_id} has not ended within {PATIENCE_SECS} s: {body['status']}")
        time.sleep(0.3)
    archives = {}
    for artifact in body["artifacts"]:
        with who.open(artifact["url"]) as answer:
            archives[artifact["name"]] = zipfile.ZipFile(io.BytesIO(answer.read()))
    return Seen(service, body, archives, sent)


def submitted(service, text, fields=None):
    who = client(service)
    text = text if isinstance(text, bytes) else text.encode()
    return ended(service, who, submit(service, who, text, fields), text)


def honest_job(service):
    """What is wrong with a job in which nothing is."""
    seen = submitted(service, source())
    wrong = seen.defects()
    if seen.status != "succeeded" or seen.error:
        wrong.append(f"{seen.status}: {seen.error[:300]}")
    if seen.body["attempt"] != 1:
        wrong.append(f"it took {seen.body['attempt']} attempts")
    if "Section: GPU Speed Of Light" not in seen.read("ncu-details.txt"):
        wrong.append("its report holds no section")
    return wrong
