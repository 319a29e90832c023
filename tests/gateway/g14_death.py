# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon or its worker dies while streams run: each ends with all the tokens of an undisturbed
run, or with an error event; none hangs. Arguments: the process to kill, number of streams."""
import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from wire import Reader, ask, connect, request

BODY = {"prompt": "In the beginning", "max_tokens": 400, "ignore_eos": True, "temperature": 0.9}


def text_of(raw):
    events = [e[len("data: "):] for e in raw.decode().split("\n\n") if e.startswith("data: ")]
    assert events[-1] == "[DONE]", events[-1:]
    events = [json.loads(e) for e in events[:-1]]
    bad = [e["error"] for e in events if "error" in e]
    return "".join(c["text"] for e in events for c in e.get("choices", [])), bad


def main():
    victim, n = int(sys.argv[1]), int(sys.argv[2])
    def whole(seed):
        status, _, answer = ask("/v1/completions", dict(BODY, seed=seed))
        assert status == 200, answer
        return answer["choices"][0]["text"]

    with ThreadPoolExecutor(n) as pool:
        want = list(pool.map(whole, range(n)))
    streams = []
    for seed in range(n):
        s = connect(120)
        s.sendall(request("/v1/completions", dict(BODY, seed=seed, stream=True)))
        r = Reader(s)
        assert r.head()[0] == 200
        pieces = r.chunks()
        streams.append((seed, s, pieces, next(pieces)))
    os.kill(victim, signal.SIGKILL)
    began, same, failed = time.monotonic(), 0, 0
    for seed, s, pieces, first in streams:
        text, bad = text_of(first + b"".join(pieces))
        if bad:
            assert bad[0]["code"] and bad[0]["message"], bad
            assert want[seed].startswith(text), (seed, text)
            failed += 1
        else:
            assert text == want[seed], (seed, text, want[seed])
            same += 1
    print(f"{n} streams: {same} with the same text, {failed} with an error event, after "
          f"{time.monotonic() - began:.1f} s")
    assert same + failed == n


main()
