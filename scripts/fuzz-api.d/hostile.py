"""What no honest client sends: one request of many kinds, as bytes."""

import dataclasses
import urllib.parse

from service import BOUNDARY, SOURCE, form

NUMBERS = [
    b"0", b"-0", b"-1", b"1", b"2147483647", b"2147483648", b"4294967295", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551615", b"18446744073709551616", b"9" * 400, b"-" + b"9" * 400, b"1e3", b"0x10",
    b"1.5", b"NaN", b"Infinity", b"+1", b" 1", b"1 ", b"\xd9\xa1", b"", b"00000001", b"1,1", b"1;1",
]
TEXTS = [
    b"", b"\0", b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9", b"a" * 255, b"a" * 256, b"a" * 9000, b"../../etc/passwd",
    b"%2e%2e%2f", b"%00", b"%", b"%zz", b"%ff", b"';DROP TABLE jobs;--", b"\" OR 1=1", b"${jndi:ldap://x}", b"{{7*7}}", b"\x1b[31m",
    b"\r\nX: y", b"\n", b"LD_PRELOAD=/x", b"--help", b"regex:(a+)+$", b"regex:[", b"\xe2\x80\xae", b"nan", b"null", b"[]", b"{}",
]
METHODS = [
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT", b"PRI", b"get", b"G\0T", b"\xff", b"",
    b"A" * 100, b"GET GET", b"PROPFIND",
]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"http/1.1", b"HTTP/1.1 ", b"HTTP", b"", b"HTTP/1.1\0"]
FIELDS = [
    b"Host", b"Connection", b"Expect", b"Upgrade", b"Content-Type", b"Content-Length", b"Transfer-Encoding", b"X-Popcorn-Cli-Id",
    b"Range", b"If-None-Match", b"Accept", b"Accept-Encoding", b"Content-Encoding", b"TE", b"Trailer", b"Cookie", b"Origin", b"Forwarded",
]
VALUES = [
    b"close", b"keep-alive", b"upgrade", b"100-continue", b"h2c", b"websocket", b"chunked", b"gzip", b"bytes=0-", b"bytes=9-1",
    b"bytes=" + b"0-," * 500, b"*", b"multipart/form-data; boundary=", b"multipart/form-data; boundary=\"", b"text/html",
    b"multipart/form-data; boundary=" + b"x" * 71, b"\xff", b"\0", b"", b"a" * 5000,
]


@dataclasses.dataclass
class Request:
    data: bytes
    # No answer may be waited for with the connection open both ways: the request may not be whole.
    hangs_up: bool = True
    is_head: bool = False


def request(rng, service):
    """One request and the name of its kind."""
    kind = rng.choice(KINDS)
    return kind.__name__, kind(rng, service)


def head(service, method=b"POST", path=b"/profile", fields=(), cli_id=None):
    lines = [b"%b %b HTTP/1.1" % (method, path), b"Host: x", b"Connection: close"]
    lines.append(b"X-Popcorn-Cli-Id: " + (service.cli_id.encode() if cli_id is None else cli_id))
    return b"\r\n".join([*lines, *fields]) + b"\r\n\r\n"


def submission(service, body, kind=None, length=None):
    kind = kind or b"multipart/form-data; boundary=" + BOUNDARY.encode()
    length = str(len(body)).encode() if length is None else length
    return head(service, fields=[b"Content-Type: " + kind, b"Content-Length: " + length]) + body


def paths(rng, service):
    return rng.choice([b"/health", b"/profile", f"/jobs/{service.job}".encode(), service.artifact.encode(), b"/jobs/" + b"0" * 32, b"/",
                       b"/jobs?limit=3", f"/jobs/{service.job}?wait=1".encode(), f"/jobs/{service.job}/events".encode(),
                       f"{service.artifact}/ncu-details.txt".encode()])


def honest(rng, service):
    """So that the others meet a service at work."""
    if rng.random() < 0.2:
        return Request(submission(service, form()), hangs_up=False)
    method = rng.choice([b"GET", b"GET", b"HEAD"])
    return Request(head(service, method, paths(rng, service)), hangs_up=False, is_head=method == b"HEAD")


