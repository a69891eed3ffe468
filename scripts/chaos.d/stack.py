"""The whole service with everything around it: two APIs behind a balancer, several workers of one host that share a GPU."""

import contextlib
import json
import os
import shutil
import urllib.request
import uuid

import kernelbot
from disks import SmallDisk, unmount_beneath
from engine import Engine
from postgres import Postgres
from processes import Program, free_port, plain_environment, say, wait_until
from proxy import Proxies
from watch import Watch

WORKERS, APIS = 3, 2
LEASE_SECS = 3
# What is too little for a job, and the size of the disk; a capture of the sample problems takes less than a megabyte.
DISK_MIB, MIN_FREE, CONTAINER_FREE = 64, "16m", "4m"


class Stack:
    def __init__(self, out, root, programs, image, ending):
        """Starts everything; `ending` is the ExitStack that takes it down again, whatever happens."""
        self.logs, self.work = os.path.join(out, "logs"), os.path.join(out, "work")
        os.makedirs(self.logs)
        os.makedirs(self.work)
        ending.callback(self._remove)
        self.problems = os.path.join(root, "docker/dev/problems")

        say("starting Postgres")
        self.postgres = Postgres(self.work, f"{self.logs}/postgres.log")
        ending.callback(self._stop_postgres)
        proxies = Proxies()
        self.database = proxies.open([self.postgres.port])

        say("starting an engine of its own")
        self.jobs_disk = SmallDisk(f"{self.work}/jobs", DISK_MIB)
        self.store_disk = SmallDisk(f"{self.work}/artifacts", DISK_MIB)
        self.engine = Engine(self.work, self.logs)
        ending.callback(self.engine.end)
        self.engine.start()
        self.engine.carry_over(image)
        self.watch = Watch(f"{self.engine.root}/data/containers")
        ending.callback(self.watch.end)

        say(f"starting {APIS} APIs and {WORKERS} workers")
        self.cli_id = f"chaos-{uuid.uuid4().hex}"
        ports = [free_port() for _ in range(APIS)]
        self.front = proxies.open(ports)
        self.url = f"http://127.0.0.1:{self.front.port}"
        environment = self._environment(image)
        kernelbot_url = f"http://127.0.0.1:{kernelbot.start(self.cli_id)}"
        self.apis = [
            Program(f"api-{number}", [f"{programs}/ncu-api", "serve"],
                    environment | {"NCU_SERVICE_LISTEN": f"127.0.0.1:{port}", "KERNELBOT_API_URL": kernelbot_url},
                    f"{self.logs}/api-{number}.log")
            for number, port in enumerate(ports)
        ]
        self.workers = [
            Program(f"worker-{number}", [f"{programs}/ncu-worker", "run"], environment, f"{self.logs}/worker-{number}.log")
            for number in range(WORKERS)
        ]
        for program in self.apis + self.workers:
            ending.callback(program.kill)
            program.start()
        for api, port in zip(self.apis, ports):
            api.url = f"http://127.0.0.1:{port}"
            self.await_api(api)

    def _environment(self, image):
        return plain_environment(
            NCU_SERVICE_DATABASE_URL=f"postgres://postgres@127.0.0.1:{self.database.port}/{Postgres.DATABASE}",
            NCU_SERVICE_REFERENCE_PROBLEMS_DIR=self.problems,
            NCU_SERVICE_ARTIFACTS_URL=f"file://{self.store_disk.path}",
            NCU_SERVICE_JOBS_DIR=self.jobs_disk.path,
            NCU_SERVICE_GPU_LOCK_DIR=f"{self.work}/gpu-locks",
            NCU_SERVICE_DOCKER_HOST=self.engine.host,
            NCU_SERVICE_WORKER_IMAGE=image,
            NCU_SERVICE_GPUS="none",
            NCU_SERVICE_LEASE_SECS=str(LEASE_SECS),
            NCU_SERVICE_MIN_FREE=MIN_FREE,
            NCU_SERVICE_CONTAINER_FREE_DISK=CONTAINER_FREE,
            # All clients have one id, and nothing here is about quotas.
            NCU_SERVICE_MAX_JOBS_PER_USER="1000",
            NCU_SERVICE_MAX_JOBS_PER_HOUR="100000",
        )

    def await_api(self, api):
        """Until it answers: a balancer's health check sends it no request before."""
        def answers():
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"{api.url}/health", timeout=5) as answer:
                    return json.load(answer)["status"] == "ok"
        wait_until(f"{api.name} answers (log: {api.log})", answers, 60)

    def run_folders(self):
        """Folders of attempts."""
        return [
            os.path.join(folder, name) for folder, names, _ in os.walk(self.jobs_disk.path) for name in names
            if folder != self.jobs_disk.path and os.path.dirname(folder) == self.jobs_disk.path
        ]

    def quarantines(self):
        with contextlib.suppress(FileNotFoundError):
            return [name for name in os.listdir(f"{self.work}/gpu-locks") if name.endswith(".quarantine")]
        return []

    def _stop_postgres(self):
        with contextlib.suppress(Exception):
            self.postgres.stop("immediate")

    def _remove(self):
        unmount_beneath(self.work)
        shutil.rmtree(self.work, ignore_errors=True)
