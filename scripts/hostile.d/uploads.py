"""Hostile uploads: forms, options, names, and bodies that are slow, endless or none. None of them may queue a job but those that are legal."""

import contextlib
import gzip
import json
import os
import socket
import time

import wire
from ask import REFUSALS, Ask, jobs_of, raw, refused
from cases import client, ended, source
from service import UPLOAD_SECS, UPLOADS
from wire import FORM, field, file_part, form, head, part, post, send, statuses, usual

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
    (
        "a form in a form",
        form(
            part('name="inner"', form(file_part()).replace(b"frontier", b"inner"), "Content-Type: multipart/mixed; boundary=inner"),
            LEADERBOARD,
        ),
    ),
    ("no end", form(file_part(), LEADERBOARD)[:-8]),
    ("no beginning", form(file_part(), LEADERBOARD)[3:]),
    ("another boundary", form(file_part(), LEADERBOARD).replace(b"frontier", b"border")),
    ("bare newlines", form(file_part(), LEADERBOARD).replace(b"\r\n", b"\n")),
    ("an endless part's head", f"--{wire.BOUNDARY}\r\nX: ".encode() + b"x" * 500_000),
    ("a part of base64", form(part('name="file"; filename="a.py"', b"\xff", "Content-Transfer-Encoding: base64"), LEADERBOARD)),
]


OPTIONS = [
    *(
        (f"{name}={value[:30]!r}", usual(field(name, value)))
        for name, value in (
            ("ncu_flags", "--import x"),
            ("ncu_env", "LD_PRELOAD=/tmp/x.so"),
            ("ncu_gpus", "all"),
            ("ncu_capture", "window --set full"),
            ("ncu_capture", ""),
            ("ncu_capture", "HOT"),
            ("ncu_launch_count", "0"),
            ("ncu_launch_count", "-1"),
            ("ncu_launch_count", "1e9"),
            ("ncu_launch_count", "9" * 400),
            ("ncu_launch_count", "1; rm -rf /"),
            ("ncu_launch_count", "NaN"),
            ("ncu_launch_count", "\u0661"),
            ("ncu_launch_count", " 1"),
            ("ncu_warm_calls", "-1"),
            ("ncu_warm_calls", "1000000"),
            ("ncu_warm_calls", "0x1"),
            ("ncu_clock_control", "reset"),
            ("ncu_kernel_name", ""),
            ("ncu_kernel_name", "a\0b"),
            ("ncu_kernel_name", "--import"),
            ("ncu_kernel_name", "@/etc/passwd"),
            ("ncu_kernel_name", "n" * 1025),
            ("ncu_kernel_name", "n" * 9000),
            ("ncu_kernel_name_base", "--import"),
            ("ncu_kernel_name_base", "mangled\n"),
            ("benchmark_index", "-1"),
            ("benchmark_index", "3"),
            ("benchmark_index", "9" * 400),
            ("benchmark_index", "0.0"),
            ("benchmark_index", "0x0"),
            ("benchmark_index", "\u0660"),
            ("benchmark_index", ""),
        )
    )
]


LEADERBOARDS = [
    *(
        (f"leaderboard {name[:30]!r}", form(file_part(), field("leaderboard", name)))
        for name in (
            "",
            " ",
            "../sample/vectoradd_py",
            "/etc/passwd",
            "sample/../sample/vectoradd_py",
            "vectoradd_sample\0",
            "vectoradd_sample/../x",
            "..",
            "'; DROP TABLE jobs; --",
            "\x1b[2J",
            "x" * 300,
            "VECTORADD_SAMPLE",
            "vectoradd_sample\n",
            "${jndi:ldap://x}",
            "{{7*7}}",
            "%s%s%n",
            "\u202evectoradd",
        )
    )
]


def forms(*named, wanted=()):
    """An `ask` that sends each form and wants it refused; `named` are (what, body)."""

    def ask(service, cli_id):
        for what, body in named:
            yield from refused(what, post(service, cli_id, body), *wanted)

    return ask


def inert(service, cli_id):
    """Accepted, and what it says more has no effect."""
    fields = (
        field("LD_PRELOAD", "/tmp/x.so"),
        field("NVIDIA_VISIBLE_DEVICES", "all"),
        field("env", "PATH=/tmp"),
        field("image", "evil:latest"),
        field("command", "sh"),
        field("privileged", "1"),
        field("ncu_kernel_name", "x --import /etc/passwd -o /usr/x; $(id) `id` | sh"),
    )
    answer = post(
        service,
        cli_id,
        usual(field("benchmark_index", "0"), *fields),
        "LD_PRELOAD: /tmp/x.so",
        "X-Forwarded-For: 127.0.0.1",
        "X-Http-Method-Override: DELETE",
    )
    if statuses(answer) != [202]:
        return [f"{answer[-200:]!r}"]
    who = client(service)
    who.headers["X-Popcorn-Cli-Id"] = cli_id
    seen = ended(service, who, json.loads(answer.rsplit(b"\r\n\r\n", 1)[-1])["job_id"])
    return [] if seen.status == "failed" and "matches none" in seen.error else [f"{seen.status}: {seen.error[:200]}"]


def file_names(service, cli_id):
    """Hostile names of the file: refused, or the base name is kept as data."""
    accepted = 0
    for name in (
        "../../../../tmp/evil.py",
        "/etc/cron.d/evil.py",
        "..\\..\\evil.py",
        "a b.py",
        "-rf.py",
        "$(id).py",
        "'.py",
        "é.py",
        "CON.py",
        "a:b.py",
        "%2e%2e%2fevil.py",
        "\u202eyp.exe.py",
    ):
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


