# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Long bodies: they get the same answers as short ones, their total size is bounded, and a client
that disconnects while its body is read leaves no memory allocated."""
import os
import socket

from wire import Reader, ask, connect, metric, request, wait_for

MIB = 1 << 20


def main():
    pad = "x" * (200 * 1024)
    # as a short body: answered, streamed, refused by name; whole and in chunks
    for extra in ({}, {"zzz": pad}):
        status, h, j = ask("/v1/completions", {"prompt": "ab", "max_tokens": 4, "metadata": pad, **extra})
        assert status == 200 and j["usage"]["completion_tokens"] == 4, (status, j)
        assert ("zzz" in h.get("x-fdd-ignored", "")) == bool(extra), h
    status, _, j = ask("/v1/completions", {"prompt": "ab", "n": 65, "metadata": pad})
    assert status == 400 and j["error"]["param"] == "n", j
    status, _, j = ask("/v1/completions", {"prompt": "ab", "model": "other", "metadata": pad})
    assert status == 404 and j["error"]["code"] == "model_not_found", j
    status, _, j = ask("/v1/completions", b'{"prompt":"' + pad.encode())
    assert status == 400 and j["error"]["code"] == "invalid_json", j
    status, _, j = ask("/tokenize", {"prompt": "a" * 300000})
    assert status == 200 and j["count"] >= 300000, (status, str(j)[:200])
    status, _, j = ask("/detokenize", {"tokens": [97] * 20000})
    assert status == 200 and j["prompt"] == "a" * 20000, (status, str(j)[:200])
    raw = request("/v1/completions", {"prompt": "ab", "max_tokens": 4, "metadata": pad}).split(b"\r\n\r\n", 1)[1]
    with connect(60) as s:
        # a body in chunks, and the next request right behind it
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(raw), 50000):
            piece = raw[at:at + 50000]
            s.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
        s.sendall(b"0\r\n\r\n" + request("/version"))
        r = Reader(s)
        status, _, body = r.answer()
        assert status == 200 and b'"completion_tokens":4' in body, body[:300]
        assert r.answer()[0] == 200
        # and one of known length, with another behind it
        s.sendall(request("/v1/completions", raw) + request("/version"))
        assert r.answer()[0] == 200 and r.answer()[0] == 200
    wait_for("nothing is held", lambda: metric("fdd_http_held_bytes") == 0)

    # together they are bounded (64 MiB here): further ones are told to retry
    half = request("/v1/completions", b'{"prompt":"' + b"a" * (30 * MIB) + b'"}')[:-2]
    waiting = [connect(60) for _ in range(2)]
    for s in waiting:
        s.sendall(half)
    wait_for("two bodies are held", lambda: metric("fdd_http_held_bytes") > 59 * MIB)
    with connect(60) as s:
        try:
            s.sendall(half)
        except ConnectionError:
            pass
        status, h, body = Reader(s).answer()
        assert status == 503 and b"max_bodies_bytes" in body and int(h["retry-after"]) >= 1, (status, body)
    # a short body is served meanwhile, and memory is freed when a client disconnects
    assert ask("/v1/completions", {"prompt": "ab", "max_tokens": 1})[0] == 200
    for s in waiting:
        s.close()
    wait_for("nothing is held", lambda: metric("fdd_http_held_bytes") == 0)

    # while a stream runs a long body waits in its socket most of the
    # time; alone it does not
    long = request("/v1/completions", b'{"prompt":"' + b"a" * (30 * MIB) + b'"}')

    def paced():
        before = metric("fdd_http_paced_total")
        with connect(60) as s:
            s.sendall(long)
            assert Reader(s).answer()[0] == 400
        return metric("fdd_http_paced_total") - before

    assert paced() == 0
    with connect(60) as s:
        s.sendall(request("/v1/completions", {"prompt": "ab", "max_tokens": 5000, "ignore_eos": True, "stream": True}))
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        n = paced()
        assert n >= 20, n
        # a client that disconnects meanwhile is dropped
        left = connect(60)
        left.sendall(long[:20 * MIB])
        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        left.close()
        wait_for("nothing is held", lambda: metric("fdd_http_held_bytes") == 0)
    wait_for("the stream has ended", lambda: metric("fdd_http_streams") == 0)

    # clients that disconnect while their body is read
    streams = metric("fdd_http_connections")
    for _ in range(30):
        s = connect(60)
        s.sendall(request("/v1/completions", b'{"prompt":"' + b"a" * (4 * MIB) + b'"}'))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
    wait_for("nothing is held", lambda: metric("fdd_http_held_bytes") == 0, 20)
    wait_for("they are closed", lambda: metric("fdd_http_connections") <= streams)
    assert metric("fdd_http_streams") == 0
    assert ask("/v1/completions", {"prompt": "ab", "max_tokens": 1})[0] == 200
    print("long bodies: answered, bounded, dropped with their clients", os.environ["FDD_HTTP_PID"])


main()
