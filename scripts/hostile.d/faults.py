"""What is no submission's doing: one simple case; scripts/chaos has the others by the hundred."""

import time

from cases import Case, client, ended, source, submit


class KilledWorkers(Case):
    def run(self, service):
        """Kills every worker while a job is in its capture."""
        text = source("", "time.sleep(4)").encode()
        who = client(service)
        job = submit(service, who, text)
        deadline = time.monotonic() + 30
        while not any("capture" in name for name in service.containers()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for worker in service.workers:
            worker.kill()
        for worker in service.workers:
            worker.start()
        seen = ended(service, who, job, text)
        wrong = seen.defects()
        if seen.status != "succeeded":
            wrong.append(f"{seen.status}: {seen.error}")
        return wrong


CASES = [
    KilledWorkers(
        "killed-workers",
        "26",
        "every worker is killed (`kill -9`) in mid-capture and started again",
        "one result; no second container, no orphan",
        alone=True,
    )
]