def kinds(service, cli_id):
    body = usual()
    for kind in (
        "",
        "application/json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/mixed; boundary=frontier",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary="',
        "multipart/form-data; boundary=" + "b" * 5000,
        "multipart/form-data; boundary=frontier, multipart/form-data; boundary=x\0",
        "image/png",
    ):
        answer = send(service, head("POST", "/profile", cli_id, f"Content-Type: {kind}", f"Content-Length: {len(body)}") + body)
        yield from refused(f"kind {kind[:40]!r}", answer)
    packed = gzip.compress(b"\0" * (100 << 20))
    yield from refused("a body that unfolds", post(service, cli_id, packed, "Content-Encoding: gzip"))


def slow_body(service, cli_id):
    body = usual()
    began = time.monotonic()
    answer = send(
        service,
        head("POST", "/profile", cli_id, FORM, f"Content-Length: {len(body)}") + body[:30],
        (bytes([byte]) for byte in body[30:60]),
        pause_secs=0.5,
        wait_secs=UPLOAD_SECS + 20,
    )
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


def endless_chunks(service, cli_id):
    """A body in chunks that has no end."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    opening = head("POST", "/profile", cli_id, FORM, "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n" % (
        len(form(file_part())[:60]),
        form(file_part())[:60],
    )
    yield from refused("endless", send(service, opening, (chunk for _ in range(400)), wait_secs=UPLOAD_SECS + 20), silence=True)
    for what, tail in (
        ("no number", b"zz\r\nxx\r\n"),
        ("a huge number", b"FFFFFFFFFFFFFFFFF\r\n"),
        ("a negative number", b"-1\r\n"),
        ("a long extension", b"1;" + b"x" * 100_000 + b"\r\nx\r\n"),
        ("trailers without end", b"0\r\n" + b"X: y\r\n" * 20_000),
    ):
        yield from refused(
            what, send(service, head("POST", "/profile", cli_id, FORM, "Transfer-Encoding: chunked") + tail, end=True), silence=True
        )


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
    Ask(
        "uploaded-files",
        "24",
        "submits files that are empty, too large, not UTF-8, with NUL, of another kind",
        "4xx with a sentence; nothing is queued",
        ask=forms(*FILES, wanted=(413, 422)),
    ),
    Ask(
        "forms",
        "24",
        "submits forms that lack parts, repeat them, break off, nest, or have ten thousand of them",
        "4xx with a sentence; nothing is queued",
        ask=forms(*FORMS, wanted=(400, 413, 422)),
    ),
    Ask(
        "kinds-of-bodies",
        "24",
        "sends other kinds of bodies, broken boundaries, and a body that unfolds to 100 MB",
        "4xx; nothing is queued",
        ask=kinds,
    ),
    Ask(
        "options",
        "21",
        "asks for flags, variables, devices and numbers that are none, in every field",
        "422; nothing is queued",
        ask=forms(*OPTIONS, wanted=(422,)),
    ),
    Ask(
        "leaderboards",
        "21, 25",
        "names leaderboards by paths, SQL, escapes and patterns",
        "404 or 422 with a sentence; nothing is queued",
        ask=forms(*LEADERBOARDS, wanted=(404, 422)),
    ),
    Ask(
        "inert-fields",
        "21",
        "submits with LD_PRELOAD, NVIDIA_VISIBLE_DEVICES, image, command and privileged as fields, and a kernel name of shell and flags",
        "accepted; they are inert data",
        ask=inert,
        jobs=1,
    ),
    Ask(
        "file-names",
        "8, 24",
        "submits under names that lead elsewhere, are flags, or are no names",
        "refused, or the base name is kept as data",
        ask=file_names,
        jobs=None,
    ),
    Ask("slow-body", "24", "sends a body byte by byte", f"408 after {UPLOAD_SECS} s", ask=slow_body),
    Ask(
        "many-slow-bodies",
        "24",
        "holds more uploads open than there are places",
        "one more is told to come back (503) at once; others are served, and the places come back",
        ask=many_slow_bodies,
        alone=True,
    ),
    Ask(
        "no-length",
        "24",
        "submits without a length, with a wrong one, with one beyond 64 bits",
        "4xx or closed; nothing is queued",
        ask=raw(
            ("none", b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n" + FORM.encode() + b"\r\n\r\n" + usual()),
            (
                "short",
                b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n"
                + FORM.encode()
                + b"\r\nContent-Length: 60\r\n\r\n"
                + usual()[:60],
            ),
            (
                "long",
                b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n"
                + FORM.encode()
                + b"\r\nContent-Length: 999999\r\n\r\n"
                + usual()[:-10],
            ),
            (
                "negative",
                b"POST /profile HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: CLI\r\n"
                + FORM.encode()
                + b"\r\nContent-Length: -1\r\n\r\n"
                + usual(),
            ),
        ),
    ),
    Ask(
        "chunks",
        "24",
        "sends a body in chunks without end, and chunks that are none",
        "4xx or closed; memory stays bounded",
        ask=endless_chunks,
    ),
    Ask(
        "expectations",
        "24",
        "asks by Expect: 100-continue with a refused id, and for ten gigabytes",
        "refused by the head alone",
        ask=expects,
    ),
    Ask("torn-uploads", "24", "tears off two hundred uploads", "nothing is queued; no place is lost", ask=reset_uploads),
]
