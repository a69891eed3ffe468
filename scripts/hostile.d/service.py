"""The service that is attacked: an API, workers with pretended GPUs of their own, a Postgres, a KernelBot that knows one id."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import uuid

import kernelbot
from processes import (
    Program,
    Trouble,
    free_port,
    health,
    plain_environment,
    rows,
    run,
    say,
    wait_until,
)

# As many as may run at a time: each has a pretended GPU.
WORKERS = 4
MIB = 1 << 20
MEMORY, TMP, SHM, OUTPUT = 256 * MIB, 64 * MIB, 16 * MIB, 16 * MIB
PIDS, STREAM, EXPORT = 128, 64 << 10, 4 * MIB
# Limits of the overview, of the capture and of each export. An honest job takes a second of each where the machine is idle.
STEP_SECS = 15
UPLOAD_SECS, UPLOADS = 4, 8
SETTINGS_OF_API = {
    "NCU_SERVICE_UPLOAD_TIMEOUT_SECS": UPLOAD_SECS,
    "NCU_SERVICE_MAX_UPLOADS": UPLOADS,
}
SETTINGS_OF_WORKERS = {
    "NCU_SERVICE_GPUS": "none",
    "NCU_SERVICE_LEASE_SECS": 5,
    "NCU_SERVICE_MIN_FREE": "256m",
    "NCU_SERVICE_CONTAINER_FREE_DISK": "128m",
    "NCU_SERVICE_CONTAINER_MEMORY": MEMORY,
    "NCU_SERVICE_CONTAINER_CPUS": 1,
    "NCU_SERVICE_CONTAINER_PIDS": PIDS,
    "NCU_SERVICE_CONTAINER_TMP": TMP,
    "NCU_SERVICE_CONTAINER_SHM": SHM,
    "NCU_SERVICE_CONTAINER_OUTPUT": OUTPUT,
    "NCU_SERVICE_WARMUP_TIMEOUT_SECS": STEP_SECS,
    "NCU_SERVICE_CAPTURE_TIMEOUT_SECS": STEP_SECS,
    "NCU_SERVICE_EXPORT_TIMEOUT_SECS": STEP_SECS,
    "NCU_SERVICE_MAX_STREAM_BYTES": STREAM,
    "NCU_SERVICE_MAX_EXPORT_BYTES": EXPORT,
}


class Service:
    def __init__(self, out, root, programs, image, ending):
        """Starts everything; `ending` is the ExitStack that takes it down again, whatever happens."""
        self.root, self.logs, self.work = root, f"{out}/logs", f"{out}/work"
        os.makedirs(self.logs)
        os.makedirs(self.work)
        ending.callback(shutil.rmtree, self.work, ignore_errors=True)
        self.jobs_dir, self.artifacts = f"{self.work}/jobs", f"{self.work}/artifacts"
        self._copy_problems()

        # None of these may show in an answer, in an archive or in a log.
        self.cli_id = f"hostile-{uuid.uuid4().hex}"
        self.secrets = {
            "CLI id": self.cli_id,
            "password of the database": f"word{uuid.uuid4().hex}",
            "file of the host": f"deep{uuid.uuid4().hex}",
        }
        self.secret_file = f"{self.work}/secret"
        pathlib.Path(self.secret_file).write_text(self.secrets["file of the host"] + "\n", encoding="utf-8")

        say("starting Postgres")
        self._postgres = {**os.environ, "NCU_SERVICE_RUN_DIR": f"{self.work}/postgres"}
        ending.callback(subprocess.run, [f"{root}/scripts/postgres", "stop"], env=self._postgres, capture_output=True)
        self.database = self._start_postgres()

        say(f"starting an API and {WORKERS} workers")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        common = plain_environment(
            NCU_SERVICE_DATABASE_URL=self.database.replace("postgres@", f"postgres:{self.secrets['password of the database']}@"),
            NCU_SERVICE_REFERENCE_PROBLEMS_DIR=f"{self.work}/problems",
            NCU_SERVICE_ARTIFACTS_URL=f"file://{self.artifacts}",
        )
        self.api = Program(
            "api",
            [f"{programs}/ncu-api", "serve"],
            common
            | strings(SETTINGS_OF_API)
            | {
                "NCU_SERVICE_LISTEN": f"127.0.0.1:{self.port}",
                "KERNELBOT_API_URL": f"http://127.0.0.1:{kernelbot.start(self.cli_id)}",
            },
            f"{self.logs}/api.log",
        )
        settings = common | strings(SETTINGS_OF_WORKERS) | {"NCU_SERVICE_JOBS_DIR": self.jobs_dir, "NCU_SERVICE_WORKER_IMAGE": image}
        for name in ("DOCKER_HOST", "NCU_SERVICE_RUNNER_PATH"):
            if name in os.environ:
                settings[name] = os.environ[name]
        self.workers = [
            Program(
                f"worker-{number}",
                [f"{programs}/ncu-worker", "run"],
                settings | {"NCU_SERVICE_GPU_LOCK_DIR": f"{self.work}/gpu-{number}"},
                f"{self.logs}/worker-{number}.log",
            )
            for number in range(WORKERS)
        ]
        self.programs = [self.api, *self.workers]
        self.scope = None
        # After the workers, which would make more.
        ending.callback(self._remove_containers)
        for program in self.programs:
            ending.callback(program.kill)
            program.start()
        wait_until(
            f"all workers are ready (logs: {self.logs})", lambda: (self.health().get("workers") or {}).get("ready") == WORKERS, 60, 0.3
        )
        self.scope = self.rows("SELECT replace(id::text, '-', '') AS id FROM instance")[0]["id"]

    def _start_postgres(self, tries=3):
        """Its URL. The port that it finds free may be another's a moment later."""
        try:
            return run(f"{self.root}/scripts/postgres", "start", env=self._postgres).strip()
        except Trouble:
            if tries == 1:
                raise
            return self._start_postgres(tries - 1)

    def _copy_problems(self):
        """With a limit of captures that is ours: a task's own would be longer."""
        shutil.copytree(f"{self.root}/docker/dev/problems", f"{self.work}/problems")
        for task in pathlib.Path(f"{self.work}/problems").rglob("task.yml"):
            text = re.sub(r"(?m)^benchmark_timeout: .*$", f"benchmark_timeout: {STEP_SECS}", task.read_text())
            task.write_text(text)

    def health(self):
        return health(self.url)

    def rows(self, query):
        """The rows of a query, each as a dictionary."""
        return rows(lambda sql: run("psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", self.database, "-c", sql, timeout_secs=20), query)

    def containers(self):
        """Names of the containers of this service, whatever their state."""
        label = f"label=ncu-service.worker-scope={self.scope}"
        return run("docker", "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()

    def run_folders(self):
        """Folders of attempts."""
        return [str(path) for path in pathlib.Path(self.jobs_dir).glob("*/*")]

    def dead(self):
        """Names of the programs that ended though nobody had ended them."""
        return [program.name for program in self.programs if not program.lives()]

    def _remove_containers(self):
        for name in self.containers() if self.scope else []:
            with contextlib.suppress(Trouble):
                run("docker", "rm", "--force", name)


def strings(settings):
    return {name: str(value) for name, value in settings.items()}
