"""Hostile requests. None of them may queue a job, get an answer of 500 and above, or keep others from being served."""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import socket
import time
import uuid

import wire
from cases import Case, client, ended, source, submit
from service import UPLOADS, UPLOAD_SECS
from wire import FORM, field, file_part, form, head, part, post, send, statuses, usual

# What is no legal request is answered with one of these, or the connection is closed.
REFUSALS = range(400, 500)
CONNECTIONS = 400


@dataclasses.dataclass
class Ask(Case):
    """`ask` gets the service and a CLI id that is good, and returns what is wrong."""

    ask: object = None
    # Jobs that must be queued by it; None where it looks itself.
    jobs: int | None = 0

    def run(self, service):
        cli_id = f"{service.cli_id}-{uuid.uuid4().hex[:12]}"
        wrong = list(self.ask(service, cli_id))
        if self.jobs is not None and (found := len(jobs_of(service, cli_id))) != self.jobs:
            wrong.append(f"{found} jobs were queued instead of {self.jobs}")
        began = time.monotonic()
        if service.health().get("status") != "ok":
            wrong.append("the API is not well after it")
        if time.monotonic() - began > 5:
            wrong.append("the API is slow after it")
        return wrong


def jobs_of(service, cli_id):
    owner = hashlib.sha256(b"ncu-service owner\0" + cli_id.encode()).hexdigest()
    return service.rows(f"SELECT id FROM jobs WHERE owner = decode('{owner}', 'hex')")


def refused(what, answer, *wanted, silence=False):
    """What is wrong with answers that should all be refusals, of the statuses `wanted` if there are any."""
    found = statuses(answer)
    if not found:
        return [] if silence and not answer else [f"{what}: no answer ({answer[:80]!r})"]
    if wrong := [status for status in found if status not in (wanted or REFUSALS)]:
        return [f"{what}: answered {wrong}: {answer[-200:]!r}"]
    # What hyper refuses by itself has no body.
    body = answer.rsplit(b"\r\n\r\n", 1)[-1]
    if body and b'"detail"' not in body:
        return [f"{what}: no sentence: {body[:100]!r}"]
    return []


def forms(*named, wanted=()):
    """An `ask` that sends each form and wants it refused; `named` are (what, body)."""
    def ask(service, cli_id):
        for what, body in named:
            yield from refused(what, post(service, cli_id, body), *wanted)
    return ask


def raw(*named, silence=True, wanted=()):
    """An `ask` that sends bytes, in which CLI stands for the id."""
    def ask(service, cli_id):
        for what, data in named:
            yield from refused(what, send(service, data.replace(b"CLI", cli_id.encode()), end=True, wait_secs=8), *wanted, silence=silence)
    return ask


