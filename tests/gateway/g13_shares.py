# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Several keys: each gets its fair share; answers and cached prompts are not shared."""
import json
import sys
import threading
import time

from wire import Reader, SLOW, connect, request

N, TOKENS = 500, 50


def post(s, r, key, body):
    s.sendall(request("/v1/completions", body, headers=[("Authorization", f"Bearer {key}")]))
    status, _, raw = r.answer()
    return status, json.loads(raw)


class Load:
    """Clients with one request at a time each; counts the tokens of their answers by key."""

    def __init__(self):
        self.tokens, self.lock, self.end = {}, threading.Lock(), threading.Event()

    def add(self, key, n):
        for _ in range(n):
            threading.Thread(target=self.loop, args=(key,), daemon=True).start()

    def loop(self, key):
        with connect(120) as s:
            r = Reader(s)
            while not self.end.is_set():
                status, j = post(s, r, key, {"prompt": "In the", "max_tokens": TOKENS, "ignore_eos": True})
                assert status == 200, j
                with self.lock:
                    self.tokens[key] = self.tokens.get(key, 0) + TOKENS

    def rate(self, seconds):
        """Tokens by key within these seconds, after a pause for earlier requests."""
        time.sleep(1.5 * SLOW)
        with self.lock:
            before = dict(self.tokens)
        time.sleep(seconds * SLOW)
        with self.lock:
            return {k: v - before.get(k, 0) for k, v in self.tokens.items()}


def shares():
    threading.stack_size(256 * 1024)
    load = Load()
    load.add("k-one", 1)
    alone = load.rate(4)["k-one"]
    load.add("k-many", N)
    both = load.rate(4)
    load.add("k-few", 16)
    three = load.rate(10)
    load.end.set()
    print(f"one request at a time: {alone} tokens alone, {both['k-one']} next to {N} requests of another key")
    print(f"16 requests {three['k-few']} tokens, {N} requests {three['k-many']}")
    assert alone > 0 and both["k-one"] > 0.5 * alone, (alone, both)
    # 500 must buy nothing
    assert abs(three["k-few"] - three["k-many"]) < 0.15 * max(three["k-few"], three["k-many"]), three


def apart():
    with connect(60) as s:
        r = Reader(s)
        prompt = "And the earth was without form, and void. " * 12
        ask = {"prompt": prompt, "max_tokens": 2}
        cached = []
        for key in ("k-one", "k-one", "k-many", "k-many"):
            status, j = post(s, r, key, ask)
            assert status == 200, j
            cached.append(j["usage"]["prompt_tokens_details"]["cached_tokens"])
        print("cached tokens: first key", cached[:2], "second key", cached[2:])
        assert cached[0] == 0 and cached[1] > 0, cached
        assert cached[2] == 0 and cached[3] > 0, cached
    wrong = []

    def own(key, i):
        prompt = f"{key} number {i}:"
        with connect(120) as s:
            r = Reader(s)
            for _ in range(10):
                status, j = post(s, r, key, {"prompt": prompt, "max_tokens": 4, "echo": True})
                if status != 200 or not j["choices"][0]["text"].startswith(prompt):
                    wrong.append((key, i, j))

    ts = [threading.Thread(target=own, args=(k, i)) for i in range(16) for k in ("k-one", "k-many")]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert not wrong, wrong[:3]
    print("32 connections of two keys: each got its own answers")


{"shares": shares, "apart": apart}[sys.argv[1]]()
