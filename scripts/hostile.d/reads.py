"""Hostile requests beside uploads: what is another's, paths, methods, heads, and what is no HTTP. None of them may be answered with 500 and above."""

import contextlib
import socket
import time
import uuid

from ask import Ask, raw, refused
from cases import client, ended, source, submit
from wire import FORM, head, send, statuses

CONNECTIONS = 400


def many_connections(service, cli_id):
    """Connections that say nothing, or a header a second."""
    held = []
    try:
        for number in range(CONNECTIONS):
            one = socket.create_connection(("127.0.0.1", service.port), timeout=20)
            held.append(one)
            one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" if number % 2 else b"")
        for number in range(3):
            time.sleep(1)
            for one in held[1::2]:
                with contextlib.suppress(OSError):
                    one.sendall(b"X-Slow: %d\r\n" % number)
            began = time.monotonic()
            if service.health().get("status") != "ok" or time.monotonic() - began > 5:
                yield "the API answers nobody else, or slowly"
        job = submit(service, client(service), source())
        if not job:
            yield "nothing can be submitted meanwhile"
    finally:
        for one in held:
            one.close()


SMUGGLED = b"GET /jobs/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


def smuggling(service, cli_id):
    """Two ways to read one request: a proxy before the service must never be made to see another number of requests."""
    body = b"0\r\n\r\n" + SMUGGLED
    start = f"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: {cli_id}\r\n{FORM}\r\n".encode()
    shapes = {
        "length and chunks": start + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(body) + body,
        "chunks and length": start + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + body,
        "two lengths": start + b"Content-Length: 5\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        "two lengths in one": start + b"Content-Length: 5, %d\r\n\r\n" % len(body) + body,
        "a length with a sign": start + b"Content-Length: +5\r\n\r\n" + body,
        "a length of words": start + b"Content-Length: five\r\n\r\n" + body,
        "a length beyond 64 bits": start + b"Content-Length: 99999999999999999999\r\n\r\n" + body,
        "chunks twice": start + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
        "chunks of another name": start + b"Transfer-Encoding: xchunked\r\n\r\n" + body,
        "chunks and identity": start + b"Transfer-Encoding: chunked, identity\r\n\r\n" + body,
        "chunks after a space": start + b"Transfer-Encoding : chunked\r\n\r\n" + body,
        "chunks after a tab": start + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + body,
        "a folded header": start + b"X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + body,
        "a NUL in a header": start + b"X: a\0b\r\nContent-Length: 5\r\n\r\n" + body,
        "a bare CR": start + b"X: a\rContent-Length: 5\r\n\r\n" + body,
    }
    for what, data in shapes.items():
        answer = send(service, data, wait_secs=3)
        found = statuses(answer)
        # Chunks win over a length by the standard; then the rest is a request of its own, and the connection may as well end.
        if any(status < 400 or status >= 500 for status in found):
            yield f"{what}: answered {found}"
        ambiguous = what not in ("length and chunks", "chunks and length", "chunks twice", "a folded header", "chunks and identity")
        if ambiguous and len(found) > 1:
            yield f"{what}: answered as {len(found)} requests"


def own_job(service):
    who = client(service)
    job = submit(service, who, source())
    return who, job, ended(service, who, job, source().encode())


def strangers(service, cli_id):
    """Nothing tells another's job from none, in words or in headers."""
    who, job, seen = own_job(service)
    name = next(iter(seen.archives))
    for path, nothing in (
        (f"/jobs/{job}", f"/jobs/{uuid.uuid4().hex}"),
        (f"/jobs/{job}/artifacts/{name}", f"/jobs/{uuid.uuid4().hex}/artifacts/{name}"),
    ):
        answers = [send(service, head("GET", one, cli_id)) for one in (path, nothing)]
        if [statuses(answer) for answer in answers] != [[404], [404]]:
            yield f"{path}: {[statuses(answer) for answer in answers]}"
        plain = [
            b"\r\n".join(sorted(line for line in answer.split(b"\r\n") if not line.lower().startswith(b"date:"))) for answer in answers
        ]
        if plain[0] != plain[1]:
            yield f"{path}: the answers differ: {answers}"
        for other in (None, "nobody", cli_id + " ", cli_id + "\t" + who.headers["X-Popcorn-Cli-Id"]):
            found = statuses(send(service, head("GET", path, other)))
            if not found or found[0] not in (401, 404, 400):
                yield f"{path} as {other!r}: {found}"


