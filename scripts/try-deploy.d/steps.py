"""The steps, in their order: each goes on where the one before it ended."""

import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import zipfile

from client import moment, ncu_client
from northflank import TOKEN, Northflank
from processes import wait_until

# Each shape captures for longer than a deploy takes to restart everything.
SLOW = """import time
import standin_gpu

def add(a, b):
    time.sleep({seconds})
    return [x + y for x, y in zip(a, b)]

def custom_kernel(data):
    return standin_gpu.launch("void add<float>(float *)", 8, 128, add, *data)
"""
SHAPES = 3


def submit(host, url, seconds, **fields):
    file = pathlib.Path(host.work, "submission.py")
    file.write_text(SLOW.format(seconds=seconds), encoding="utf-8")
    return ncu_client.Service(url, host.cli_id).submit(file, {"leaderboard": "vectoradd_sample", **fields})


def manifests(host, url, body):
    """Of each archive, checked against the published length and its own checksums."""
    found = []
    service = ncu_client.Service(url, host.cli_id)
    for artifact in body["artifacts"]:
        path = service.fetch(artifact, pathlib.Path(host.work))
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
            assert archive.testzip() is None, artifact
            found.append(json.loads(archive.read("manifest.json")))
        path.unlink()
    return found


def check_delivered(host, url, body, shapes=SHAPES):
    assert body["status"] == "succeeded", body
    assert body["attempt"] == 1, f"it began anew: {body}"
    found = manifests(host, url, body)
    assert [manifest["benchmark_index"] for manifest in found] == list(range(shapes)), found
    return found


def unit_files(host):
    """systemd finds nothing wrong with the unit files."""
    if shutil.which("systemd-analyze") is None:
        print("    systemd-analyze is not on this machine: not checked", flush=True)
        return
    folder = pathlib.Path(host.work, "verify")
    folder.mkdir()
    for unit in pathlib.Path(host.root, "docker/systemd").iterdir():
        # No release is in this user's home.
        folder.joinpath(unit.name).write_text(re.sub(r"=%h\S+/bin/\S+", "=/bin/true", unit.read_text()))
    units = [str(path) for path in folder.iterdir() if path.suffix != ".conf"]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60)
    # What it says of the machine's own units is not ours.
    assert not [line for line in done.stderr.splitlines() if "ncu-" in line], done.stderr


def northflank_is_configured(host):
    """The service is made, then left alone, then brought back; requests are shown without secrets."""
    northflank = Northflank()
    script = "configure_northflank_autodeploy.sh"
    words = ["--project", "gpu", "--service", "Proxy", "--repository", "https://github.com/gpu-mode/ncu-service"]
    access = {"NORTHFLANK_API_URL": northflank.url, "NORTHFLANK_API_TOKEN": TOKEN}
    key = host.access()["NCU_SERVICE_DEPLOY_SSH_KEY"]

    def run(*more, **environment):
        status, text = host.script(script, *words, *more, **{**access, **environment})
        assert TOKEN not in text and key.splitlines()[2] not in text, text
        return status, text

    status, text = run(NORTHFLANK_API_TOKEN=None)
    assert (status, text.count("\n")) == (2, 1) and "NORTHFLANK_API_TOKEN is not set" in text, text
    status, text = run(NORTHFLANK_API_TOKEN="another")
    assert status == 1 and "401" in text, text
    status, text = run()
    assert status == 1 and "--plan is missing" in text, text
    status, text = run("--plan", "nf-compute-20", NCU_SERVICE_DEPLOY_KNOWN_HOSTS=None)
    assert status == 1 and "NCU_SERVICE_DEPLOY_KNOWN_HOSTS is not set" in text, text
    status, text = run("--plan", "nf-compute-20", "--dry-run")
    assert status == 0 and "POST /projects/gpu/services/combined" in text and '"NCU_SERVICE_DEPLOY_SSH_KEY": "***"' in text, text
    assert northflank.changes == []

    status, text = run("--plan", "nf-compute-20")
    assert status == 0, text
    (method, made), = northflank.changes
    assert method == "POST" and made["buildSettings"]["dockerfile"]["dockerFilePath"] == "/docker/proxy.Dockerfile", made
    assert (made["vcsData"]["projectBranch"], made["disabledCI"], made["disabledCD"]) == ("main", False, False), made
    assert made["healthChecks"][0]["path"] == "/_proxy/health" and made["runtimeEnvironment"]["NCU_SERVICE_DEPLOY_SSH_KEY"] == key
    assert run() == (0, "the service is as it should be\n")
    assert len(northflank.changes) == 1

    # A variable of somebody else stays, and one that is not given here, too.
    northflank.services["proxy"]["runtimeEnvironment"]["THEIRS"] = "1"
    northflank.services["proxy"]["vcsData"]["projectBranch"] = "other"
    status, text = run(NCU_SERVICE_DEPLOY_SSH_KEY=None)
    assert status == 0, text
    changed = northflank.services["proxy"]
    assert changed["vcsData"]["projectBranch"] == "main"
    assert (changed["runtimeEnvironment"]["THEIRS"], changed["runtimeEnvironment"]["NCU_SERVICE_DEPLOY_SSH_KEY"]) == ("1", key)
    assert [method for method, _ in northflank.changes] == ["POST", "PATCH"]

    words[3] = "refuse this"
    status, text = run("--plan", "nf-compute-20")
    assert status == 1 and "400" in text and "not accepted" in text, text


