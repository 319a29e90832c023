# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""HTTP as bytes, for tests of fdd-http: strict, and without the help of an HTTP library."""
import json
import os
import socket
import time

PORT = int(os.environ.get("FDD_HTTP_PORT", "0"))
PID = int(os.environ.get("FDD_HTTP_PID", "0"))
SLOW = float(os.environ.get("FDD_SLOW_FACTOR", "1"))


def connect(timeout=10):
    s = socket.create_connection(("127.0.0.1", PORT), timeout=timeout * SLOW)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def request(path, body=None, method=None, headers=(), version="1.1"):
    raw = b"" if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
    method = method or ("GET" if body is None else "POST")
    head = [f"{method} {path} HTTP/{version}", "Host: localhost"]
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
    head += [f"{k}: {v}" for k, v in headers]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + raw


class Reader:
    """Reads the answers of one connection, one after the other."""

    def __init__(self, s):
        self.s, self.buf, self.closed = s, b"", False

    def more(self):
        try:
            d = self.s.recv(65536)
        except ConnectionError:
            d = b""
        self.closed = d == b""
        self.buf += d
        return d != b""

    def until(self, mark):
        while mark not in self.buf:
            if not self.more():
                return None
        at = self.buf.index(mark) + len(mark)
        out, self.buf = self.buf[:at], self.buf[at:]
        return out

    def exactly(self, n):
        while len(self.buf) < n:
            if not self.more():
                return None
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def head(self):
        raw = self.until(b"\r\n\r\n")
        if raw is None:
            return None, {}
        lines = raw.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            if line:
                k, v = line.split(": ", 1)
                assert k.lower() not in headers, f"{k} comes twice"
                headers[k.lower()] = v
        return int(lines[0].split(" ")[1]), headers

    def chunks(self):
        while True:
            size = self.until(b"\r\n")
            if size is None:
                return
            n = int(size, 16)
            data = self.exactly(n + 2)
            if data is None:
                return
            if n == 0:
                return
            yield data[:-2]

    def answer(self):
        """Returns status, headers, body; status is None if the connection is closed."""
        status, h = self.head()
        if status is None:
            return None, {}, b""
        if h.get("transfer-encoding") == "chunked":
            return status, h, b"".join(self.chunks())
        return status, h, self.exactly(int(h.get("content-length", "0")))


def ask(path, body=None, **kw):
    with connect(60) as s:
        s.sendall(request(path, body, **kw))
        status, h, raw = Reader(s).answer()
        try:
            return status, h, json.loads(raw)
        except ValueError:
            return status, h, raw


def events(path, body, **kw):
    """The events of a stream without [DONE], which must end it."""
    status, h, raw = ask(path, dict(body, stream=True), **kw)
    assert status == 200, (status, raw)
    assert h["content-type"].startswith("text/event-stream"), h
    blocks = raw.decode().split("\n\n")
    assert blocks[-1] == "" and blocks[-2] == "data: [DONE]", blocks[-2:]
    return [json.loads(b[len("data: "):]) for b in blocks[:-2] if not b.startswith(":")]


def named_events(path, body, **kw):
    """The events of a stream with named events: [(name, data)], in order."""
    status, h, raw = ask(path, dict(body, stream=True), **kw)
    assert status == 200, (status, raw)
    assert h["content-type"].startswith("text/event-stream"), h
    out = []
    blocks = raw.decode().split("\n\n")
    assert blocks.pop() == "", blocks
    for b in blocks:
        if b.startswith(":"):
            continue
        name, data = b.split("\n")
        assert name.startswith("event: ") and data.startswith("data: "), b
        out.append((name[7:], json.loads(data[6:])))
        assert out[-1][0] == out[-1][1]["type"], b
    return out


def failing_events(path, body, **kw):
    """named_events() of a request that fails midway. If the failure comes before the first event,
    the answer is a status of 500 and no stream: the request is then repeated."""
    for _ in range(50):
        try:
            return named_events(path, body, **kw)
        except AssertionError as e:
            if e.args[0][0] != 500:
                raise
    raise AssertionError("50 requests failed before their first byte")


def say(text, each=1, most=0, tail="", how="say"):
    """Variables for the template of says in lib.sh: the model outputs text, in records of `each`
    characters, or of 1 to `most` at random; tail: the end of the prompt."""
    return {"text": text, "bytes": len(text.encode()), "each": each, "most": most, "tail": tail, "how": how}


def metric(name):
    _, _, raw = ask("/metrics")
    text = raw.decode() if isinstance(raw, bytes) else str(raw)
    for line in text.splitlines():
        if line.startswith(name + " "):
            return float(line.split(" ")[1])
    raise AssertionError(f"no metric {name}")


def wait_for(what, check, seconds=5):
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        if check():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def rss_kib(pid=None):
    with open(f"/proc/{pid or PID}/status") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
