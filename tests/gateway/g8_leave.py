# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""A client that disconnects is cancelled: queued, prefilling or decoding, streamed or not."""
import json
import os
import socket
import struct
import subprocess
import time

from wire import Reader, SLOW, connect, metric, request, wait_for

CTL = os.environ["FDD_CTL"].split()
LONG = {"prompt": "In the beginning", "max_tokens": 1000, "ignore_eos": True}


def stats():
    out = subprocess.run(CTL + ["stat", "-1", "--json"], capture_output=True, text=True, check=True)
    d = json.loads(out.stdout)
    return dict(d["worker"], **d["gate"])


def cancels():
    return stats()["cancels"]


def busy():
    d = stats()
    return d["requests_queued"] + d["requests_running"]


def main():
    before = cancels()
    left = metric("fdd_http_left_total")
    # decoding, as a stream
    s = connect()
    s.sendall(request("/v1/completions", dict(LONG, stream=True)))
    r = Reader(s)
    status, _ = r.head()
    assert status == 200
    r.until(b"data: ")
    t = time.monotonic()
    s.close()
    wait_for("a decoding stream is cancelled", lambda: cancels() == before + 1)
    took = time.monotonic() - t
    print(f"cancelled {took * 1000:.0f} ms after the close, fdctl's start included")
    assert took < 1.0 * SLOW
    # whole answers: one decodes, the others wait for its row; reset and orderly close
    many = []
    for i in range(6):
        s = connect()
        s.sendall(request("/v1/completions", LONG))
        many.append(s)
    time.sleep(0.2)
    for i, s in enumerate(many):
        if i % 2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    wait_for("all are cancelled", lambda: cancels() == before + 7)
    # more prompts than the session accepts at a time
    s = connect()
    s.sendall(request("/v1/completions", dict(LONG, prompt=["And"] * 256, stream=True)))
    Reader(s).head()
    s.close()
    wait_for("nothing is left", lambda: metric("fdd_http_streams") == 0)
    assert metric("fdd_http_left_total") - left == 8
    wait_for("fdd has none", lambda: busy() == 0)


main()
