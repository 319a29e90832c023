# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Streams whose reader pauses: a UNIX socket holds some hundred events, the later ones wait in
fdd-http."""
import socket
import sys
import time

from wire import Reader, SLOW, metric, request, wait_for

N = 3000
APIS = (
    ("/v1/completions", {"prompt": "abcdefgh", "max_tokens": N, "ignore_eos": True}, b"data: [DONE]\n\n"),
    ("/v1/completions", {"prompt": "abcdefgh", "max_tokens": N, "ignore_eos": True,
                         "stream_options": {"include_usage": True}}, b"data: [DONE]\n\n"),
)


def main():
    for path, body, end in APIS:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20 * SLOW)
            s.connect(sys.argv[1])
            before = metric("fdd_http_output_tokens_total")
            s.sendall(request(path, dict(body, stream=True)))
            wait_for("the model has said all", lambda: metric("fdd_http_output_tokens_total") >= before + N)
            time.sleep(0.2)
            r = Reader(s)
            r.head()
            raw = b"".join(r.chunks())
            assert raw.endswith(end) and b'"finish_reason":"length"' in raw, raw[-200:]
            events = raw.count(b"\n\n")
            assert events < N, (events, "the socket took every event: nothing waited")
    wait_for("no stream is left", lambda: metric("fdd_http_streams") == 0)


main()