def missing_settings(host):
    """Whatever is missing is named in one sentence, and nothing is started."""
    release = host.release("0" * 40)
    for name in ("NCU_SERVICE_DEPLOY_HOST", "NCU_SERVICE_DEPLOY_USER", "NCU_SERVICE_DEPLOY_SSH_KEY", "NCU_SERVICE_DEPLOY_KNOWN_HOSTS"):
        environment = host.access(NCU_SERVICE_PROXY_RELEASE=release, **{name: None})
        done = subprocess.run([f"{host.root}/docker/proxy/entry"], env=environment, capture_output=True, text=True, timeout=20)
        assert done.returncode == 2, done
        assert done.stderr.startswith(f"error: {name} is not set: ") and done.stderr.count("\n") == 1, done.stderr
        status, text = host.script("update_ncu_service.sh", "--status", **{name: None})
        assert (status, text) == (2, done.stderr), text


def strange_host(host):
    """A host whose key is not the known one gets nothing, and a key that the host does not know opens nothing."""
    release = host.release("1" * 40)
    stranger = pathlib.Path(f"{host.keys}/stranger.pub").read_text().split()
    changed = {"NCU_SERVICE_DEPLOY_KNOWN_HOSTS": f"[127.0.0.1]:{host.ssh_port} {stranger[0]} {stranger[1]}"}
    unknown = {"NCU_SERVICE_DEPLOY_SSH_KEY": pathlib.Path(f"{host.keys}/stranger").read_text()}
    for number, wrong in enumerate((changed, unknown)):
        proxy = host.proxy(f"proxy-strange-{number}", release, **wrong)
        proxy.await_deploy("failed", 30)
        assert "nothing was deployed" in proxy.text()
        closed = 503, {"status": "unavailable", "tunnel": "closed", "api": "does not answer", "deploy": "failed"}
        wait_until("the health says that the tunnel is closed", lambda proxy=proxy, closed=closed: proxy.health() == closed, 10)
        proxy.end()
    assert not os.path.exists(f"{host.home}/ncu-service")


def first_deploy(host):
    """An empty host serves after the first deploy: schema, units, health; the secrets of it stand nowhere."""
    host.first = host.proxy("proxy-first", host.release("a" * 40))
    host.first.await_deploy("done")
    host.first.await_open()
    assert host.current() == "a" * 40
    assert host.health()["workers"]["alive"] == 2, host.health()
    brought = pathlib.Path(host.home, "ncu-service/current/release.env").read_text()
    assert brought == f"NCU_SERVICE_RUNNER_PATH={os.path.realpath(f'{host.home}/ncu-service/current')}/runner/ncu-runner\n", brought
    assert host.units.enabled == {"ncu-api.socket", "ncu-api.service", "ncu-worker@1.service", "ncu-worker@2.service"}
    wait_until("both workers are ready", lambda: host.health()["workers"]["ready"] == 2, 30)
    body = host.poller(host.first.url, submit(host, host.first.url, 0)).await_end()
    check_delivered(host, host.first.url, body)

    # The middle of the key, as one line.
    secret = host.access()["NCU_SERVICE_DEPLOY_SSH_KEY"].splitlines()[2].encode()
    holders = [number for command, environment, number in host.first.processes() if secret in command]
    assert not holders, f"the key stands in command lines: {holders}"
    # The first process was started with it; what that started was not.
    holders = [command for command, environment, number in host.first.processes() if secret in environment and b"entry" not in command]
    assert not holders, f"the key stands in environments: {holders}"
    for log in pathlib.Path(host.logs).iterdir():
        assert secret not in log.read_bytes(), f"the key stands in {log}"
    assert host.cli_id.encode() not in pathlib.Path(host.first.log).read_bytes()


def kernels_first_time(host):
    """A checkout that is served in place is left as it is: a link beside it takes its part."""
    status, text = host.script("update_reference_kernels.sh", "--branch", "main")
    assert status == 1 and "--first-time" in text, text
    status, text = host.script("update_reference_kernels.sh", "--branch", "main", "--first-time")
    assert status == 0, text
    assert f"NCU_SERVICE_REFERENCE_PROBLEMS_DIR={host.checkout}.current/problems" in pathlib.Path(host.home, "ncu-service.env").read_text()
    commit = host.git(host.checkout, "rev-parse", "HEAD")
    assert host.health()["problems"] == {"revision": commit, "dirty": False}, host.health()