LEADERBOARD = field("leaderboard", "vectoradd_sample")
FILES = [
    ("empty", form(file_part(b""), LEADERBOARD)),
    ("1,000,001 bytes", form(file_part(b"#" * 1_000_001), LEADERBOARD)),
    ("4 MB", form(file_part(b"#" * (4 << 20)), LEADERBOARD)),
    ("not UTF-8", form(file_part(b"\xff\xfe"), LEADERBOARD)),
    ("half of a character", form(file_part(b"x = 1 # \xc3"), LEADERBOARD)),
    ("surrogates", form(file_part(b"x = '\xed\xa0\x80'"), LEADERBOARD)),
    ("NUL", form(file_part(b"x = 1\0"), LEADERBOARD)),
    ("an archive", form(file_part(gzip.compress(b"x" * 1000), "submission.tar.gz"), LEADERBOARD)),
    ("another kind", form(file_part(name="submission.cu"), LEADERBOARD)),
    ("UTF-16", form(file_part("x = 1".encode("utf-16")), LEADERBOARD)),
]
FORMS = [
    ("no file", form(LEADERBOARD)),
    ("no leaderboard", form(file_part())),
    ("nothing", form()),
    ("two files", form(file_part(), file_part(), LEADERBOARD)),
    ("a file in another field", form(part('name="code"; filename="a.py"', b"x"), file_part(), LEADERBOARD)),
    ("the file as a text", form(field("file", "x = 1"), LEADERBOARD)),
    ("two leaderboards", form(file_part(), LEADERBOARD, LEADERBOARD)),
    ("two indices", usual(field("benchmark_index", "0"), field("benchmark_index", "1"))),
    ("a part without a name", form(part(None, b"x", "X-Other: y"), file_part(), LEADERBOARD)),
    ("an empty name", usual(field("", "x"))),
    ("33 parts", usual(*(field(f"f{number}", "x") for number in range(33)))),
    ("ten thousand parts", usual(*(field(f"f{number}", "x") for number in range(10_000)))),
    ("a long field", usual(field("note", "x" * 10_000))),
    ("a field that is not UTF-8", usual(field("note", b"\xff"))),
    ("a long name of a field", usual(field("n" * 5000, "x"))),
    ("a form in a form", form(part('name="inner"', form(file_part()).replace(b"frontier", b"inner"), "Content-Type: multipart/mixed; boundary=inner"), LEADERBOARD)),
    ("no end", form(file_part(), LEADERBOARD)[:-8]),
    ("no beginning", form(file_part(), LEADERBOARD)[3:]),
    ("another boundary", form(file_part(), LEADERBOARD).replace(b"frontier", b"border")),
    ("bare newlines", form(file_part(), LEADERBOARD).replace(b"\r\n", b"\n")),
    ("an endless part's head", f"--{wire.BOUNDARY}\r\nX: ".encode() + b"x" * 500_000),
    ("a part of base64", form(part('name="file"; filename="a.py"', b"\xff", "Content-Transfer-Encoding: base64"), LEADERBOARD)),
]
OPTIONS = [
    *((f"{name}={value[:30]!r}", usual(field(name, value))) for name, value in (
        ("ncu_flags", "--import x"), ("ncu_env", "LD_PRELOAD=/tmp/x.so"), ("ncu_gpus", "all"), ("ncu_capture", "window --set full"), ("ncu_capture", ""), ("ncu_capture", "HOT"),
        ("ncu_launch_count", "0"), ("ncu_launch_count", "-1"), ("ncu_launch_count", "1e9"), ("ncu_launch_count", "9" * 400), ("ncu_launch_count", "1; rm -rf /"), ("ncu_launch_count", "NaN"),
        ("ncu_launch_count", "\u0661"), ("ncu_launch_count", " 1"), ("ncu_warm_calls", "-1"), ("ncu_warm_calls", "1000000"), ("ncu_warm_calls", "0x1"), ("ncu_clock_control", "reset"),
        ("ncu_kernel_name", ""), ("ncu_kernel_name", "a\0b"), ("ncu_kernel_name", "--import"), ("ncu_kernel_name", "@/etc/passwd"), ("ncu_kernel_name", "n" * 1025), ("ncu_kernel_name", "n" * 9000), ("ncu_kernel_name_base", "--import"), ("ncu_kernel_name_base", "mangled\n"),
        ("benchmark_index", "-1"), ("benchmark_index", "3"), ("benchmark_index", "9" * 400), ("benchmark_index", "0.0"), ("benchmark_index", "0x0"), ("benchmark_index", "\u0660"), ("benchmark_index", "")))
]
LEADERBOARDS = [
    *((f"leaderboard {name[:30]!r}", form(file_part(), field("leaderboard", name))) for name in (
        "", " ", "../sample/vectoradd_py", "/etc/passwd", "sample/../sample/vectoradd_py", "vectoradd_sample\0", "vectoradd_sample/../x", "..", "'; DROP TABLE jobs; --", "\x1b[2J", "x" * 300, "VECTORADD_SAMPLE",
        "vectoradd_sample\n", "${jndi:ldap://x}", "{{7*7}}", "%s%s%n", "\u202evectoradd"))
]


def inert(service, cli_id):
    """Accepted, and what it says more has no effect."""
    fields = (field("LD_PRELOAD", "/tmp/x.so"), field("NVIDIA_VISIBLE_DEVICES", "all"), field("env", "PATH=/tmp"), field("image", "evil:latest"), field("command", "sh"), field("privileged", "1"),
              field("ncu_kernel_name", "x --import /etc/passwd -o /usr/x; $(id) `id` | sh"))
    answer = post(service, cli_id, usual(field("benchmark_index", "0"), *fields), "LD_PRELOAD: /tmp/x.so", "X-Forwarded-For: 127.0.0.1", "X-Http-Method-Override: DELETE")
    if statuses(answer) != [202]:
        return [f"{answer[-200:]!r}"]
    who = client(service)
    who.headers["X-Popcorn-Cli-Id"] = cli_id
    seen = ended(service, who, json.loads(answer.rsplit(b"\r\n\r\n", 1)[-1])["job_id"])
    return [] if seen.status == "failed" and "matches none" in seen.error else [f"{seen.status}: {seen.error[:200]}"]