def artifact_names(service, cli_id):
    who, job, seen = own_job(service)
    good, cli_id = next(iter(seen.archives)), who.headers["X-Popcorn-Cli-Id"]
    for name in (
        "..",
        ".",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fsecret",
        "..%2f..%2fsecret",
        "..\\secret",
        "..%5csecret",
        "%00",
        good + "%00",
        good + "%00.zip",
        good + "%20",
        good.upper(),
        good + "/",
        good + "/x",
        "./" + good,
        "%2f" + good,
        "x/../" + good,
        good + "?x",
        "%c0%ae%c0%ae",
        "%",
        "%zz",
        "%u002e",
        "//" + good,
        good + ";x",
        "*",
        "a" * 5000,
        "manifest.json",
        "%0d%0aX-Evil:%20y",
        "~",
        "$HOME",
    ):
        answer = send(service, head("GET", f"/jobs/{job}/artifacts/{name}", cli_id))
        found = statuses(answer)
        if found != [404] and not (name == good + "?x" and found == [200]) and not (found and found[0] in (400, 414, 431)):
            yield f"{name[:40]}: {found}"
        if b"X-Evil" in answer.split(b"\r\n\r\n")[0] or service.secrets["file of the host"].encode() in answer:
            yield f"{name[:40]}: {answer[:200]!r}"
    answer = send(
        service,
        head(
            "GET",
            f"/jobs/{job}/artifacts/{good}",
            cli_id,
            "Range: bytes=0-1,0-1,0-1,5-,-99999999999999999999",
            "If-None-Match: *",
            "Accept-Encoding: gzip",
        ),
    )
    if statuses(answer)[:1] not in ([200], [206], [304]) or b"nosniff" not in answer or b"attachment" not in answer:
        yield f"ranges: {answer[:300]!r}"


def ids(service, cli_id):
    for one in (
        "0",
        "-1",
        "9" * 400,
        "g" * 32,
        "A" * 32,
        uuid.uuid4().hex.upper(),
        str(uuid.uuid4()),
        "{" + str(uuid.uuid4()) + "}",
        "urn:uuid:" + str(uuid.uuid4()),
        "%00" * 32,
        "0" * 31,
        "0" * 33,
        "\u0660" * 32,
        "' OR 1=1 --",
        "null",
        "..",
        "%F0%9F%92%A9",
        "0x" + "0" * 30,
        "a" * 100_000,
    ):
        one = "".join(f"%{byte:02X}" if byte > 0x7E or byte <= 0x20 else chr(byte) for byte in one.encode())
        yield from refused(f"id {one[:40]}", send(service, head("GET", f"/jobs/{one}", cli_id)), silence=True)


def methods(service, cli_id):
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "CONNECT", "PROPFIND", "get", "POST", "M" * 5000, "GE\tT", "G\0T", ""):
        for path in ("/jobs/" + "0" * 32, "/profile", "/health"):
            if (method, path) == ("POST", "/profile"):
                continue
            answer = send(service, head(method, path, cli_id, "Content-Length: 0"))
            found = statuses(answer)
            if any(status < 400 or status >= 500 for status in found) or b"X-Popcorn" in answer:
                yield f"{method[:20]} {path}: {answer[:120]!r}"
    if statuses(send(service, head("HEAD", "/health", None))) != [200]:
        yield "HEAD /health is not answered"


def paths(service, cli_id):
    for path in (
        "/",
        "//",
        "/.",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/jobs/../health/../../secret",
        "/jobs//artifacts/",
        "/jobs/%2f..%2f",
        "/health/",
        "/health%00",
        "/health?" + "x" * 10_000,
        "/HEALTH",
        "/profile/",
        "/admin",
        "/metrics",
        "/debug/pprof",
        "/.git/config",
        "/.env",
        "/" + "a/" * 5000,
        "/" + "x" * 100_000,
        "\\..\\secret",
        "http://127.0.0.1:5432/",
        "http://evil.example/jobs/x",
        "*",
        "health",
        "/jobs/\x7f",
        "/jobs/a#b",
    ):
        answer = send(service, head("GET", path, cli_id))
        found = statuses(answer)
        # The page is at "/", of whichever host.
        is_there = path in ("/", "http://127.0.0.1:5432/") or path.startswith("/health?")
        if any(status >= 500 for status in found) or any(status < 400 for status in found) and not is_there:
            yield f"{path[:40]}: {found}"
        if service.secrets["file of the host"].encode() in answer or b"root:" in answer:
            yield f"{path[:40]}: {answer[:200]!r}"


def header_floods(service, cli_id):
    for what, lines in {
        "ten thousand headers": [f"X-{number}: y" for number in range(10_000)],
        "a header of a megabyte": ["X: " + "y" * (1 << 20)],
        "a name of a megabyte": ["X" * (1 << 20) + ": y"],
        "one header ten thousand times": ["Cookie: a=b"] * 10_000,
        "a header without a name": [": y"],
        "a header without a colon": ["X"],
        "an id of a megabyte": ["X-Popcorn-Cli-Id: " + "y" * (1 << 20)],
    }.items():
        yield from refused(
            what, send(service, head("GET", "/jobs/" + "0" * 32, cli_id if "id" not in what else None, *lines)), silence=True
        )


