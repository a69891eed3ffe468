"""A Postgres of the run's own, whose writes wait for the disk as in production."""

import glob
import os
import shutil
import subprocess

from processes import Trouble, free_port, rows, run


class Postgres:
    DATABASE = "chaos"

    def __init__(self, folder, log):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not found:
            raise Trouble("no PostgreSQL found: run scripts/setup")
        self.bin, self.data, self.log, self.port = found[-1], os.path.join(folder, "postgres"), log, free_port()
        os.mkdir(self.data)
        # It refuses to run as root; Debian's package brings the user.
        shutil.chown(self.data, "postgres", "postgres")
        open(self.log, "ab").close()
        shutil.chown(self.log, "postgres", "postgres")
        self._as_owner("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        self.start()
        run(*self._psql("postgres"), "-c", f"CREATE DATABASE {self.DATABASE}")

    def _as_owner(self, program, *arguments):
        command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", os.path.join(self.bin, program)]
        # pg_ctl leaves a server behind that would hold a pipe open.
        done = subprocess.run([*command, *arguments], cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True, timeout=90)
        if done.returncode != 0:
            raise Trouble(f"{program} failed; its log: {self.log}")

    def _psql(self, database):
        return ["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", database]

    def start(self):
        options = f"-p {self.port} -k '' -c listen_addresses=127.0.0.1 -c max_connections=200"
        self._as_owner("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "60", "-o", options, "start")

    def stop(self, mode):
        """`fast` ends connections and writes everything out; `immediate` ends it as a crash would."""
        self._as_owner("pg_ctl", "-D", self.data, "-m", mode, "-w", "-t", "60", "stop")

    def execute(self, sql):
        return run(*self._psql(self.DATABASE), "-c", sql, timeout_secs=20)

    def rows(self, query):
        """The rows of a query, each as a dictionary."""
        return rows(self.execute, query)
