"""The faults, how they are drawn, and how long the service takes to get over each."""

import dataclasses
import json
import time

from processes import Trouble, say, wait_until
from stack import LEASE_SECS

# A fault after which nothing moves for so long is one that the service does not get over.
PATIENCE_SECS = 120
# Longer than a lease, so that another worker may have the job by now.
PAST_LEASE_SECS = (LEASE_SECS + 1.5, LEASE_SECS + 3.5)


def worker_kill(stack, rng, worker):
    worker.kill()
    time.sleep(rng.uniform(0.1, 1.5))
    worker.start()


def worker_term(stack, rng, worker):
    if not worker.stop(90):
        raise Trouble(f"{worker.name} did not end within 90 s of SIGTERM; its log: {worker.log}")
    worker.start()


def worker_freeze(stack, rng, worker):
    with worker.frozen():
        time.sleep(rng.uniform(*PAST_LEASE_SECS))


def api_kill(stack, rng, api):
    api.kill()
    time.sleep(rng.uniform(0.1, 1.5))
    api.start()
    stack.await_api(api)


def api_term(stack, rng, api):
    if not api.stop(30):
        raise Trouble(f"{api.name} did not end within 30 s of SIGTERM; its log: {api.log}")
    api.start()
    stack.await_api(api)


def postgres_fast(stack, rng, _):
    stack.postgres.stop("fast")
    time.sleep(rng.uniform(0.2, 5))
    stack.postgres.start()


def postgres_crash(stack, rng, _):
    stack.postgres.stop("immediate")
    time.sleep(rng.uniform(0.2, 5))
    stack.postgres.start()


def engine_restart(stack, rng, _):
    stack.engine.dockerd.stop(60)
    time.sleep(rng.uniform(0.2, 2))
    stack.engine.start()


def engine_kill(stack, rng, _):
    stack.engine.dockerd.kill()
    time.sleep(rng.uniform(0.2, 2))
    stack.engine.start()


def engine_pause(stack, rng, _):
    with stack.engine.dockerd.frozen():
        time.sleep(rng.uniform(2, 7))


def store_read_only(stack, rng, _):
    with stack.store_disk.read_only():
        time.sleep(rng.uniform(2, 6))


def store_full(stack, rng, _):
    with stack.store_disk.full():
        time.sleep(rng.uniform(2, 6))


def disk_full(stack, rng, _):
    with stack.jobs_disk.full():
        time.sleep(rng.uniform(2, 6))


def connections_cut(stack, rng, _):
    for _ in range(rng.randint(1, 4)):
        stack.database.cut()
        time.sleep(rng.uniform(0, 0.5))


def connections_held(stack, rng, _):
    with stack.database.held():
        time.sleep(rng.uniform(1, LEASE_SECS + 3))


KINDS = [
    worker_kill, worker_term, worker_freeze, api_kill, api_term, postgres_fast, postgres_crash, engine_restart, engine_kill, engine_pause,
    store_read_only, store_full, disk_full, connections_cut, connections_held,
]
NAMES = [kind.__name__ for kind in KINDS]


def draw(rng, count, names):
    """Every kind once in a random order, then again: a short run leaves none out for long."""
    drawn = []
    while len(drawn) < count:
        drawn += rng.sample(names, len(names))
    return drawn[:count]


@dataclasses.dataclass
class Fault:
    number: int
    kind: str
    target: str
    job: str | None
    began_at: float
    lifted_at: float = 0.0
    # Until the job that the target had in its hands moved on, or any where it had none; None when nothing did.
    recovery_secs: float | None = None
    ended_by_themselves: list = dataclasses.field(default_factory=list)


class Faults:
    def __init__(self, stack, audit, rng, log):
        self.stack, self.audit, self.rng, self.log = stack, audit, rng, log
        self.met = []

    def run(self, count, names):
        for number, kind in enumerate(draw(self.rng, count, names), 1):
            time.sleep(self.rng.uniform(0.3, 2.5))
            self._strike(number, kind)

    def _strike(self, number, kind):
        function = KINDS[NAMES.index(kind)]
        target = self.rng.choice({"worker": self.stack.workers, "api": self.stack.apis}.get(kind.split("_")[0], [None]))
        job = self.audit.job_of_worker(target.log) if target in self.stack.workers else None
        fault = Fault(number, kind, target.name if target else "", job, time.time())
        self.met.append(fault)
        function(self.stack, self.rng, target)
        fault.lifted_at = time.time()
        try:
            wait_until("progress", lambda: self._recovered(fault), PATIENCE_SECS, 0.3)
        except Trouble:
            say(f"fault {number}, {kind} {fault.target}: nothing moves for {PATIENCE_SECS} s")
        else:
            say(f"fault {number}, {kind} {fault.target}: {fault.lifted_at - fault.began_at:.1f} s, got over in {fault.recovery_secs:.1f} s")
        for program in self.stack.apis + self.stack.workers:
            if not program.lives():
                fault.ended_by_themselves.append(program.name)
                program.start()
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(fault)) + "\n")

    def _recovered(self, fault):
        fault.recovery_secs = self.audit.first_progress(fault.lifted_at, fault.job)
        # A job that ended while the fault lasted moves no more, so any other tells.
        if fault.recovery_secs is None and fault.job and self.audit.has_ended(fault.job):
            fault.recovery_secs = self.audit.first_progress(fault.lifted_at, None)
        return fault.recovery_secs is not None
