"""The requests of scripts/configure_northflank_autodeploy.sh."""

import argparse
import json
import os
import pathlib
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

HEALTH_PATH = "/_proxy/health"
# Their values are shown to nobody.
SECRET = re.compile(r"KEY|TOKEN|PASSWORD|SECRET")
# What the proxy cannot start without; a file of this machine would not be there.
NEEDED = ["NCU_SERVICE_DEPLOY_HOST", "NCU_SERVICE_DEPLOY_USER", "NCU_SERVICE_DEPLOY_SSH_KEY", "NCU_SERVICE_DEPLOY_KNOWN_HOSTS"]
OTHERS = ["NCU_SERVICE_DEPLOY_SSH_PORT", "NCU_SERVICE_DEPLOY_API_PORT"]


class Refused(Exception):
    """One sentence for whoever started this."""


class Northflank:
    def __init__(self, url, token):
        self.url, self.token = url.rstrip("/"), token

    def ask(self, method, path, body=None):
        """The answer's data; None where there is no such thing."""
        request = urllib.request.Request(
            f"{self.url}/v1{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer).get("data", {})
        except urllib.error.HTTPError as error:
            if error.code == 404 and method == "GET":
                return None
            text = error.read().decode(errors="replace")
            try:
                text = json.loads(text)["error"]["message"]
            except (ValueError, KeyError, TypeError):
                text = text[:300]
            hint = "; give NORTHFLANK_API_TOKEN a token that may create and update services" if error.code in (401, 403) else ""
            # What was refused may be quoted, and it holds secrets.
            raise Refused(f"Northflank answered {error.code} to {method} {path}: {without_secrets(text, body)}{hint}") from None
        except (OSError, ValueError) as error:
            raise Refused(f"Northflank cannot be reached at {self.url}: {error}") from None


def without_secrets(text, body):
    for name, value in (body or {}).get("runtimeEnvironment", {}).items():
        if SECRET.search(name):
            for line in value.splitlines():
                text = text.replace(line, "***") if line.strip() else text
    return text


def shown(body):
    """The body as it may be read by others."""
    variables = {name: "***" if SECRET.search(name) else value for name, value in body.get("runtimeEnvironment", {}).items()}
    return {**body, "runtimeEnvironment": variables} if variables else body


def wanted(arguments, variables):
    """What the service is to be, as far as it is ours."""
    kind = urllib.parse.urlparse(arguments.repository).hostname or ""
    return {
        "vcsData": {
            "projectUrl": arguments.repository,
            "projectType": "gitlab" if "gitlab" in kind else "bitbucket" if "bitbucket" in kind else "github",
            "projectBranch": arguments.branch,
        },
        "buildSettings": {"dockerfile": {"buildEngine": "buildkit", "dockerFilePath": "/docker/proxy.Dockerfile", "dockerWorkDir": "/"}},
        "ports": [{"name": "http", "internalPort": arguments.port, "public": True, "protocol": "HTTP"}],
        # No liveness probe: a tunnel that is closed is opened again by the proxy, and a restart would help nobody.
        "healthChecks": [
            {
                "protocol": "HTTP",
                "type": "readinessProbe",
                "path": HEALTH_PATH,
                "port": arguments.port,
                "initialDelaySeconds": 5,
                "periodSeconds": 10,
                "timeoutSeconds": 5,
                "failureThreshold": 6,
            }
        ],
        "runtimeEnvironment": variables,
        "disabledCI": False,
        "disabledCD": False,
    }


def covers(there, wanted):
    """Whether what is there has all that is wanted; it may have more."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(covers(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(there, list) and len(there) == len(wanted) and all(map(covers, there, wanted))
    return there == wanted


def given_variables(environment, port):
    for name in NEEDED:
        file = environment.get(f"{name}_FILE")
        if not environment.get(name) and file:
            try:
                environment[name] = pathlib.Path(file).read_text(encoding="utf-8")
            except OSError as error:
                raise Refused(f"{name}_FILE={file} cannot be read: {error.strerror}") from None
    found = {name: environment[name] for name in NEEDED + OTHERS if environment.get(name)}
    return {**found, "NCU_SERVICE_PROXY_PORT": str(port)}


def configure(northflank, arguments, environment):
    project = f"/projects/{urllib.parse.quote(arguments.project, safe='')}"
    service = f"{project}/services/{urllib.parse.quote(arguments.service.lower().replace(' ', '-'), safe='')}"
    there = northflank.ask("GET", service)
    variables = given_variables(environment, arguments.port)
    if there is None:
        if missing := [name for name in NEEDED if name not in variables]:
            raise Refused(f"{missing[0]} is not set, and the proxy needs it: set it here, or set it in Northflank after the service is made elsewhere")
        if not arguments.plan:
            raise Refused("--plan is missing: a service that is new needs the name of one of Northflank's deployment plans")
        body = {
            "name": arguments.service,
            "description": "Public proxy of ncu-service, which deploys to the GPU host",
            "billing": {"deploymentPlan": arguments.plan},
            # One: each instance would deploy, and they would take turns.
            "deployment": {"instances": 1, "docker": {"configType": "default"}},
            **wanted(arguments, variables),
        }
        return change(northflank, arguments, "POST", f"{project}/services/combined", body)
    # Whether the answer to a change merges variables is Northflank's affair, so all of them are sent.
    known = (northflank.ask("GET", f"{service}/runtime-environment") or {}).get("runtimeEnvironment", {})
    if missing := [name for name in NEEDED if name not in variables and name not in known]:
        raise Refused(f"{missing[0]} is set neither here nor in the service, and the proxy needs it")
    body = wanted(arguments, {**known, **variables})
    if covers({**there, "runtimeEnvironment": known}, body):
        print("the service is as it should be")
        return
    identity = service.rsplit("/", 1)[1]
    change(northflank, arguments, "PATCH", f"{project}/services/combined/{identity}", body)


def change(northflank, arguments, method, path, body):
    if arguments.dry_run:
        print(f"{method} {path}")
        print(json.dumps(shown(body), indent=2))
        return
    northflank.ask(method, path, body)
    print(f"{'made' if method == 'POST' else 'changed'}: pushes to {arguments.branch} build docker/proxy.Dockerfile and deploy it")


def main():
    parser = argparse.ArgumentParser(prog="configure_northflank_autodeploy.sh")
    parser.add_argument("--project", required=True, help="its id")
    parser.add_argument("--service", required=True, help="its name")
    parser.add_argument("--repository", required=True, help="URL of the git repository, which is linked with Northflank")
    parser.add_argument("--branch", default="main")
    parser.add_argument("--plan", help="deployment plan of a new service")
    parser.add_argument("--port", type=int, default=8080, help="on which the proxy listens")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    token = os.environ.get("NORTHFLANK_API_TOKEN")
    if not token:
        print("error: NORTHFLANK_API_TOKEN is not set: make a token in Northflank's settings", file=sys.stderr)
        return 2
    try:
        configure(Northflank(os.environ.get("NORTHFLANK_API_URL", "https://api.northflank.com"), token), arguments, dict(os.environ))
    except Refused as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
