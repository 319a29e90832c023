# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that stop reading take a bounded amount of memory, cost others no token, and are
disconnected."""
import socket
import time

from wire import Reader, SLOW, ask, connect, metric, request, rss_kib, wait_for

BODY = {"prompt": ["In the beginning"] * 8, "n": 8, "max_tokens": 900, "ignore_eos": True,
        "stream": True}
N = 6


def main():
    ask("/v1/completions", {"prompt": "a", "max_tokens": 2})
    base = rss_kib()
    slow = metric("fdd_http_slow_total")
    stopped = []
    for _ in range(N):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(60)
        s.connect(("127.0.0.1", int(__import__("os").environ["FDD_HTTP_PORT"])))
        s.sendall(request("/v1/completions", BODY))
        stopped.append(s)
    peak, end = 0, time.monotonic() + 60 * SLOW
    while metric("fdd_http_slow_total") < slow + N and time.monotonic() < end:
        status, _, w = ask("/v1/completions", {"prompt": "And God said", "max_tokens": 8,
                                               "ignore_eos": True})
        assert status == 200 and w["usage"]["completion_tokens"] == 8, w
        peak = max(peak, rss_kib())
    assert metric("fdd_http_slow_total") == slow + N, metric("fdd_http_slow_total")
    print(f"{N} stopped readers: {peak - base} KiB at most")
    assert peak - base < N * 1024 + 4096, peak - base
    wait_for("their requests are gone", lambda: metric("fdd_http_streams") == 0)
    for s in stopped:
        s.close()
    # a reader that reads slowly but steadily gets everything
    with connect(60) as s:
        s.sendall(request("/v1/completions", dict(BODY, prompt="a", n=1, max_tokens=64)))
        r = Reader(s)
        r.head()
        raw = b""
        for c in r.chunks():
            raw += c
            time.sleep(0.002)
        assert raw.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in raw


main()