def file_names(service, cli_id):
    """Hostile names of the file: refused, or the base name is kept as data."""
    accepted = 0
    for name in ("../../../../tmp/evil.py", "/etc/cron.d/evil.py", "..\\..\\evil.py", "a b.py", "-rf.py", "$(id).py", "'.py", "é.py", "CON.py", "a:b.py", "%2e%2e%2fevil.py", "\u202eyp.exe.py"):
        answer = post(service, cli_id, form(file_part(source().encode(), name), LEADERBOARD, field("benchmark_index", "0")))
        if statuses(answer) == [202]:
            accepted += 1
        else:
            yield from refused(name, answer)
    for name in ("", ".py", "..", "a\0.py", "a\x1b[2J.py", "n" * 300 + ".py", "a.py/", "evil.py.so", "a\\r\\nX: y.txt"):
        yield from refused(repr(name[:20]), post(service, cli_id, form(file_part(name=name), LEADERBOARD)))
    rows = jobs_of(service, cli_id)
    if len(rows) != accepted:
        yield f"{accepted} were accepted, {len(rows)} are queued"
    who = client(service)
    who.headers["X-Popcorn-Cli-Id"] = cli_id
    for row in rows:
        seen = ended(service, who, str(row["id"]).replace("-", ""), source().encode())
        yield from seen.defects()
        kept = seen.manifest.get("submission", {}).get("file_name", "")
        if seen.status != "succeeded" or "/" in kept or "\\" in kept:
            yield f"{seen.status} as {kept!r}"
    if leftovers := [path for path in ("/tmp/evil.py", "/etc/cron.d/evil.py") if os.path.exists(path)]:
        yield f"{leftovers} were written"


def slow_body(service, cli_id):
    body = usual()
    began = time.monotonic()
    answer = send(service, head("POST", "/profile", cli_id, FORM, f"Content-Length: {len(body)}") + body[:30], (bytes([byte]) for byte in body[30:60]), pause_secs=0.5, wait_secs=UPLOAD_SECS + 20)
    yield from refused("a slow body", answer, 408)
    if time.monotonic() - began > UPLOAD_SECS + 25:
        yield f"it was held for {time.monotonic() - began:.0f} s"


def many_slow_bodies(service, cli_id):
    """More slow uploads than there are places: the next one is told so, and their places are free when they are ended."""
    held = []
    try:
        for _ in range(UPLOADS + 8):
            one = socket.create_connection(("127.0.0.1", service.port), timeout=20)
            held.append(one)
            one.sendall(head("POST", "/profile", cli_id, FORM, "Content-Length: 1000000") + form(file_part())[:50])
        time.sleep(0.5)
        answer = post(service, cli_id, usual())
        if statuses(answer) not in ([503], [429]) or b'"detail"' not in answer:
            yield f"one more upload was answered {answer[-200:]!r}"
        if service.health().get("status") != "ok":
            yield "the API answers nobody else meanwhile"
        for one in held:
            if not set(statuses(wire.received(one, UPLOAD_SECS + 15))) <= {408, 503, 429}:
                yield "a slow upload was not refused"
    finally:
        for one in held:
            one.close()
    yield from refused("afterwards", post(service, cli_id, form(file_part())), 422)


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