def request_line(rng, service):
    space = rng.choice([b" ", b" ", b"  ", b"\t", b"", b"\0"])
    path = rng.choice([paths(rng, service), b"*", b"http://x/health", b"x:y", b"//", b"/" * 5000, b"", b"?" * 100, b"/health#x", b"\xff"])
    line = space.join([rng.choice(METHODS), path, rng.choice(VERSIONS)])
    end = rng.choice([b"\r\n", b"\r\n", b"\n", b"\r"])
    return Request(line + end + b"Host: x" + end + end)


def fields(rng, service):
    found = [rng.choice(FIELDS) + rng.choice([b": ", b": ", b":", b" : ", b""]) + rng.choice(VALUES + TEXTS + NUMBERS)
             for _ in range(rng.randrange(1, 12))]
    return Request(head(service, rng.choice([b"GET", b"POST", b"HEAD"]), paths(rng, service), found))


def field_flood(rng, service):
    count = rng.choice([99, 100, 101, 500, 5000])
    found = [b"X-%d: %b" % (number, b"y" * rng.choice([0, 1, 100])) for number in range(count)]
    if rng.random() < 0.3:
        found = [b"X: " + b"y" * rng.choice([8_000, 32_000, 33_000, 400_000])]
    return Request(head(service, b"GET", paths(rng, service), found))


def framing(rng, service):
    """Content-Length against Transfer-Encoding, and each against itself."""
    body = rng.choice([b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"5;x=" + b"y" * 20_000 + b"\r\nhello\r\n0\r\n\r\n",
                       b"0\r\nX: y\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", form(), b"", b"GET /health HTTP/1.1\r\n\r\n"])
    choices = [b"Content-Length: " + number for number in NUMBERS] + [
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: identity", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: chunked, chunked",
    ]
    found = rng.sample(choices, rng.randrange(1, 4))
    found.append(b"Content-Type: multipart/form-data; boundary=" + BOUNDARY.encode())
    return Request(head(service, rng.choice([b"POST", b"GET", b"DELETE"]), paths(rng, service), found) + body)


def cut(rng, service):
    whole = submission(service, form(SOURCE * rng.choice([1, 1, 100, 5000])))
    return Request(whole[:rng.randrange(len(whole))])


def chunked(rng, service):
    body, sent = form(SOURCE * rng.choice([1, 50])), b""
    while body:
        length = rng.randrange(1, 400)
        sent, body = sent + b"%x\r\n%b\r\n" % (len(body[:length]), body[:length]), body[length:]
    found = [b"Transfer-Encoding: chunked", b"Content-Type: multipart/form-data; boundary=" + BOUNDARY.encode()]
    return Request(head(service, fields=found) + sent + b"0\r\n\r\n", hangs_up=False)


def part(rng, name, value):
    return b"--%b\r\nContent-Disposition: form-data; name=\"%b\"\r\n\r\n%b\r\n" % (BOUNDARY.encode(), name, value)


def values(rng, service):
    """A whole form with odd values in fields that are known."""
    names = [b"benchmark_index", b"ncu_capture", b"ncu_clock_control", b"ncu_kernel_name", b"ncu_kernel_name_base", b"ncu_launch_count",
             b"ncu_warm_calls", b"ncu_other", b"other"]
    odd = b"".join(part(rng, name, rng.choice(NUMBERS + TEXTS)) for name in rng.sample(names, rng.randrange(1, 5)))
    leaderboard = rng.choice([b"vectoradd_sample", b"vectoradd_sample", *TEXTS])
    source = rng.choice([SOURCE, SOURCE, *TEXTS, b"#" * 1_000_000, b"#" * 1_000_001])
    return Request(submission(service, odd + form(source, leaderboard)), hangs_up=False)


