# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that dribble end at their limit, and delay no one."""
import os
import selectors
import sys
import time

from wire import Reader, SLOW, connect, request

N = int(sys.argv[1])
LIMIT = float(sys.argv[2])


def quick(n):
    out = []
    with connect() as s:
        r = Reader(s)
        for _ in range(n):
            t = time.monotonic()
            s.sendall(request("/version"))
            assert r.answer()[0] == 200
            out.append(time.monotonic() - t)
    out.sort()
    return out[len(out) // 2], out[int(len(out) * 0.99)]


def main():
    alone = quick(500)
    sel, left = selectors.DefaultSelector(), {}
    began = time.monotonic()
    for i in range(N):
        s = connect()
        s.sendall(b"GET /version HTTP/1.1\r\nX-A: " if i % 2 else
                  b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        s.setblocking(False)
        sel.register(s, selectors.EVENT_READ)
        left[s] = b""
    said, worst = 0, 0.0
    while left and time.monotonic() - began < LIMIT * 3 * SLOW + 10:
        for s in left:
            try:
                s.send(b"a")
            except OSError:
                pass
        worst = max(worst, quick(50)[1])
        for key, _ in sel.select(0.05):
            s = key.fileobj
            try:
                d = s.recv(4096)
            except OSError:
                d = b""
            if d:
                left[s] += d
                continue
            said += b" 408 " in left[s]
            sel.unregister(s)
            s.close()
            del left[s]
    took = time.monotonic() - began
    print(f"{N} dribbling clients: ended after {took:.1f} s, {said} told why; others' p99 "
          f"{worst * 1e3:.2f} ms, alone {alone[1] * 1e3:.2f} ms")
    assert not left, f"{len(left)} are still there"
    assert said > N * 0.9
    # The bound of the design is 1 ms; a shared machine with two processors needs more.
    if os.environ.get("FDD_LONG"):
        assert worst - alone[1] < 0.001
    assert worst < 0.2 * SLOW


main()