def endless_chunks(service, cli_id):
    """A body in chunks that has no end."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    opening = head("POST", "/profile", cli_id, FORM, "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n" % (len(form(file_part())[:60]), form(file_part())[:60])
    yield from refused("endless", send(service, opening, (chunk for _ in range(400)), wait_secs=UPLOAD_SECS + 20), silence=True)
    for what, tail in (("no number", b"zz\r\nxx\r\n"), ("a huge number", b"FFFFFFFFFFFFFFFFF\r\n"), ("a negative number", b"-1\r\n"), ("a long extension", b"1;" + b"x" * 100_000 + b"\r\nx\r\n"), ("trailers without end", b"0\r\n" + b"X: y\r\n" * 20_000)):
        yield from refused(what, send(service, head("POST", "/profile", cli_id, FORM, "Transfer-Encoding: chunked") + tail, end=True), silence=True)


def expects(service, cli_id):
    """Who is refused by the head alone is told so, and need not send the body."""
    body = usual()
    answer = send(service, head("POST", "/profile", "nobody", FORM, f"Content-Length: {len(body)}", "Expect: 100-continue"), wait_secs=6)
    if 401 not in statuses(answer):
        yield f"a refused id: {answer[:100]!r}"
    yield from refused("another expectation", post(service, cli_id, form(file_part()), "Expect: 200-maybe"), *REFUSALS, 100)
    answer = send(service, head("POST", "/profile", cli_id, FORM, f"Content-Length: {10 << 30}", "Expect: 100-continue"), wait_secs=6)
    if not set(statuses(answer)) <= {100, 413, 408, 400}:
        yield f"ten gigabytes announced: {answer[:100]!r}"


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
    for path, nothing in ((f"/jobs/{job}", f"/jobs/{uuid.uuid4().hex}"), (f"/jobs/{job}/artifacts/{name}", f"/jobs/{uuid.uuid4().hex}/artifacts/{name}")):
        answers = [send(service, head("GET", one, cli_id)) for one in (path, nothing)]
        if [statuses(answer) for answer in answers] != [[404], [404]]:
            yield f"{path}: {[statuses(answer) for answer in answers]}"
        plain = [b"\r\n".join(sorted(line for line in answer.split(b"\r\n") if not line.lower().startswith(b"date:"))) for answer in answers]
        if plain[0] != plain[1]:
            yield f"{path}: the answers differ: {answers}"
        for other in (None, "nobody", cli_id + " ", cli_id + "\t" + who.headers["X-Popcorn-Cli-Id"]):
            found = statuses(send(service, head("GET", path, other)))
            if not found or found[0] not in (401, 404, 400):
                yield f"{path} as {other!r}: {found}"


def artifact_names(service, cli_id):
    who, job, seen = own_job(service)
    good, cli_id = next(iter(seen.archives)), who.headers["X-Popcorn-Cli-Id"]
    for name in ("..", ".", "%2e%2e", "%2e%2e%2f%2e%2e%2fsecret", "..%2f..%2fsecret", "..\\secret", "..%5csecret", "%00", good + "%00", good + "%00.zip", good + "%20", good.upper(), good + "/", good + "/x", "./" + good, "%2f" + good,
                 "x/../" + good, good + "?x", "%c0%ae%c0%ae", "%", "%zz", "%u002e", "//" + good, good + ";x", "*", "a" * 5000, "manifest.json", "%0d%0aX-Evil:%20y", "~", "$HOME"):
        answer = send(service, head("GET", f"/jobs/{job}/artifacts/{name}", cli_id))
        found = statuses(answer)
        if found != [404] and not (name == good + "?x" and found == [200]) and not (found and found[0] in (400, 414, 431)):
            yield f"{name[:40]}: {found}"
        if b"X-Evil" in answer.split(b"\r\n\r\n")[0] or service.secrets["file of the host"].encode() in answer:
            yield f"{name[:40]}: {answer[:200]!r}"
    answer = send(service, head("GET", f"/jobs/{job}/artifacts/{good}", cli_id, "Range: bytes=0-1,0-1,0-1,5-,-99999999999999999999", "If-None-Match: *", "Accept-Encoding: gzip"))
    if statuses(answer)[:1] not in ([200], [206], [304]) or b"nosniff" not in answer or b"attachment" not in answer:
        yield f"ranges: {answer[:300]!r}"


def ids(service, cli_id):
    for one in ("0", "-1", "9" * 400, "g" * 32, "A" * 32, uuid.uuid4().hex.upper(), str(uuid.uuid4()), "{" + str(uuid.uuid4()) + "}", "urn:uuid:" + str(uuid.uuid4()), "%00" * 32, "0" * 31, "0" * 33, "\u0660" * 32, "' OR 1=1 --", "null", "..",
                "%F0%9F%92%A9", "0x" + "0" * 30, "a" * 100_000):
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
    for path in ("/", "//", "/.", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/jobs/../health/../../secret", "/jobs//artifacts/", "/jobs/%2f..%2f", "/health/", "/health%00", "/health?" + "x" * 10_000, "/HEALTH", "/profile/", "/admin", "/metrics", "/debug/pprof",
                 "/.git/config", "/.env", "/" + "a/" * 5000, "/" + "x" * 100_000, "\\..\\secret", "http://127.0.0.1:5432/", "http://evil.example/jobs/x", "*", "health", "/jobs/\x7f", "/jobs/a#b"):
        answer = send(service, head("GET", path, cli_id))
        found = statuses(answer)
        if any(status >= 500 for status in found) or any(status < 400 for status in found) and not path.startswith("/health?"):
            yield f"{path[:40]}: {found}"
        if service.secrets["file of the host"].encode() in answer or b"root:" in answer:
            yield f"{path[:40]}: {answer[:200]!r}"


def header_floods(service, cli_id):
    for what, lines in {
        "ten thousand headers": [f"X-{number}: y" for number in range(10_000)], "a header of a megabyte": ["X: " + "y" * (1 << 20)], "a name of a megabyte": ["X" * (1 << 20) + ": y"],
        "one header ten thousand times": ["Cookie: a=b"] * 10_000, "a header without a name": [": y"], "a header without a colon": ["X"], "an id of a megabyte": ["X-Popcorn-Cli-Id: " + "y" * (1 << 20)],
    }.items():
        yield from refused(what, send(service, head("GET", "/jobs/" + "0" * 32, cli_id if "id" not in what else None, *lines)), silence=True)


def credentials(service, cli_id):
    path = "/jobs/" + "0" * 32
    # Who is unknown learns no more than that.
    for what, lines in {
        "none": [], "empty": ["X-Popcorn-Cli-Id:"], "blank": ["X-Popcorn-Cli-Id:   "], "two": [f"X-Popcorn-Cli-Id: {cli_id}", f"X-Popcorn-Cli-Id: {cli_id}"], "unknown": ["X-Popcorn-Cli-Id: nobody"], "long": ["X-Popcorn-Cli-Id: " + "y" * 300],
        "with a space": [f"X-Popcorn-Cli-Id: {cli_id} x"], "not ASCII": ["X-Popcorn-Cli-Id: \xe9"], "a tab": ["X-Popcorn-Cli-Id: a\tb"], "by a cookie": [f"Cookie: X-Popcorn-Cli-Id={cli_id}"], "by authorization": [f"Authorization: Bearer {cli_id}"],
        "as a proxy says": [f"X-Forwarded-User: {cli_id}"],
    }.items():
        yield from refused(what, send(service, head("GET", path, None, *lines)), 401, 400, *([404] if what == "unknown" else []))
        yield from refused(what, send(service, head("POST", "/profile", None, FORM, "Content-Length: 0", *lines)), 401, 400)
    yield from refused("in the query", send(service, head("GET", f"{path}?X-Popcorn-Cli-Id={cli_id}", None)), 401)


def kinds(service, cli_id):
    body = usual()
    for kind in ("", "application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/mixed; boundary=frontier", "multipart/form-data", "multipart/form-data; boundary=", 'multipart/form-data; boundary="', "multipart/form-data; boundary=" + "b" * 5000,
                 "multipart/form-data; boundary=frontier, multipart/form-data; boundary=x\0", "image/png"):
        answer = send(service, head("POST", "/profile", cli_id, f"Content-Type: {kind}", f"Content-Length: {len(body)}") + body)
        yield from refused(f"kind {kind[:40]!r}", answer)
    packed = gzip.compress(b"\0" * (100 << 20))
    yield from refused("a body that unfolds", post(service, cli_id, packed, "Content-Encoding: gzip"))


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


def reset_uploads(service, cli_id):
    """Uploads that are torn off, by the hundred."""
    body = usual()
    for number in range(200):
        with contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", service.port), timeout=5) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                one.sendall(head("POST", "/profile", cli_id, FORM, f"Content-Length: {len(body) + 1}") + body[: number % len(body)])
    return []


CASES = [
    Ask("uploaded-files", "24", "submits files that are empty, too large, not UTF-8, with NUL, of another kind", "4xx with a sentence; nothing is queued", ask=forms(*FILES, wanted=(413, 422))),
    Ask("forms", "24", "submits forms that lack parts, repeat them, break off, nest, or have ten thousand of them", "4xx with a sentence; nothing is queued", ask=forms(*FORMS, wanted=(400, 413, 422))),
    Ask("kinds-of-bodies", "24", "sends other kinds of bodies, broken boundaries, and a body that unfolds to 100 MB", "4xx; nothing is queued", ask=kinds),
    Ask("options", "21", "asks for flags, variables, devices and numbers that are none, in every field", "422; nothing is queued", ask=forms(*OPTIONS, wanted=(422,))),
    Ask("leaderboards", "21, 25", "names leaderboards by paths, SQL, escapes and patterns", "404 or 422 with a sentence; nothing is queued", ask=forms(*LEADERBOARDS, wanted=(404, 422))),
    Ask("inert-fields", "21", "submits with LD_PRELOAD, NVIDIA_VISIBLE_DEVICES, image, command and privileged as fields, and a kernel name of shell and flags", "accepted; they are inert data", ask=inert, jobs=1),
    Ask("file-names", "8, 24", "submits under names that lead elsewhere, are flags, or are no names", "refused, or the base name is kept as data", ask=file_names, jobs=None),
    Ask("slow-body", "24", "sends a body byte by byte", f"408 after {UPLOAD_SECS} s", ask=slow_body),
    Ask("many-slow-bodies", "24", "holds more uploads open than there are places", "one more is told to come back (503) at once; others are served, and the places come back", ask=many_slow_bodies, alone=True),
    Ask("many-connections", "24", f"holds {CONNECTIONS} connections, half of them sending a header now and then", "others are served and can submit", ask=many_connections, alone=True),
    Ask("no-length", "24", "submits without a length, with a wrong one, with one beyond 64 bits", "4xx or closed; nothing is queued", ask=raw(
        ("none", b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n" + FORM.encode() + b"\r\n\r\n" + usual()),
        ("short", b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n" + FORM.encode() + b"\r\nContent-Length: 60\r\n\r\n" + usual()[:60]),
        ("long", b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n" + FORM.encode() + b"\r\nContent-Length: 999999\r\n\r\n" + usual()[:-10]),
        ("negative", b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n" + FORM.encode() + b"\r\nContent-Length: -1\r\n\r\n" + usual()))),
    Ask("chunks", "24", "sends a body in chunks without end, and chunks that are none", "4xx or closed; memory stays bounded", ask=endless_chunks),
    Ask("expectations", "24", "asks by Expect: 100-continue with a refused id, and for ten gigabytes", "refused by the head alone", ask=expects),
    Ask("smuggling", "24", "sends requests of two lengths, of a length and chunks, with odd spaces, folds and NUL", "never read as more requests than they are; 4xx", ask=smuggling),
    Ask("header-floods", "24", "sends ten thousand headers, a header of a megabyte, headers that are none", "4xx or closed", ask=header_floods),
    Ask("strangers-jobs", "25", "asks for another's job and archive", "404, the same to the byte as for none; 401 without an id", ask=strangers),
    Ask("artifact-names", "25", "asks for archives by `..`, %2e%2e, %00, backslashes, line ends and 5,000 characters", "404; no header is injected", ask=artifact_names),
    Ask("job-ids", "25", "asks for jobs by ids that are huge, of other digits, of other spellings", "404 or 4xx", ask=ids),
    Ask("paths", "25", "asks for paths out of the tree, other sites, and what other services have", "4xx", ask=paths),
    Ask("methods", "25", "uses every other method, and methods that are none", "4xx; TRACE repeats nothing", ask=methods),
    Ask("credentials", "25", "comes without an id, with two, with one in another place", "401", ask=credentials),
    Ask("other-protocols", "24", "speaks HTTP/2, TLS, HTTP/0.9, SMTP and noise to the port", "4xx or closed", ask=raw(
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100)), ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)), ("0.9", b"GET /\r\n"), ("9.9", b"GET / HTTP/9.9\r\n\r\n"),
        ("SMTP", b"EHLO x\r\n"), ("noise", bytes(range(256)) * 40), ("only newlines", b"\r\n" * 10_000), ("upgrade", b"GET /jobs/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"),
        ("no host", b"GET /jobs/x HTTP/1.1\r\n\r\n"), ("two hosts", b"GET /jobs/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"))),
    Ask("pipelined", "24", "sends two hundred requests in one go, and then thousands without reading an answer", "answered in order; who does not read waits alone", ask=pipelined),
    Ask("torn-uploads", "24", "tears off two hundred uploads", "nothing is queued; no place is lost", ask=reset_uploads),
]
