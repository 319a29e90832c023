# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Room that others leave: see room.sh."""
import os
import sys
import time

from wire import PID, SLOW, Reader, connect, request


def waits():
    """Four streams fill the session, a fifth request waits, the streams' clients leave."""
    streams = []
    for _ in range(4):
        s = connect()
        s.sendall(request("/v1/completions", {"prompt": "ab", "max_tokens": 4000, "stream": True}))
        assert Reader(s).until(b"data: ") is not None
        streams.append(s)
    s = connect(30)
    s.sendall(request("/v1/completions", {"prompt": "cd", "max_tokens": 2}))
    time.sleep(0.5 * SLOW)
    for other in streams:
        other.close()
    status, _, raw = Reader(s).answer()
    assert status == 200, raw


def ticks():
    f = open(f"/proc/{PID}/stat").read().rsplit(") ", 1)[1].split()
    return int(f[11]) + int(f[12])


def descriptors():
    """More connections than descriptors."""
    many = [connect(30) for _ in range(160)]
    time.sleep(0.5 * SLOW)
    t, before = time.monotonic(), ticks()
    time.sleep(2)
    share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - t)
    assert share < 0.2, f"{share:.0%} of a processor while it cannot accept"
    for s in many[:100]:
        s.close()
    s = connect(30)
    s.sendall(request("/health"))
    status, _, raw = Reader(s).answer()
    assert status == 200, raw
    many[-1].sendall(request("/health"))
    assert Reader(many[-1]).answer()[0] == 200


{"waits": waits, "descriptors": descriptors}[sys.argv[1]]()