def multipart(rng, service):
    """Forms that are none, or nearly."""
    boundary = BOUNDARY.encode()
    disposition = rng.choice([
        b"Content-Disposition: form-data; name=file; filename=s.py", b"Content-Disposition: form-data; name=\"file\"; filename=\"s.py",
        b"Content-Disposition: attachment; name=\"file\"", b"Content-Disposition: form-data", b"content-disposition:form-data;name=\"file\"",
        b"Content-Disposition: form-data; name=\"file\"; filename*=UTF-8''%ff.py", b"X: y", b"", b": ", b"\xff: \xff",
        b"Content-Disposition: form-data; name=\"%b\"" % rng.choice(TEXTS),
        b"Content-Disposition: form-data; name=\"file\"; filename=\"%b.py\"" % rng.choice(TEXTS),
        b"\r\n".join(b"X-%d: y" % number for number in range(rng.choice([31, 33, 2000]))),
    ])
    body = b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, disposition, rng.choice(TEXTS + [SOURCE]))
    body = body * rng.choice([1, 1, 2, 33, 500]) + rng.choice([b"", form()]) + rng.choice([b"--%b--\r\n" % boundary, b"--%b--" % boundary, b"--", b""])
    body = rng.choice([b"", b"", b"preamble", b"\r\n" * 1000]) + body + rng.choice([b"", b"", b"epilogue" * 1000])
    kind = rng.choice([None, None, None, b"multipart/form-data", b"multipart/form-data; boundary=\"" + boundary + b"\"", b"multipart/mixed; boundary=" + boundary,
                       b"multipart/form-data; boundary=--", b"multipart/form-data;boundary=" + boundary + b"; boundary=x", b"multipart/form-data; charset=\xff"])
    return Request(submission(service, body, kind), hangs_up=False)


def odd_paths(rng, service):
    text = rng.choice(TEXTS + NUMBERS)
    text = rng.choice([text, urllib.parse.quote_from_bytes(text, safe="").encode(), bytes(b"".join(b"%%%02X" % byte for byte in text[:600]))])
    text = b"".join(bytes([byte]) for byte in text if byte not in b" \r\n") if rng.random() < 0.8 else text
    path = rng.choice([b"/jobs/%b", b"/jobs/%b/artifacts/x.zip", b"/jobs/" + service.job.encode() + b"/artifacts/%b", b"/%b", b"/health?%b",
                       b"/jobs/" + service.job.encode() + b"%b", b"/jobs/%b/../" + service.job.encode()]) % text
    return Request(head(service, rng.choice([b"GET", b"HEAD", b"POST"]), path))


def credentials(rng, service):
    cli_id = rng.choice([*TEXTS, b"%032x" % rng.getrandbits(128), b"x" * 257, service.cli_id.encode() + b", x"])
    twice = [b"X-Popcorn-Cli-Id: x"] if rng.random() < 0.2 else []
    return Request(head(service, b"GET", paths(rng, service), twice, cli_id))


def random_bytes(rng, service):
    return Request(rng.randbytes(rng.choice([1, 10, 100, 1000, 20_000])))


def mutated(rng, service):
    """A request that was honest before some of its bytes were changed, left out or doubled."""
    data = bytearray(honest(rng, service).data)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0: data[at] = rng.randrange(256)
            case 1: data[at:at + rng.randrange(1, 20)] = b""
            case 2: data[at:at] = data[at:at + rng.randrange(1, 40)]
            case 3: data[at:at] = rng.choice(TEXTS + NUMBERS)
        if not data:
            break
    return Request(bytes(data))


def pipelined(rng, service):
    line = b"GET %b HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: %b\r\n\r\n"
    return Request(b"".join(line % (paths(rng, service), service.cli_id.encode()) for _ in range(rng.randrange(2, 20))))


def http2(rng, service):
    return Request(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(rng.randrange(100)))


KINDS = [honest, honest, request_line, fields, field_flood, framing, cut, chunked, values, values, multipart, multipart, odd_paths, odd_paths,
         credentials, random_bytes, mutated, mutated, pipelined, http2]
