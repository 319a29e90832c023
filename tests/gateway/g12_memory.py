# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies whose parsed form is large: parsing a body of 32 MiB takes less than 64 MiB more, and the
request is refused with a clear error."""
import time

from wire import Reader, ask, connect, request, rss_kib, wait_for

MIB = 1 << 20


def main():
    ask("/version")
    base = rss_kib()
    for name, piece in (("[{},", b"{},"), ("[1,", b"1,"), ("[[],", b"[],"), ('["",', b'"",')):
        head = b'{"prompt":['
        body = head + piece * ((32 * MIB - len(head) - 3) // len(piece)) + b'1]}'
        with connect(120) as s:
            s.sendall(request("/v1/completions", body))
            peak = rss_kib()
            status, _, raw = Reader(s).answer()
        peak = max(peak, rss_kib())
        with open(f"/proc/{__import__('os').environ['FDD_HTTP_PID']}/status") as f:
            high = next(int(x.split()[1]) for x in f if x.startswith("VmHWM:"))
        print(f"{name} {len(body)} bytes: {status}, {(high - base) // 1024} MiB at most")
        assert status == 400 and b"more than" in raw, (status, raw[:300])
        assert high - base < (32 + 64) * 1024, f"{high - base} KiB"
    for name, body in (("deep", b"[" * MIB), ("deep objects", b'{"a":' * (MIB // 5)),
                       ("numbers", b'{"temperature":' + b"1" * MIB + b"}")):
        t = time.monotonic()
        status, _, raw = ask("/v1/completions", body)
        assert status == 400, (name, status, raw)
        assert time.monotonic() - t < 2, name
    wait_for("memory is given back", lambda: rss_kib() - base < 8 * 1024)
    status, _, raw = ask("/v1/completions", b" " * (33 * MIB))
    assert status in (None, 413), status


main()
