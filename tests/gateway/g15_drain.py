# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: running requests complete, new connections are refused, /health reports draining."""
import os
import signal
import time

from wire import PID, Reader, connect, request


def main():
    idle = connect()
    idle.sendall(request("/version"))
    idle_r = Reader(idle)
    assert idle_r.answer()[0] == 200
    streams = []
    for n in range(8):
        s = connect(120)
        s.sendall(request("/v1/completions", {"prompt": "In the", "max_tokens": 300,
                                              "ignore_eos": True, "stream": True}))
        r = Reader(s)
        assert r.head()[0] == 200
        pieces = r.chunks()
        next(pieces)
        streams.append((s, pieces))
    whole = connect(120)
    whole.sendall(request("/v1/completions", {"prompt": "In the", "max_tokens": 200, "ignore_eos": True}))
    open_one = connect(120)
    open_one.sendall(request("/health")[:-2])  # its last bytes come later
    time.sleep(0.3)
    os.kill(PID, signal.SIGTERM)
    time.sleep(0.2)
    try:
        connect().close()
        raise AssertionError("a connection was accepted while draining")
    except ConnectionRefusedError:
        pass
    open_one.sendall(b"\r\n")
    status, h, raw = Reader(open_one).answer()
    assert status == 503 and b"draining" in raw, (status, raw)
    assert h["connection"] == "close" and int(h["retry-after"]) >= 1
    for s, pieces in streams:
        raw = b"".join(pieces)
        assert raw.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in raw, raw[-300:]
    status, h, raw = Reader(whole).answer()
    assert status == 200 and b'"completion_tokens":200' in raw
    assert idle.recv(10) == b"", "an idle connection was kept"
    print("8 streams and a whole answer ended whole")


main()
