"""Requests as bytes: what no library sends."""

import contextlib
import re
import socket
import time

TIMEOUT_SECS = 15


def send(service, data, pieces=None, pause_secs=0.0, end=False, wait_secs=TIMEOUT_SECS, most=1 << 20):
    """What the API answers to `data`, and then to each of `pieces`; b"" where it closes without a word. `end` says that no more is sent."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=wait_secs) as one:
        # It may hang up while there is more to send.
        with contextlib.suppress(OSError):
            one.sendall(data)
            for piece in pieces or ():
                time.sleep(pause_secs)
                one.sendall(piece)
            if end:
                one.shutdown(socket.SHUT_WR)
        return received(one, wait_secs, most)


def received(one, wait_secs=TIMEOUT_SECS, most=1 << 20):
    answer, deadline = b"", time.monotonic() + wait_secs
    with contextlib.suppress(OSError):
        while len(answer) < most and time.monotonic() < deadline:
            one.settimeout(max(0.1, deadline - time.monotonic()))
            chunk = one.recv(65536)
            if not chunk:
                break
            answer += chunk
    return answer


def statuses(answer):
    """The statuses of all answers in it."""
    return [int(found) for found in re.findall(rb"(?:^|[\r\n}\]])HTTP/1\.[01] (\d{3})", answer)]


def head(method, path, cli_id, *lines, close=True):
    """A request's head."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        *(["Connection: close"] if close else []),
        *([f"X-Popcorn-Cli-Id: {cli_id}"] if cli_id else []),
        *lines,
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


BOUNDARY = "frontier"
FORM = f"Content-Type: multipart/form-data; boundary={BOUNDARY}"


def part(disposition, content, *lines):
    content = content if isinstance(content, bytes) else content.encode()
    heading = [f"Content-Disposition: form-data; {disposition}", *lines] if disposition is not None else list(lines)
    return f"--{BOUNDARY}\r\n".encode() + "\r\n".join(heading).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + content + b"\r\n"


def file_part(content=b"def custom_kernel(data): return data\n", name="submission.py"):
    return part(f'name="file"; filename="{name}"', content)


def field(name, value):
    return part(f'name="{name}"', value)


def form(*parts):
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def usual(*more):
    """A form that would be accepted but for what is in `more`."""
    return form(file_part(), field("leaderboard", "vectoradd_sample"), *more)


def post(service, cli_id, body, *lines, **options):
    """Sends a form."""
    return send(service, head("POST", "/profile", cli_id, FORM, f"Content-Length: {len(body)}", *lines) + body, **options)