def credentials(service, cli_id):
    path = "/jobs/" + "0" * 32
    # Who is unknown learns no more than that.
    for what, lines in {
        "none": [],
        "empty": ["X-Popcorn-Cli-Id:"],
        "blank": ["X-Popcorn-Cli-Id:   "],
        "two": [f"X-Popcorn-Cli-Id: {cli_id}", f"X-Popcorn-Cli-Id: {cli_id}"],
        "unknown": ["X-Popcorn-Cli-Id: nobody"],
        "long": ["X-Popcorn-Cli-Id: " + "y" * 300],
        "with a space": [f"X-Popcorn-Cli-Id: {cli_id} x"],
        "not ASCII": ["X-Popcorn-Cli-Id: \xe9"],
        "a tab": ["X-Popcorn-Cli-Id: a\tb"],
        "by a cookie": [f"Cookie: X-Popcorn-Cli-Id={cli_id}"],
        "by authorization": [f"Authorization: Bearer {cli_id}"],
        "as a proxy says": [f"X-Forwarded-User: {cli_id}"],
    }.items():
        yield from refused(what, send(service, head("GET", path, None, *lines)), 401, 400, *([404] if what == "unknown" else []))
        yield from refused(what, send(service, head("POST", "/profile", None, FORM, "Content-Length: 0", *lines)), 401, 400)
    yield from refused("in the query", send(service, head("GET", f"{path}?X-Popcorn-Cli-Id={cli_id}", None)), 401)


def pipelined(service, cli_id):
    """A thousand requests in one go, and whoever sends them reads nothing."""
    one = head("GET", "/jobs/" + "0" * 32, cli_id, close=False)
    found = statuses(send(service, one * 200 + head("GET", "/health", None), wait_secs=30))
    if found[-1:] != [200] or set(found[:-1]) != {404}:
        yield f"{len(found)} answers, {sorted(set(found))}"
    with socket.create_connection(("127.0.0.1", service.port), timeout=3) as deaf:
        with contextlib.suppress(OSError):
            for _ in range(2_000):
                deaf.sendall(one * 200)
        if service.health().get("status") != "ok":
            yield "the API answers nobody else meanwhile"


CASES = [
    Ask(
        "many-connections",
        "24",
        f"holds {CONNECTIONS} connections, half of them sending a header now and then",
        "others are served and can submit",
        ask=many_connections,
        alone=True,
    ),
    Ask(
        "smuggling",
        "24",
        "sends requests of two lengths, of a length and chunks, with odd spaces, folds and NUL",
        "never read as more requests than they are; 4xx",
        ask=smuggling,
    ),
    Ask(
        "header-floods",
        "24",
        "sends ten thousand headers, a header of a megabyte, headers that are none",
        "4xx or closed",
        ask=header_floods,
    ),
    Ask(
        "strangers-jobs",
        "25",
        "asks for another's job and archive",
        "404, the same to the byte as for none; 401 without an id",
        ask=strangers,
    ),
    Ask(
        "artifact-names",
        "25",
        "asks for archives by `..`, %2e%2e, %00, backslashes, line ends and 5,000 characters",
        "404; no header is injected",
        ask=artifact_names,
    ),
    Ask("job-ids", "25", "asks for jobs by ids that are huge, of other digits, of other spellings", "404 or 4xx", ask=ids),
    Ask("paths", "25", "asks for paths out of the tree, other sites, and what other services have", "4xx", ask=paths),
    Ask("methods", "25", "uses every other method, and methods that are none", "4xx; TRACE repeats nothing", ask=methods),
    Ask("credentials", "25", "comes without an id, with two, with one in another place", "401", ask=credentials),
    Ask(
        "other-protocols",
        "24",
        "speaks HTTP/2, TLS, HTTP/0.9, SMTP and noise to the port",
        "4xx or closed",
        ask=raw(
            ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100)),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)),
            ("0.9", b"GET /\r\n"),
            ("9.9", b"GET / HTTP/9.9\r\n\r\n"),
            ("SMTP", b"EHLO x\r\n"),
            ("noise", bytes(range(256)) * 40),
            ("only newlines", b"\r\n" * 10_000),
            (
                "upgrade",
                b"GET /jobs/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
            ),
            ("no host", b"GET /jobs/x HTTP/1.1\r\n\r\n"),
            ("two hosts", b"GET /jobs/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        ),
    ),
    Ask(
        "pipelined",
        "24",
        "sends two hundred requests in one go, and then thousands without reading an answer",
        "answered in order; who does not read waits alone",
        ask=pipelined,
    ),
]
