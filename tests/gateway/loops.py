# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Connections are spread over all loops; a key's limit and the counters cover all of them."""
import os
import threading

from wire import PID, Reader, SLOW, connect, request, wait_for

KEY = [("Authorization", "Bearer k-one")]


def threads_with_time():
    """Processor time of each thread, in ticks."""
    out = {}
    for t in os.listdir(f"/proc/{PID}/task"):
        with open(f"/proc/{PID}/task/{t}/stat") as f:
            v = f.read().rsplit(")", 1)[1].split()
        out[t] = int(v[11]) + int(v[12])
    return out


def answers(s, r, path, body=None):
    s.sendall(request(path, body, headers=KEY))
    return r.answer()


def metric(name):
    with connect() as s:
        _, _, raw = answers(s, Reader(s), "/metrics")
    return next(float(x.split()[1]) for x in raw.decode().splitlines() if x.startswith(name + " "))


def main():
    before = threads_with_time()
    conns = [connect() for _ in range(64)]
    readers = [Reader(s) for s in conns]
    for _ in range(200):
        for s, r in zip(conns, readers):
            s.sendall(request("/version", headers=KEY))
        for r in readers:
            assert r.answer()[0] == 200
    wait_for("all connections are counted", lambda: metric("fdd_http_connections") >= 64)
    busy = [t for t, v in threads_with_time().items() if v > before.get(t, 0)]
    print(f"{len(busy)} threads served 64 connections")
    assert len(busy) >= 3, busy
    # three at a time, whichever loop has the connection
    body = {"prompt": "In the", "max_tokens": 200, "ignore_eos": True, "n": 4}
    codes, lock = [], threading.Lock()
    gate = threading.Barrier(12)

    def one(s, r):
        gate.wait()
        status = answers(s, r, "/v1/completions", body)[0]
        with lock:
            codes.append(status)

    ts = [threading.Thread(target=one, args=x) for x in zip(conns[:12], readers[:12])]
    for t in ts:
        t.start()
    for t in ts:
        t.join(120 * SLOW)
    print("answers of 12 at once, 3 allowed:", sorted(codes))
    assert set(codes) == {200, 429} and codes.count(200) >= 3, codes
    for s in conns:
        s.close()
    wait_for("their connections are closed", lambda: metric("fdd_http_connections") <= 2)


main()
