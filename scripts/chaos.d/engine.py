"""A container engine of the run's own, so that its restarts and pauses harm nobody else on this machine."""

import json
import os
import shutil
import signal
import subprocess
import time

from processes import Program, Trouble, plain_environment, run, say, wait_until


class Engine:
    def __init__(self, folder, logs):
        for program in ("dockerd", "containerd", "docker"):
            if shutil.which(program) is None:
                raise Trouble(f"no {program} found: run scripts/setup")
        self.root = os.path.join(folder, "engine")
        os.mkdir(self.root)
        self.socket = f"{self.root}/docker.sock"
        self.host = f"unix://{self.socket}"
        self.pidfile = f"{self.root}/docker.pid"
        containerd_socket = f"{self.root}/containerd.sock"
        configuration = f"{self.root}/containerd.toml"
        with open(configuration, "w", encoding="utf-8") as file:
            file.write('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        # Beside dockerd, not beneath it, as the units of Debian's packages have it: a restart of one spares the other.
        self.containerd = Program(
            "containerd",
            ["containerd", "--config", configuration, "--root", f"{self.root}/containerd", "--state", f"{self.root}/containerd-state",
             "--address", containerd_socket],
            plain_environment(), f"{logs}/containerd.log")
        self.dockerd = Program(
            "dockerd",
            ["dockerd", "--config-file", self._empty_configuration(), "--data-root", f"{self.root}/data", "--exec-root", f"{self.root}/exec",
             "--pidfile", self.pidfile, "--host", self.host, "--containerd", containerd_socket,
             # The containers have no network, and this machine's rules are not ours to change.
             "--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"],
            plain_environment(), f"{logs}/dockerd.log")
        self.events = Program("events", ["docker", "--host", self.host, "events", "--format", "{{json .}}"], plain_environment(), f"{logs}/engine-events.jsonl")

    def _empty_configuration(self):
        """Instead of /etc/docker/daemon.json, which is about the machine's engine."""
        path = f"{self.root}/daemon.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump({}, file)
        return path

    def start(self):
        if not self.containerd.lives():
            self.containerd.start()
        # One that was killed leaves it, and its number may be another's by now.
        if os.path.exists(self.pidfile):
            os.remove(self.pidfile)
        self.dockerd.start()
        wait_until(f"the engine answers (log: {self.dockerd.log})", self._answers_or_died, 60)
        self.events.kill()
        self.events.start()

    def _answers_or_died(self):
        if not self.dockerd.lives():
            raise Trouble(f"dockerd of this run does not stay up, so this machine cannot run a second engine; its log: {self.dockerd.log}")
        return subprocess.run(["docker", "--host", self.host, "version"], capture_output=True, timeout=20).returncode == 0

    def carry_over(self, image):
        """Copies an image of the machine's engine into this one."""
        began = time.monotonic()
        save = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE)
        load = subprocess.run(["docker", "--host", self.host, "load", "--quiet"], stdin=save.stdout, capture_output=True, text=True, timeout=300)
        save.stdout.close()
        if save.wait() != 0:
            raise Trouble(f"there is no image {image}: run scripts/build-images dev")
        if load.returncode != 0:
            raise Trouble(f"the engine of this run cannot take the image: {load.stderr.strip()}")
        say(f"image carried over in {time.monotonic() - began:.1f} s")

    def containers(self):
        """Ids and names of all containers, whatever their state."""
        return run("docker", "--host", self.host, "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}").split("\n")[:-1]

    def end(self):
        """Removes everything, and what the engine has mounted."""
        self.events.kill()
        self.dockerd.signal(signal.SIGCONT)
        left = [line.split()[0] for line in self.containers()] if self.dockerd.lives() else []
        if left:
            subprocess.run(["docker", "--host", self.host, "rm", "--force", *left], capture_output=True, timeout=60)
        self.dockerd.stop(30)
        self.containerd.stop(10)