def update_in_mid_job(host):
    """Another proxy brings another release while a job runs: its capture goes on, and no poll fails."""
    # For longer than the deploy takes.
    job = submit(host, host.first.url, 10, benchmark_index=0)
    poller = host.poller(host.first.url, job)
    started = host.await_capture(job)
    before = len(host.units.starts)
    second = host.proxy("proxy-second", host.release("b" * 40))
    second.await_deploy("done")
    second.await_open()
    assert host.current() == "b" * 40
    restarts = dict(host.units.starts[before:])
    assert restarts.keys() >= {"ncu-api.service", "ncu-worker@1.service", "ncu-worker@2.service"}, restarts
    manifest, = check_delivered(host, second.url, poller.await_end(), shapes=1)
    # The capture that ran when everything was restarted is the one that was delivered, by a worker of the new release.
    assert moment(manifest["container"]["started_at"]) == moment(started), (manifest["container"], started)
    ended = moment(manifest["container"]["ended_at"]).timestamp()
    assert max(restarts.values()) < ended, "the deploy took longer than the capture, so nothing was tried"
    row, = host.rows(f"SELECT attempt, adoption, losses, faults FROM jobs WHERE replace(id::text, '-', '') = '{job}'")
    assert (row["attempt"], row["losses"], row["faults"]) == (1, 0, 0) and row["adoption"] >= 1, row
    assert poller.longest_secs < 30, f"popcorn-cli gives a poll 30 s, one took {poller.longest_secs:.1f}"
    host.first.end()
    host.second = second


def failed_health_check(host):
    """A release whose API does not serve is taken back by itself; polls wait for it, and none fails."""
    job = submit(host, host.second.url, 3)
    poller = host.poller(host.second.url, job)
    host.await_capture(job)
    previous = f"{host.home}/ncu-service/previous"
    before = os.readlink(previous)
    release = host.release("c" * 40, broken_api=True)
    broken = host.proxy("proxy-broken", release)
    broken.await_deploy("rolled-back")
    assert "release " in broken.text() and "failed its check" in broken.text() and "broken on purpose" in broken.text(), broken.text()
    assert host.current() == "b" * 40
    assert os.readlink(previous) == before, "a rollback by hand would go elsewhere than before"
    # It goes on serving what runs.
    broken.await_open()
    check_delivered(host, host.second.url, poller.await_end())
    assert poller.longest_secs < 30, f"popcorn-cli gives a poll 30 s, one took {poller.longest_secs:.1f}"
    broken.end()
    # A restart of its container does not try it again.
    again = host.proxy("proxy-broken-again", release)
    again.await_deploy("done")
    assert "was current here before" in again.text(), again.text()
    assert host.current() == "b" * 40
    again.end()


def broken_tunnel(host):
    """The tunnel breaks under polls and is opened again; none of them fails."""
    job = submit(host, host.second.url, 2)
    poller = host.poller(host.second.url, job)
    host.await_capture(job)
    for _ in range(2):
        opened, polls = host.second.text().count("opening the tunnel"), poller.polls
        host.cut_connections()
        wait_until("the tunnel is opened again", lambda opened=opened: host.second.text().count("opening the tunnel") > opened, 20)
        wait_until("polls are answered again", lambda polls=polls: poller.polls > polls + 3, 20)
    host.second.await_open()
    check_delivered(host, host.second.url, poller.await_end())


def kernels_dirty(host):
    """An update of reference-kernels with a dirty tree is refused, and says which file."""
    host.old_kernels = host.git(host.checkout, "rev-parse", "HEAD")
    utils = pathlib.Path(host.origin, "problems/sample/utils.py")
    utils.write_text(utils.read_text() + "\n# of a newer revision\n")
    host.new_kernels = host.commit(host.origin, "newer utils")
    for folder, file in ((host.checkout, "problems/sample/eval.py"), (f"{host.checkout}.current", "problems/sample/mine.py")):
        path = pathlib.Path(folder, file)
        was = path.read_bytes() if path.exists() else None
        path.write_bytes((was or b"") + b"\n# a patch that nobody committed\n")
        status, text = host.script("update_reference_kernels.sh", "--branch", "main", "--keep-local")
        assert status == 1 and "is dirty" in text and file in text, text
        assert b"nobody committed" in path.read_bytes()
        path.write_bytes(was) if was is not None else path.unlink()
    assert host.git(f"{host.checkout}.current", "rev-parse", "HEAD") == host.old_kernels


