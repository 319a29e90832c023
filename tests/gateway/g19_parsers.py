# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Answers of one format (tests/chat/answers.jsonl): content, reasoning and calls are read
correctly, from whole answers and from streams."""
import json
import os
import random
import sys

from wire import Reader, connect, request, say

PATH = "/v1/chat/completions"


class Client:
    """One connection for all requests."""

    def __init__(self):
        self.s = connect(60)
        self.r = Reader(self.s)

    def ask(self, body):
        self.s.sendall(request(PATH, body))
        status, _, raw = self.r.answer()
        assert status == 200, raw
        return raw.decode()

    def whole(self, body):
        m = json.loads(self.ask(body))["choices"][0]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in m["message"].get("tool_calls", [])]
        return m["message"]["content"] or "", m["message"].get("reasoning_content", ""), calls, m["finish_reason"]

    def stream(self, body):
        content, reasoning, calls, finish = "", "", [], None
        for block in self.ask(dict(body, stream=True)).split("\n\n")[:-2]:
            c = json.loads(block[len("data: "):])["choices"][0]
            content += c["delta"].get("content", "")
            reasoning += c["delta"].get("reasoning_content", "")
            for d in c["delta"].get("tool_calls", []):
                if d["index"] == len(calls):
                    calls.append((d["function"]["name"], ""))
                name, args = calls[d["index"]]
                calls[d["index"]] = (name, args + d["function"]["arguments"])
            finish = c["finish_reason"] or finish
        return content, reasoning, calls, finish


def main():
    with open(os.environ["FDD_SRC"] + "/tests/chat/answers.jsonl", encoding="utf-8") as f:
        tools, *lines = [json.loads(line) for line in f]
    lines = [x for x in lines if x[0] == sys.argv[1]]
    assert len(lines) >= 8, lines
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    r, client, n = random.Random(seed), Client(), 0
    for i, (_, tail, text, content, reasoning, calls) in enumerate(lines):
        body = lambda each, most=0: {"messages": [{"role": "user", "content": "a"}], "tools": tools,
                                     "chat_template_kwargs": say(text, each, most, tail)}
        got = client.whole(body(1 << 20))
        assert got[0].strip() == content.strip() and got[1].strip() == reasoning.strip(), (seed, text, got)
        assert [(k, json.loads(a)) for k, a in got[2]] == [tuple(c) for c in calls], (seed, text, got)
        assert got[3] == ("tool_calls" if calls else "stop"), (seed, text, got)
        cuts = [(1, 0), (0, r.randrange(2, 9)), (0, r.randrange(9, 60))]
        if i == 0:
            cuts += [(k, 0) for k in range(2, len(text), 1 + len(text) // 25)]
        for each, most in cuts:
            again = client.stream(body(each, most))
            assert again == got, (seed, each, most, text, again, got)
            n += 1
    print(f"{sys.argv[1]}: {len(lines)} answers, {n} streams")


main()
