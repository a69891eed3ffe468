"""A hostile request, and what is wrong with an answer to one."""

import dataclasses
import hashlib
import time
import uuid

from cases import Case
from wire import send, statuses

# What is no legal request is answered with one of these, or the connection is closed.
REFUSALS = range(400, 500)


@dataclasses.dataclass
class Ask(Case):
    """`ask` gets the service and a CLI id that is good, and returns what is wrong."""

    ask: object = None
    # Jobs that must be queued by it; None where it looks itself.
    jobs: int | None = 0

    def run(self, service):
        cli_id = f"{service.cli_id}-{uuid.uuid4().hex[:12]}"
        wrong = list(self.ask(service, cli_id))
        if self.jobs is not None and (found := len(jobs_of(service, cli_id))) != self.jobs:
            wrong.append(f"{found} jobs were queued instead of {self.jobs}")
        began = time.monotonic()
        if service.health().get("status") != "ok":
            wrong.append("the API is not well after it")
        if time.monotonic() - began > 5:
            wrong.append("the API is slow after it")
        return wrong


def jobs_of(service, cli_id):
    owner = hashlib.sha256(b"ncu-service owner\0" + cli_id.encode()).hexdigest()
    return service.rows(f"SELECT id FROM jobs WHERE owner = decode('{owner}', 'hex')")


def refused(what, answer, *wanted, silence=False):
    """What is wrong with answers that should all be refusals, of the statuses `wanted` if there are any."""
    found = statuses(answer)
    if not found:
        return [] if silence and not answer else [f"{what}: no answer ({answer[:80]!r})"]
    if wrong := [status for status in found if status not in (wanted or REFUSALS)]:
        return [f"{what}: answered {wrong}: {answer[-200:]!r}"]
    # What hyper refuses by itself has no body.
    body = answer.rsplit(b"\r\n\r\n", 1)[-1]
    if body and b'"detail"' not in body:
        return [f"{what}: no sentence: {body[:100]!r}"]
    return []


def raw(*named, silence=True, wanted=()):
    """An `ask` that sends bytes, in which CLI stands for the id."""

    def ask(service, cli_id):
        for what, data in named:
            yield from refused(what, send(service, data.replace(b"CLI", cli_id.encode()), end=True, wait_secs=8), *wanted, silence=silence)

    return ask