def kernels_in_mid_job(host):
    """An update shows old and new revision, and a job in flight keeps the one that it started with."""
    job = submit(host, host.second.url, 2)
    poller = host.poller(host.second.url, job)
    host.await_capture(job)
    status, text = host.script("update_reference_kernels.sh", "--branch", "main")
    assert status == 0 and f"old: {host.old_kernels}" in text and f"new: {host.new_kernels}" in text, text
    assert poller.status() == "running", f"the update was to fall into the job: {poller.body}"
    # The next worker goes on with it, and with the same problems.
    before = poller.body["runs"]
    status, text = host.script("update_ncu_service.sh", "--restart")
    assert status == 0, text
    found = check_delivered(host, host.second.url, poller.await_end())
    seen = {(manifest["reference_kernels"]["commit"], utils_of(manifest)) for manifest in found}
    old_utils = digest_of(host, host.old_kernels)
    assert seen == {(host.old_kernels, old_utils)}, (seen, before)

    job = submit(host, host.second.url, 0, benchmark_index=0)
    manifest, = check_delivered(host, host.second.url, host.poller(host.second.url, job).await_end(), shapes=1)
    assert manifest["reference_kernels"] == {"commit": host.new_kernels, "dirty": False}, manifest["reference_kernels"]
    assert utils_of(manifest) == digest_of(host, host.new_kernels) != old_utils


def utils_of(manifest):
    return next(file["sha256"] for file in manifest["problem_files"] if file["name"] == "utils.py")


def digest_of(host, commit):
    text = subprocess.run(["git", "-C", host.origin, "show", f"{commit}:problems/sample/utils.py"], capture_output=True, check=True).stdout
    return hashlib.sha256(text).hexdigest()


def kernels_local_patch(host):
    """Commits that origin does not have are not dropped: refused, or kept in a branch."""
    served = f"{host.checkout}.current"
    path = pathlib.Path(served, "problems/sample/utils.py")
    path.write_text(path.read_text() + "\n# a patch of the operator's\n")
    patch = host.commit(os.path.realpath(served), "an operator's patch")
    status, text = host.script("update_reference_kernels.sh", "--branch", "main")
    assert status == 1 and "an operator's patch" in text and "--keep-local" in text, text
    assert host.git(served, "rev-parse", "HEAD") == patch
    status, text = host.script("update_reference_kernels.sh", "--branch", "main", "--keep-local")
    branch = re.search(r"kept in branch (\S+)", text)
    assert status == 0 and branch, text
    assert host.git(host.checkout, "rev-parse", branch[1]) == patch
    assert host.git(served, "rev-parse", "HEAD") == host.new_kernels


def emergency_deploys_exclude_each_other(host):
    """Two deploys from checkouts at once: one waits for the other, and the host ends with one whole release."""
    results = {}

    def deploy(commit):
        programs = f"{host.work}/programs-{commit}"
        results[commit] = host.script("update_ncu_service.sh", "--programs", programs, COMMIT=commit)

    commits = ["d" * 40, "e" * 40]
    for commit in commits:
        host.release(commit)
    threads = [threading.Thread(target=deploy, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in results.values()} == {0}, results
    assert sum("another deploy is under way" in text for _, text in results.values()) == 1, results
    last = host.current()
    assert last in commits
    assert host.units.services["ncu-api.service"].lives()
    program = os.readlink(f"/proc/{host.units.services['ncu-api.service'].pid()}/exe")
    assert last[:12] in program, program


def rollback(host):
    """One command goes back to the release before, and a restart of the proxy does not undo that."""
    last = host.current()
    status, text = host.script("update_ncu_service.sh", "--rollback")
    assert status == 0 and "serves" in text, text
    assert host.current() not in (last, "c" * 40)
    now = host.current()
    host.second.end()
    again = host.proxy("proxy-second-again", f"{host.work}/release-{'b' * 40}")
    again.await_deploy("done")
    again.await_open()
    assert host.current() == now and "was current here before" in again.text(), again.text()
    status, text = host.script("update_ncu_service.sh", "--status")
    assert status == 0 and f"* 0.1.0-{now[:12]}" in text and f"commit {last}" in text, text
    check_delivered(host, again.url, host.poller(again.url, submit(host, again.url, 0)).await_end())
    host.second = again


def old_releases_go(host):
    """Few releases are kept, the current one and the one before it among them, and no transfer is left."""
    releases = os.listdir(f"{host.home}/ncu-service/releases")
    assert len(releases) <= 6, releases
    assert os.listdir(f"{host.home}/ncu-service/incoming") == []


STEPS = [
    unit_files, northflank_is_configured, missing_settings, strange_host, first_deploy, kernels_first_time, update_in_mid_job, failed_health_check, broken_tunnel, kernels_dirty,
    kernels_in_mid_job, kernels_local_patch, emergency_deploys_exclude_each_other, rollback, old_releases_go,
]
