# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Each field of http/tbl/fields.h is honoured, harmless, or refused by its name."""
import os
import re
import sys

from wire import ask

SRC = os.environ["FDD_SRC"]
PATHS = {"T": "/v1/completions", "C": "/v1/chat/completions"}
BASE = {"T": {"prompt": "In the beginning", "max_tokens": 6, "seed": 4},
        "C": {"messages": [{"role": "user", "content": "In the beginning"}], "max_tokens": 6, "seed": 4}}
# What the daemon of this build does not offer, it refuses itself.
MAY_BE_REFUSED = {"logit_bias", "bad_words", "allowed_token_ids", "logprobs", "top_logprobs", "best_of"}
# A value for each field that is honoured, and one that is wrong.
HONOURED = {
    "model": ("demo", "other"), "messages": None, "prompt": None,
    "max_tokens": (3, -1), "max_completion_tokens": (3, 1.5), "min_tokens": (2, "2"),
    "temperature": (0.5, -1), "top_p": (0.9, 1.5), "top_k": (5, -2), "min_p": (0.1, 2),
    "presence_penalty": (1, 3), "frequency_penalty": (1, -3), "repetition_penalty": (1.1, 0),
    "n": (2, 0), "best_of": (1, 65), "seed": (5, 1.5), "stop": (["x"], 5),
    "stop_token_ids": ([5], "5"), "include_stop_str_in_output": (True, 1), "ignore_eos": (True, "yes"),
    "skip_special_tokens": (False, 0), "add_special_tokens": (False, []), "logprobs": None,
    "top_logprobs": None, "echo": (True, 3), "stream": None, "stream_options": None,
    "stream_interval": (4, -1), "priority": (1, "high"), "request_id": ("r1", 5),
    "cache_salt": ("s", ""), "logit_bias": ({"5": 1}, {"a": 1}), "bad_words": (["x"], "x"),
    "allowed_token_ids": ([5, 6], [-1]), "user": None,
    "tools": ([{"type": "function", "function": {"name": "f", "parameters": {}}}], {}),
    "tool_choice": ("auto", "required"), "parallel_tool_calls": (True, None),
    "response_format": ({"type": "text"}, {"type": "json_object"}), "modalities": (["text"], ["audio"]),
    "documents": ([{"text": "a"}], None), "reasoning_effort": ("low", None),
    "chat_template_kwargs": ({"enable_thinking": False}, 5), "add_generation_prompt": (False, 2),
    "include_reasoning": (False, "x"),
}


def fields():
    text = open(f"{SRC}/http/tbl/fields.h").read()
    return re.findall(r"^FIELD\((\w+), (\w+), (\w+),", text, re.M)


def text_of(j, kind):
    c = j["choices"][0]
    return c["text"] if kind == "T" else c["message"]["content"]


def main():
    rows = fields()
    assert len(rows) > 70
    seen = 0
    for name, where, kind in rows:
        for w in where:
            path, base = PATHS[w], BASE[w]
            if kind == "OFF":
                for v in ({"a": 1}, "x", True, 3):
                    status, _, j = ask(path, dict(base, **{name: v}))
                    assert status == 400 and j["error"]["param"] == name and name in j["error"]["message"], (name, v, j)
                off = (None, False, [], {}, "none", 0)
            elif kind == "ANY":
                off = (None, "x", {"a": "b"})
            else:
                assert name in HONOURED, f"{name} has no case here"
                good, bad = HONOURED[name] or (None, None)
                off = (None,) if name not in ("messages", "prompt") else ()
                if good is not None:
                    status, h, j = ask(path, dict(base, **{name: good}))
                    ok = status == 200 or (name in MAY_BE_REFUSED and j["error"]["code"] == "unsupported")
                    assert ok and "x-fdd-ignored" not in h, (name, good, j)
                if bad is not None:
                    status, _, j = ask(path, dict(base, **{name: bad}))
                    assert status in (400, 404) and j["error"]["param"] == name, (name, bad, j)
            for v in off:
                status, h, j = ask(path, dict(base, **{name: v}))
                assert status == 200 and "x-fdd-ignored" not in h, (name, v, j)
            seen += 1
    for w, path in PATHS.items():
        status, h, _ = ask(path, dict(BASE[w], zzz=1, **{"a b": 2}))
        assert status == 200 and h["x-fdd-ignored"] == "zzz", h

    # effects
    t = lambda **kw: ask("/v1/completions", dict(BASE["T"], **kw))[2]
    c = lambda **kw: ask("/v1/chat/completions", dict(BASE["C"], **kw))[2]
    assert t(max_tokens=3)["usage"]["completion_tokens"] == 3
    assert c(max_tokens=9, max_completion_tokens=2)["usage"]["completion_tokens"] == 2
    assert text_of(t(), "T") == text_of(t(), "T") != text_of(t(seed=5, temperature=3), "T")
    assert text_of(t(temperature=0), "T") == text_of(t(temperature=0, seed=9), "T") == text_of(t(top_k=1), "T")
    assert t(max_tokens=40, stop=["."], temperature=0)["choices"][0]["stop_reason"] in (".", None)
    ids = ask("/tokenize", {"prompt": text_of(t(temperature=0), "T"), "add_special_tokens": False})[2]["tokens"]
    j = t(temperature=0, max_tokens=20, stop_token_ids=[ids[2]])
    assert j["choices"][0]["finish_reason"] == "stop" and j["choices"][0]["stop_reason"] == ids[2], j
    assert t(request_id="abc")["id"] == "cmpl-abc"
    assert t(add_special_tokens=False)["usage"]["prompt_tokens"] + 1 == t()["usage"]["prompt_tokens"]
    assert len(t(n=3)["choices"]) == 3
    status, h, j = ask("/v1/completions", BASE["T"], headers=[("X-Request-Id", "req-7")])
    assert h["x-request-id"] == "req-7" and j["id"] == "cmpl-req-7"
    print(f"{seen} fields")


main()
