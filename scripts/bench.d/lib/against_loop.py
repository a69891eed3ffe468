"""A job through the service against a loop over the same containers. See scripts/bench.d/gpu-pipeline.

While the service runs a first job, what its containers are made of is noted: the engine's own description of each, and a copy of
what it reads. The loop makes the same containers of that, one after the other: a capture, then the export of its report, then
`zip -6` of what both left. So both sides run the same programs with the same options under the same restrictions.
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import result

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import client  # noqa: E402

REPORT = "profile/profile.ncu-rep"


class Engine:
    """The container engine's API, over its socket; a connection a call."""

    def __init__(self):
        host = os.environ.get("NCU_SERVICE_DOCKER_HOST") or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self.socket = host.removeprefix("unix://")

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.socket)
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content else None

    def of_job(self, job):
        filters = urllib.parse.quote(json.dumps({"label": [f"ncu-service.job={job}"]}))
        return [found["Id"] for found in self.call("GET", f"/containers/json?all=true&filters={filters}")]

    def run(self, body):
        """Creates, starts, waits for and removes a container."""
        created = self.call("POST", "/containers/create", body)["Id"]
        self.call("POST", f"/containers/{created}/start")
        code = self.call("POST", f"/containers/{created}/wait")["StatusCode"]
        self.call("DELETE", f"/containers/{created}")
        if code != 0:
            raise RuntimeError(f"a container of the loop ended with {code}")


class Notes:
    """The containers of a job as the service made them: {(shape, role): (description, copy of its /in)}."""

    def __init__(self, engine, folder):
        self.engine, self.folder, self.noted, self.over = engine, folder, {}, threading.Event()

    def watch(self, job):
        while not self.over.is_set():
            for container in self.engine.of_job(job):
                try:
                    self.note(self.engine.call("GET", f"/containers/{container}/json"))
                except (RuntimeError, OSError):
                    # It went while it was looked at; a container that matters is there for longer.
                    pass
            time.sleep(0.02)

    def note(self, found):
        labels = found["Config"]["Labels"]
        key = (int(labels["ncu-service.benchmark"]), labels["ncu-service.role"])
        if key in self.noted:
            return
        mounts = {mount["Destination"]: mount["Source"] for mount in found["Mounts"] if mount["Type"] == "bind"}
        copy = self.folder / f"{key[0]}-{key[1]}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(mounts["/in"], copy)
        self.noted[key] = ({"Config": found["Config"], "HostConfig": found["HostConfig"]}, copy)

    def body(self, key, sources):
        """What the engine is asked for: the description, with these sources of its mounts."""
        description, copy = self.noted[key]
        sources = {"/in": copy, **sources}
        host = json.loads(json.dumps(description["HostConfig"]))
        for mount in host.get("Mounts") or []:
            if mount["Target"] in sources:
                mount["Source"] = str(sources[mount["Target"]])
        host["Binds"] = [rebound(bind, sources) for bind in host.get("Binds") or []]
        config = {name: value for name, value in description["Config"].items() if name not in ("Labels", "Hostname")}
        return {**config, "HostConfig": host}


def rebound(bind, sources):
    source, target, *options = bind.split(":")
    return ":".join([str(sources.get(target, source)), target, *options])


def through_service(service, arguments, watch=None):
    """Seconds from the submission to the job's end, as the service has them; the job's body."""
    fields = {"leaderboard": arguments.leaderboard, "ncu_capture": arguments.mode}
    if arguments.index is not None:
        fields["benchmark_index"] = arguments.index
    job_id = service.submit(arguments.file, {name: value for name, value in fields.items() if value is not None})
    watcher = watch and threading.Thread(target=watch, args=(job_id,), daemon=True)
    if watcher:
        watcher.start()
    while (job := service.job(job_id))["status"] not in client.ENDED:
        time.sleep(0.2)
    if job["status"] != "succeeded":
        sys.exit(f"error: the service's job ended as {job['status']}: {job['error']}")
    return (client.moment(job["ended_at"]) - client.moment(job["created_at"])).total_seconds()


def through_loop(engine, notes, folder):
    """Seconds of the loop over the same shapes; and of its captures alone."""
    captured = 0.0
    began = time.monotonic()
    for shape in sorted({shape for shape, _ in notes.noted}):
        place = pathlib.Path(tempfile.mkdtemp(dir=folder))
        out, exported, report = place / "out", place / "export-out", place / "report"
        user = notes.noted[shape, "capture"][0]["Config"]["User"].split(":")
        for name in (out, exported, report):
            name.mkdir()
        for name in (out, exported):
            os.chown(name, *map(int, user))
        from_ = time.monotonic()
        engine.run(notes.body((shape, "capture"), {"/out": out}))
        captured += time.monotonic() - from_
        taken = report / pathlib.Path(REPORT).name
        (out / REPORT).rename(taken)
        taken.chmod(0o644)
        engine.run(notes.body((shape, "export"), {"/out": exported, "/report": report}))
        kept = [path for folder in (out, report) for path in folder.rglob("*") if path.is_file()]
        kept += exported.glob("ncu-details.*")
        subprocess.run(["zip", "-q", "-6", "-j", str(place / "profile.zip"), *map(str, kept)], check=True)
    return time.monotonic() - began, captured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True)
    parser.add_argument("--goal", type=float, required=True)
    parser.add_argument("--leaderboard", required=True)
    parser.add_argument("--file", type=pathlib.Path, required=True)
    parser.add_argument("--index", type=int)
    parser.add_argument("--mode")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--simulated", action="store_true")
    arguments = parser.parse_args()
    service = client.ncu_client.Service(os.environ["POPCORN_BREV_PROFILER_URL"], os.environ.get("POPCORN_CLI_ID"))
    engine = Engine()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        notes = Notes(engine, folder)
        through_service(service, arguments, notes.watch)
        notes.over.set()
        shapes = sorted({shape for shape, _ in notes.noted})
        missing = [key for shape in shapes for role in ("capture", "export") if (key := (shape, role)) not in notes.noted]
        if missing or not shapes:
            sys.exit(f"error: these containers were not seen: {missing}")
        through_loop(engine, notes, folder)
        rounds = []
        for number in range(arguments.rounds):
            by_service = through_service(service, arguments)
            by_loop, captured = through_loop(engine, notes, folder)
            rounds.append({"service": round(by_service, 2), "loop": round(by_loop, 2), "captures": round(captured, 2)})
            print(f"round {number + 1}: {rounds[-1]}", file=sys.stderr, flush=True)
    value = round(statistics.median(one["service"] / one["loop"] for one in rounds), 3)
    result.tell(
        arguments.name, value, arguments.goal, value <= arguments.goal, shapes=len(shapes), seconds=rounds,
        simulated=arguments.simulated,
    )


if __name__ == "__main__":
    main()
