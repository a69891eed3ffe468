"""The played GPU host, and what stands around it: a Postgres, a KernelBot, a reference-kernels with its origin."""

import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import subprocess
import uuid

import kernelbot
from processes import Program, Trouble, free_port, health, plain_environment, rows, run, say, wait_until
from public import Poller, Proxy
from units import Units

LEASE_SECS, HEALTH_SECS = 5, 15


class Host:
    def __init__(self, out, root, programs, image, ending):
        """Starts what is there before the first deploy; `ending` is the ExitStack that takes it down again, whatever happens."""
        self.root, self.ending = root, ending
        self.logs, self.work = f"{out}/logs", f"{out}/work"
        self.home = f"{self.work}/home"
        for folder in (self.logs, self.home, f"{self.work}/units", f"{self.work}/bin"):
            os.makedirs(folder)
        ending.callback(shutil.rmtree, self.work, ignore_errors=True)
        self.pollers = []
        # As a release build has them: without what a debugger reads they are carried in no time.
        self.programs = pathlib.Path(self.work, "programs")
        self.programs.mkdir()
        for name in ("ncu-api", "ncu-worker"):
            run("strip", "-o", str(self.programs / name), f"{programs}/{name}")
        # The image's is linked statically, too.
        container = run("docker", "create", image).strip()
        run("docker", "cp", f"{container}:/usr/local/bin/ncu-runner", str(self.programs))
        run("docker", "rm", container)

        say("starting Postgres")
        self.postgres_environment = {**os.environ, "NCU_SERVICE_RUN_DIR": f"{self.work}/postgres"}
        ending.callback(subprocess.run, [f"{root}/scripts/postgres", "stop"], env=self.postgres_environment, capture_output=True)
        self.database = run(f"{root}/scripts/postgres", "start", env=self.postgres_environment).strip()

        self.cli_id = f"deploy-{uuid.uuid4().hex}"
        self.api_port, self.ssh_port = free_port(), free_port()
        self._make_kernels()
        self._write_environment(image)
        # After the units, which would make more.
        ending.callback(self._remove_containers)
        # A path of a socket is short.
        self.units = Units(self.home, f"{self.work}/units", self.logs, f"{self.work}/s")
        ending.callback(self.units.end)
        self._start_sshd()

    def _make_kernels(self):
        """A reference-kernels whose origin is beside it, checked out as an operator would."""
        self.origin, self.checkout = f"{self.work}/origin", f"{self.home}/reference-kernels"
        os.makedirs(f"{self.origin}")
        shutil.copytree(f"{self.root}/docker/dev/problems", f"{self.origin}/problems")
        self.git(self.origin, "init", "--quiet", "--initial-branch", "main")
        self.commit(self.origin, "problems")
        run("git", "clone", "--quiet", self.origin, self.checkout)

    def git(self, folder, *arguments):
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        return run("git", "-C", folder, *identity, *arguments).strip()

    def commit(self, folder, message):
        self.git(folder, "add", ".")
        self.git(folder, "commit", "--quiet", "--message", message)
        return self.git(folder, "rev-parse", "HEAD")

    def _write_environment(self, image):
        settings = {
            "NCU_SERVICE_DATABASE_URL": self.database,
            "NCU_SERVICE_REFERENCE_PROBLEMS_DIR": f"{self.checkout}/problems",
            "NCU_SERVICE_ARTIFACTS_URL": f"file://{self.work}/artifacts",
            "NCU_SERVICE_LISTEN": f"127.0.0.1:{self.api_port}",
            "KERNELBOT_API_URL": f"http://127.0.0.1:{kernelbot.start(self.cli_id)}",
            "NCU_SERVICE_JOBS_DIR": f"{self.work}/jobs",
            "NCU_SERVICE_GPU_LOCK_DIR": f"{self.work}/gpu-locks",
            "NCU_SERVICE_WORKER_IMAGE": image,
            "NCU_SERVICE_GPUS": "none",
            "NCU_SERVICE_LEASE_SECS": LEASE_SECS,
            "NCU_SERVICE_MIN_FREE": "256m",
            "NCU_SERVICE_CONTAINER_FREE_DISK": "128m",
            "NCU_SERVICE_CONTAINER_MEMORY": "512m",
            "NCU_SERVICE_CONTAINER_CPUS": 1,
            "NCU_SERVICE_WORKERS": 2,
            "NCU_SERVICE_HEALTH_SECS": HEALTH_SECS,
        }
        if "DOCKER_HOST" in os.environ:
            settings["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
        lines = ["# as an operator would write it", *(f"{name}={value}" for name, value in settings.items())]
        pathlib.Path(self.home, "ncu-service.env").write_text("\n".join(lines) + "\n")

    def _start_sshd(self):
        keys = f"{self.work}/keys"
        os.mkdir(keys, 0o700)
        for name in ("host", "user", "stranger"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", f"{keys}/{name}")
        shutil.copy(f"{self.root}/scripts/try-deploy.d/systemctl", f"{self.work}/bin/systemctl")
        # No journal here: the logs are files.
        pathlib.Path(self.work, "bin/journalctl").write_text(
            '#!/bin/sh\nfor word; do unit=$word; done\nexec tail -n 8 "$NCU_SERVICE_STANDIN_LOGS/$unit.log"\n')
        os.chmod(f"{self.work}/bin/journalctl", 0o755)
        environment = {
            "HOME": self.home,
            "PATH": f"{self.work}/bin:/usr/local/bin:/usr/bin:/bin",
            "NCU_SERVICE_STANDIN_UNITS": self.units.address,
            "NCU_SERVICE_STANDIN_LOGS": self.logs,
            "NCU_SERVICE_UNIT_DIR": f"{self.work}/units",
        }
        configuration = f"{keys}/sshd_config"
        pathlib.Path(configuration).write_text("\n".join([
            f"Port {self.ssh_port}", "ListenAddress 127.0.0.1", f"HostKey {keys}/host", f"AuthorizedKeysFile {keys}/user.pub",
            "PidFile none", "StrictModes no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password", f"UsePAM {'yes' if account_is_locked() else 'no'}", "LogLevel VERBOSE",
            "SetEnv " + " ".join(f"{name}={value}" for name, value in environment.items()), "",
        ]))
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if sshd is None:
            raise Trouble("no sshd found: install the package openssh-server")
        if os.geteuid() == 0:
            # Where it keeps apart what has no rights yet.
            os.makedirs("/run/sshd", exist_ok=True)
        self.sshd = Program("sshd", [sshd, "-D", "-e", "-f", configuration], plain_environment(), f"{self.logs}/sshd.log")
        self.ending.callback(self.sshd.kill)
        self.ending.callback(self.cut_connections)
        self.sshd.start()
        self.keys = keys
        host_key = " ".join(pathlib.Path(f"{keys}/host.pub").read_text().split()[:2])
        self.known_hosts = f"[127.0.0.1]:{self.ssh_port} {host_key}\n"

    def access(self, **changes):
        """The variables by which the scripts reach this host; None leaves one out."""
        settings = {
            "NCU_SERVICE_DEPLOY_HOST": "127.0.0.1",
            "NCU_SERVICE_DEPLOY_USER": getpass.getuser(),
            "NCU_SERVICE_DEPLOY_SSH_PORT": str(self.ssh_port),
            "NCU_SERVICE_DEPLOY_SSH_KEY": pathlib.Path(f"{self.keys}/user").read_text(),
            "NCU_SERVICE_DEPLOY_KNOWN_HOSTS": self.known_hosts,
            "NCU_SERVICE_DEPLOY_API_PORT": str(self.api_port),
            **changes,
        }
        return plain_environment(**{name: value for name, value in settings.items() if value is not None})

    def release(self, commit, broken_api=False):
        """A release of the built programs, or one whose API does not serve; the name of its folder is that of the commit."""
        programs = f"{self.work}/programs-{commit}"
        os.mkdir(programs)
        for name in ("ncu-api", "ncu-worker", "ncu-runner"):
            os.symlink(self.programs / name, f"{programs}/{name}")
        if broken_api:
            os.remove(f"{programs}/ncu-api")
            pathlib.Path(f"{programs}/ncu-api").write_text('#!/bin/sh\n[ "$1" = --version ] || { echo "ncu-api: broken on purpose" >&2; exit 1; }\n')
            os.chmod(f"{programs}/ncu-api", 0o755)
        folder = f"{self.work}/release-{commit}"
        run(f"{self.root}/scripts/deploy.d/assemble", programs, folder, env=plain_environment(COMMIT=commit))
        return folder

    def script(self, name, *arguments, **environment):
        """Runs one of the operators' scripts to its end: (exit status, what it printed)."""
        done = subprocess.run([f"{self.root}/scripts/{name}", *arguments], env=self.access(**environment), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
        with open(f"{self.logs}/scripts.log", "a", encoding="utf-8") as log:
            log.write(f"--- {name} {' '.join(arguments)}: {done.returncode}\n{done.stdout}")
        return done.returncode, done.stdout

    def proxy(self, name, release, **environment):
        proxy = Proxy(name, self.root, release, self.access(**environment), self.logs)
        self.ending.callback(proxy.end)
        proxy.start()
        return proxy

    def poller(self, url, job):
        poller = Poller(url, self.cli_id, job)
        self.ending.callback(poller.end)
        self.pollers.append(poller)
        return poller

    def failed_polls(self):
        failed = [poll for poller in self.pollers for poll in poller.failed]
        for poller in self.pollers:
            poller.failed.clear()
        return failed

    def end_polls(self):
        """A step that failed leaves its polls to nobody."""
        for poller in self.pollers:
            poller.end()

    def current(self):
        """The commit of the release that is current."""
        text = pathlib.Path(self.home, "ncu-service/current/release").read_text()
        return dict(line.split("=", 1) for line in text.splitlines())["commit"]

    def health(self):
        return health(f"http://127.0.0.1:{self.api_port}")

    def rows(self, query):
        """The rows of a query, each as a dictionary."""
        return rows(lambda sql: run("psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", self.database, "-c", sql, timeout_secs=20), query)

    def captures(self, job):
        """Ids of the captures of a job that run now."""
        filters = ["--filter", f"label=ncu-service.job={job}", "--filter", "label=ncu-service.role=capture"]
        return run("docker", "ps", "--no-trunc", *filters, "--format", "{{.ID}}").split()

    def await_capture(self, job):
        """When a capture of the job has started, as the engine says it."""
        wait_until("a capture runs", lambda: self.captures(job), 60)
        return run("docker", "inspect", "--format", "{{.State.StartedAt}}", self.captures(job)[0]).strip()

    def cut_connections(self):
        """Ends every session of sshd, as a network that breaks does in the end; new ones are taken."""
        for process in descendants(self.sshd.child.pid) if self.sshd.lives() else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _remove_containers(self):
        with contextlib.suppress(Trouble, IndexError):
            scope = self.rows("SELECT replace(id::text, '-', '') AS id FROM instance")[0]["id"]
            for name in run("docker", "ps", "--all", "--filter", f"label=ncu-service.worker-scope={scope}", "--format", "{{.Names}}").split():
                run("docker", "rm", "--force", name)


def descendants(process):
    """A session is two processes or one, and what it runs."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = [process]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found[1:]


def account_is_locked():
    """sshd refuses such an account when it does not ask PAM; only root can tell."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/etc/shadow").read_text().splitlines():
            name, password = line.split(":")[:2]
            if name == getpass.getuser():
                return password.startswith("!")
    return False
