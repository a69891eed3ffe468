"""Throws bytes over sockets and counts what comes back."""

import collections
import random
import re
import socket
import threading

import hostile

THREADS = 24
# What has neither an answer nor an end by then hangs; every limit of the API that is met here is shorter.
PATIENCE_SECS = 30
MAX_ANSWER_BYTES = 1 << 20

# What the API says when there is too much to do, which is no fault.
BUSY = (b"The queue is full", b"Too many submissions are being uploaded")


def kind(status, body):
    """The class under which an answer is counted."""
    if status == 503 and any(sentence in body for sentence in BUSY):
        return "busy"
    return f"{status // 100}xx" if status >= 200 else "none"


def throw(service, total, seed, counts, faults):
    """Throws so many requests; which ones, the seed decides."""
    lock, left = threading.Lock(), [total]

    def work(number):
        rng, own = random.Random(f"{seed}-{number}"), collections.Counter()
        while True:
            with lock:
                if left[0] <= 0:
                    break
                left[0] -= 1
            name, request = hostile.request(rng, service)
            answers, hung = exchange(service.port, request, rng)
            status, body = answers[-1] if answers else (0, b"")
            own["hung" if hung else kind(status, body)] += 1
            if hung:
                with lock:
                    faults.append(f"{name}: nothing within {PATIENCE_SECS} s to {request.data[:300]!r}")
            for status, body in answers:
                if kind(status, body) == "5xx":
                    with lock:
                        faults.append(f"{name}: {status} {body[:200]!r} to {request.data[:300]!r}")
        with lock:
            counts.update(own)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def exchange(port, request, rng):
    """Sends a request in one or several parts; returns status and body of each answer, and whether the last one did not come."""
    received, hung = b"", False
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECS) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts(request.data, rng):
                stream.sendall(part)
            if request.hangs_up:
                # Some hang up without a look at the answer.
                if rng.random() < 0.3:
                    return [], False
                stream.shutdown(socket.SHUT_WR)
            while len(received) < MAX_ANSWER_BYTES and (more := stream.recv(1 << 16)):
                received += more
                if not request.hangs_up and is_whole(received, request.is_head):
                    break
    except TimeoutError:
        hung = True
    except OSError:
        # It closed while it was still being sent to: what came is counted.
        pass
    return answers(received, request.is_head), hung


def parts(data, rng):
    if len(data) < 2 or rng.random() < 0.7:
        return [data]
    cut = rng.randrange(1, len(data))
    return [data[:cut], data[cut:]]


HEAD = re.compile(rb"HTTP/1\.[01] (\d{3})[^\r\n]*\r\n(.*?)\r\n\r\n|HTTP/1\.[01] (\d{3})[^\r\n]*\r\n\r\n", re.DOTALL)
LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)


def answers(received, is_head):
    found, at = [], 0
    while match := HEAD.match(received, at):
        status = int(match[1] or match[3])
        length = LENGTH.search(match[2] or b"")
        end = match.end() + (int(length[1]) if length and not is_head else 0)
        if status >= 200:
            found.append((status, received[match.end():end]))
        at = end
    return found


def is_whole(received, is_head):
    """Whether a whole last answer is there: the connection may stay open for a minute."""
    match = HEAD.match(received)
    if not match or int(match[1] or match[3]) < 200:
        return False
    length = LENGTH.search(match[2] or b"")
    return is_head or len(received) >= match.end() + int(length[1] if length else 0)
