"""Requests that schemathesis makes of docs/openapi.yaml."""

import json
import os
import subprocess
import sys
import tempfile

from processes import Trouble, run, say

import raw

# It complains of every answer that is not as described, and of every 5xx.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance"
OPERATIONS = 26


def install(ending):
    """Its program in a folder that goes with the run; None where it cannot be had."""
    folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="ncu-schemathesis-"))
    say("installing schemathesis into a temporary folder")
    try:
        run(sys.executable, "-m", "venv", folder)
        run(f"{folder}/bin/pip", "install", "--quiet", "schemathesis>=4,<5", timeout_secs=300)
    except (Trouble, subprocess.TimeoutExpired) as trouble:
        say(f"schemathesis cannot be installed here, so all requests are raw: {trouble}")
        return None
    return f"{folder}/bin/schemathesis"


def throw(program, service, root, arguments, counts, faults, out):
    """About a tenth of all requests. Returns how many there were, and how many answers it complained of."""
    report = os.path.join(out, "schemathesis.har")
    examples = max(1, arguments.requests // 10 // OPERATIONS)
    command = [
        program, "run", str(root / "docs/openapi.yaml"), "--url", f"http://127.0.0.1:{service.port}",
        "--header", f"X-Popcorn-Cli-Id:{service.cli_id}", "--checks", CHECKS, "--phases", "examples,coverage,fuzzing",
        "--max-examples", str(examples), "--seed", str(arguments.seed), "--workers", "4", "--request-timeout", "60",
        "--suppress-health-check", "all", "--warnings", "off", "--continue-on-failure", "--no-shrink",
        "--report", "har", "--report-har-path", report,
    ]
    with open(os.path.join(out, "schemathesis.log"), "wb") as log:
        ended = subprocess.run(command, stdout=log, stderr=log, cwd=out, timeout=3600, check=False)
    if not os.path.exists(report):
        raise Trouble(f"schemathesis made no requests; its log: {log.name}")
    with open(report, encoding="utf-8") as file:
        entries = json.load(file)["log"]["entries"]
    for entry in entries:
        status, body = entry["response"]["status"], entry["response"]["content"].get("text") or ""
        kind = raw.kind(status, body.encode())
        counts[kind] += 1
        if kind == "5xx":
            faults.append(f"{entry['request']['method']} {entry['request']['url']}: {status} {body[:200]}")
    return len(entries), complaints(log.name) if ended.returncode else 0


def complaints(log):
    """How many it has, and at least one."""
    with open(log, encoding="utf-8", errors="replace") as file:
        return max(1, sum(line.startswith("- ") for line in file))
