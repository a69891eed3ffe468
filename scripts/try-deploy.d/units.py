"""A service manager for where systemd is not the first process: as much of it as the deployed unit files ask for.

Read anew at daemon-reload, with drop-ins; %h and %i; Type=simple and oneshot; Restart=always; a socket that is passed on. What a
unit file asks for beyond that restricts the programs further, and is left out here.
"""

import contextlib
import json
import pathlib
import signal
import socket
import socketserver
import subprocess
import threading
import time


class Refused(Exception):
    """Told to whoever called systemctl."""


class Units:
    def __init__(self, home, unit_dir, logs, address):
        self.home, self.unit_dir, self.logs, self.address = home, pathlib.Path(unit_dir), logs, address
        self.turn = threading.RLock()
        self.sockets, self.services, self.enabled = {}, {}, set()
        self.starts = []
        units = self

        class Call(socketserver.StreamRequestHandler):
            def handle(self):
                with contextlib.suppress(ValueError):
                    self.wfile.write(json.dumps(units.call(json.loads(self.rfile.readline()))).encode() + b"\n")

        self.server = socketserver.ThreadingUnixStreamServer(address, Call)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def call(self, arguments):
        words = [word for word in arguments if not word.startswith("-")]
        answer = {"stdout": "", "stderr": "", "status": 0}
        try:
            with self.turn:
                answer["stdout"], answer["status"] = self._do(words[0], words[1:], arguments)
        except Refused as why:
            answer["stderr"], answer["status"] = f"{why}\n", 1
        return answer

    def _do(self, verb, names, arguments):
        if verb in ("daemon-reload", "reset-failed"):
            return "", 0
        if verb == "enable":
            for name in names:
                self._read(name)
            self.enabled |= set(names)
            return "", 0
        if verb == "disable":
            self.enabled -= set(names)
            if "--now" in arguments:
                for name in names:
                    self._stop(name)
            return "", 0
        if verb == "is-active":
            active = all(self._is_active(name) for name in names)
            return ("" if "--quiet" in arguments else ("active\n" if active else "inactive\n")), 0 if active else 3
        if verb == "list-units":
            prefix, suffix = names[0].split("*")
            found = [name for name, service in self.services.items() if name.startswith(prefix) and name.endswith(suffix) and service.lives()]
            return "".join(f"{name} loaded active running a worker\n" for name in found), 0
        if verb == "show":
            return self._show(arguments, names), 0
        if verb in ("start", "stop", "restart"):
            # Together, as systemd does with units that do not wait for each other.
            if verb in ("stop", "restart"):
                for name in names:
                    self._tell_to_stop(name)
                for name in names:
                    self._stop(name)
            if verb in ("start", "restart"):
                for name in names:
                    self._start(name)
            return "", 0
        raise Refused(f"the stand-in for systemctl knows no {verb}")

    def _show(self, arguments, names):
        wanted = names[0]
        name = names[1]
        if wanted == "MainPID":
            service = self.services.get(name)
            return f"{service.pid() if service else 0}\n"
        if wanted == "Listen":
            held = self.sockets.get(name)
            return f"{held[1]} (Stream)\n" if held else "\n"
        raise Refused(f"the stand-in for systemctl shows no {wanted}: {arguments}")

    def _is_active(self, name):
        return name in self.sockets if name.endswith(".socket") else name in self.services and self.services[name].lives()

    def _start(self, name):
        if self._is_active(name):
            return
        unit = self._read(name)
        if name.endswith(".socket"):
            self.sockets[name] = listening(unit["ListenStream"][-1]), unit["ListenStream"][-1]
            return
        for needed in unit.get("Requires", []):
            self._start(needed)
        held = self.sockets.get(name.removesuffix(".service") + ".socket")
        service = Service(name, self._command(unit, name), lambda: self._environment(unit, name), held and held[0], self.logs, int(unit["TimeoutStopSec"][-1]) if "TimeoutStopSec" in unit else 90, self.starts)
        if unit.get("Type", ["simple"])[-1] == "oneshot":
            if service.run_to_its_end() != 0:
                raise Refused(f"Job for {name} failed because the control process exited with error code.")
            return
        self.services[name] = service
        service.start()

    def _tell_to_stop(self, name):
        if name in self.services:
            self.services[name].tell_to_stop()

    def _stop(self, name):
        if name.endswith(".socket"):
            if held := self.sockets.pop(name, None):
                held[0].close()
        elif service := self.services.pop(name, None):
            service.stop()

    def _read(self, name):
        """Every setting's values, in order; an empty one forgets those before it."""
        stem, at, rest = name.partition("@")
        file = self.unit_dir / (f"{stem}@.{rest.rpartition('.')[2]}" if at else name)
        if not file.is_file():
            raise Refused(f"Unit {name} not found.")
        found = {}
        for part in [file, *sorted(pathlib.Path(f"{file}.d").glob("*.conf"))]:
            for line in part.read_text().splitlines():
                if line.strip() and line[0] not in "#;[":
                    key, _, value = line.partition("=")
                    found[key] = [*found.get(key, []), value] if value else []
        found["Requires"] = " ".join(found.get("Requires", [])).split()
        return found

    def _expand(self, text, name):
        return text.replace("%h", self.home).replace("%i", name.partition("@")[2].rpartition(".")[0])

    def _command(self, unit, name):
        return [self._expand(word, name) for word in unit["ExecStart"][-1].split()]

    def _environment(self, unit, name):
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": self.home}
        for file in unit.get("EnvironmentFile", []):
            path = pathlib.Path(self._expand(file.removeprefix("-"), name))
            if not path.exists() and file.startswith("-"):
                continue
            for line in path.read_text().splitlines():
                if line.strip() and not line.startswith("#"):
                    key, _, value = line.partition("=")
                    environment[key.strip()] = value.strip().strip("\"'")
        return environment

    def end(self):
        self.server.shutdown()
        with self.turn:
            for service in self.services.values():
                service.stop()
            for held, _ in self.sockets.values():
                held.close()


class Service:
    def __init__(self, name, command, environment, passed, logs, stop_secs, starts):
        self.name, self.command, self.environment, self.passed = name, command, environment, passed
        self.log, self.stop_secs, self.starts = f"{logs}/{name}.log", stop_secs, starts
        self.child, self.wanted = None, True

    def _spawn(self):
        command, descriptors = self.command, {}
        environment = self.environment()
        if self.passed:
            number = self.passed.fileno()
            # systemd's number of it is 3, and the process is named so that no child of it takes the socket for its own.
            command = ["sh", "-c", f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&{number}', "sh", *command]
            descriptors = {"pass_fds": [number]}
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **descriptors)
        self.starts.append((self.name, time.time()))

    def run_to_its_end(self):
        self._spawn()
        return self.child.wait()

    def start(self):
        self._spawn()
        threading.Thread(target=self._start_again, daemon=True).start()

    def _start_again(self):
        while True:
            self.child.wait()
            time.sleep(1)
            if not self.wanted:
                return
            self._spawn()

    def lives(self):
        return self.child.poll() is None

    def pid(self):
        return self.child.pid if self.lives() else 0

    def tell_to_stop(self):
        self.wanted = False
        if self.lives():
            self.child.send_signal(signal.SIGTERM)

    def stop(self):
        self.tell_to_stop()
        try:
            self.child.wait(self.stop_secs)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def listening(address):
    host, _, port = address.rpartition(":")
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, int(port)))
    held.listen(1024)
    return held
