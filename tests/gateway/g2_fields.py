# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Each field of http/tbl/fields.h takes effect, is ignored, or is refused with its name."""
import os
import re
import sys

from wire import ask, events

SRC = os.environ["FDD_SRC"]
PATHS = {"T": "/v1/completions", "C": "/v1/chat/completions"}
BASE = {"T": {"prompt": "In the beginning", "max_tokens": 6, "seed": 4},
        "C": {"messages": [{"role": "user", "content": "In the beginning"}], "max_tokens": 6, "seed": 4}}
# Fields that the daemon of this build does not offer are refused by the daemon.
MAY_BE_REFUSED = {"logit_bias", "bad_words", "allowed_token_ids", "logprobs", "top_logprobs", "best_of"}
# For each supported field a valid value, and a wrong one.
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
    "documents": ([{"text": "a"}], ["a"]), "reasoning_effort": ("low", "some"),
    "chat_template_kwargs": ({"enable_thinking": False}, 5), "add_generation_prompt": (False, 2),
    "include_reasoning": (False, "x"), "prompt_logprobs": (1, 21), "return_token_ids": (True, "yes"),
    "return_tokens_as_token_ids": (True, 1), "truncate_prompt_tokens": (2, 0),
    "truncation_side": ("right", "middle"), "continue_final_message": (True, "yes"),
}


def fields():
    text = open(f"{SRC}/http/tbl/fields.h").read()
    return re.findall(r"^FIELD\((\w+), (\w+), (\w+),", text, re.M)


def text_of(j, kind):
    c = j["choices"][0]
    return c["text"] if kind == "T" else c["message"]["content"]


def prompts(t, c):
    """Fields that return data of the prompt, or truncate it."""
    said = ask("/tokenize", {"prompt": "In the beginning", "return_token_strs": True})[2]
    ids = said["tokens"]
    assert "".join(said["token_strs"]).endswith("In the beginning") and len(said["token_strs"]) == len(ids), said
    for i, text in zip(ids, said["token_strs"]):
        assert text == ask("/detokenize", {"tokens": [i]})[2]["prompt"], (i, text)
    plain = ask("/tokenize", {"prompt": "In the beginning"})[2]
    assert plain["tokens"] == ids and plain["token_strs"] is None, plain
    j = t(return_token_ids=True, n=2)
    for x in j["choices"]:
        assert x["prompt_token_ids"] == ids and len(x["token_ids"]) == 6, x
        assert ask("/detokenize", {"tokens": x["token_ids"]})[2]["prompt"] == x["text"]
    body = dict(BASE["T"], return_token_ids=True)
    evs = events("/v1/completions", body)
    assert evs[0]["choices"][0]["prompt_token_ids"] == ids
    assert all("prompt_token_ids" not in e["choices"][0] for e in evs[1:])
    got = [i for e in evs for i in e["choices"][0]["token_ids"]]
    assert got == t(return_token_ids=True)["choices"][0]["token_ids"], got
    j = c(return_token_ids=True)
    assert j["prompt_token_ids"] == ask("/tokenize", BASE["C"])[2]["tokens"], j
    assert len(j["choices"][0]["token_ids"]) == 6 and "prompt_token_ids" not in t(), j
    evs = events("/v1/chat/completions", dict(BASE["C"], return_token_ids=True))
    assert evs[0]["prompt_token_ids"] == j["prompt_token_ids"] and "prompt_token_ids" not in evs[1]
    assert [i for e in evs for i in e["choices"][0].get("token_ids", [])] == j["choices"][0]["token_ids"]
    # how much of it
    whole = t(return_token_ids=True, truncate_prompt_tokens=2)
    assert whole["choices"][0]["prompt_token_ids"] == ids[-2:], whole
    assert t(return_token_ids=True, truncate_prompt_tokens=2, truncation_side="right"
             )["choices"][0]["prompt_token_ids"] == ids[:2]
    assert t(return_token_ids=True, truncate_prompt_tokens=99)["choices"][0]["prompt_token_ids"] == ids
    j = t(prompt=["In the beginning", ids, "And God"], truncate_prompt_tokens=1, return_token_ids=True)
    assert [len(x["prompt_token_ids"]) for x in j["choices"]] == [1, 1, 1], j
    assert j["choices"][0]["text"] == t(prompt=ids[-1:])["choices"][0]["text"]
    long = "and " * 3000
    assert t(prompt=long, truncate_prompt_tokens=-1, max_tokens=4)["usage"]["prompt_tokens"] == 1020
    j = c(messages=[{"role": "user", "content": long}], truncate_prompt_tokens=7, return_token_ids=True)
    all_ids = ask("/tokenize", {"messages": [{"role": "user", "content": long}]})[2]["tokens"]
    assert j["prompt_token_ids"] == all_ids[-7:], j
    assert t(truncate_prompt_tokens=2, echo=True, max_tokens=2)["choices"][0]["text"].startswith(
        ask("/detokenize", {"tokens": ids[-2:]})[2]["prompt"])
    # logprobs of it
    j = t(prompt_logprobs=2, max_tokens=1)
    if "error" in j:
        assert j["error"]["code"] == "unsupported", j
        return
    lp = j["choices"][0]["prompt_logprobs"]
    assert lp[0] is None and len(lp) == len(ids), lp
    for i, x in zip(ids[1:], lp[1:]):
        assert list(x)[0] == str(i) and 2 <= len(x) <= 3, x
        ranks = [y["rank"] for y in x.values() if y["rank"]]
        assert sorted(ranks) == [1, 2] and all(y["logprob"] <= 0 for y in x.values()), x
    assert "".join(x[str(i)]["decoded_token"] for i, x in zip(ids[1:], lp[1:])).endswith("beginning")
    both = t(prompt_logprobs=2, max_tokens=1, echo=True, logprobs=0)["choices"][0]
    assert both["prompt_logprobs"] == lp and len(both["logprobs"]["tokens"]) == len(ids) + 1, both
    assert all(len(x) == 1 for x in both["logprobs"]["top_logprobs"][1:]), both
    assert c(prompt_logprobs=0, max_tokens=1)["prompt_logprobs"][0] is None
    status, _, j = ask("/v1/completions", dict(BASE["T"], prompt_logprobs=1, stream=True))
    assert status == 400 and j["error"]["param"] == "prompt_logprobs", j
    j = t(logprobs=1, echo=True, return_tokens_as_token_ids=True, max_tokens=1)["choices"][0]["logprobs"]
    assert j["tokens"][:len(ids)] == [f"token_id:{i}" for i in ids], j
    assert list(j["top_logprobs"][1])[0].startswith("token_id:")
    j = c(logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["content"]
    assert all(x["token"].startswith("token_id:") and x["top_logprobs"][0]["token"].startswith("token_id:")
               for x in j), j


def conversations(c):
    """Fields that only chat completions have."""
    talk = [{"role": "user", "content": "Go on"}, {"role": "assistant", "content": "In the beginning"}]
    rendered = lambda **kw: ask("/detokenize", {"tokens": ask("/tokenize", dict({"messages": talk}, **kw))[2]["tokens"]}
                                )[2]["prompt"]
    head = "<|endoftext|>user: Go on\n<|endoftext|>assistant: In the beginning"
    assert rendered() == head + "\nassistant:", rendered()
    assert rendered(add_generation_prompt=False) == head + "\n"
    assert rendered(continue_final_message=True) == head
    j = c(messages=talk, continue_final_message=True, echo=True, temperature=0)["choices"][0]["message"]["content"]
    more = c(messages=talk, continue_final_message=True, temperature=0)["choices"][0]["message"]["content"]
    assert j == "In the beginning" + more and len(more) > 1, (j, more)
    assert c(echo=True, temperature=0) ["choices"][0]["message"]["content"] == \
        c(temperature=0)["choices"][0]["message"]["content"]
    evs = events("/v1/chat/completions", dict(BASE["C"], messages=talk, continue_final_message=True, echo=True,
                                              temperature=0))
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in evs) == j
    for bad in ({"add_generation_prompt": True}, {"messages": [{"role": "user", "content": ""},
                                                               {"role": "assistant", "content": None}]}):
        status, _, r = ask("/v1/chat/completions",
                           dict({"messages": talk, "max_tokens": 2, "continue_final_message": True}, **bad))
        assert status == 400 and r["error"]["param"] == "continue_final_message", (bad, r)
    n = lambda k: len(events("/v1/chat/completions", dict(BASE["C"], max_tokens=40, ignore_eos=True,
                                                          stream_interval=k)))
    assert n(20) < 8 <= n(1), (n(20), n(1))


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
    assert text_of(t(seed=-2 ** 63), "T") != text_of(t(seed=-2 ** 63 + 1), "T")
    for kw in {"prompt": ["a", ""]}, {"prompt": "", "truncate_prompt_tokens": 1}:
        says = t(add_special_tokens=False, **kw)["error"]["message"]
        assert "prompt is empty" in says, says
    assert text_of(t(temperature=0), "T") == text_of(t(temperature=0, seed=9), "T") == text_of(t(top_k=1), "T")
    assert t(max_tokens=40, stop=["."], temperature=0)["choices"][0]["stop_reason"] in (".", None)
    ids = ask("/tokenize", {"prompt": text_of(t(temperature=0), "T"), "add_special_tokens": False})[2]["tokens"]
    j = t(temperature=0, max_tokens=20, stop_token_ids=[ids[2]])
    assert j["choices"][0]["finish_reason"] == "stop" and j["choices"][0]["stop_reason"] == ids[2], j
    assert t(request_id="abc")["id"] == "cmpl-abc"
    assert t(add_special_tokens=False)["usage"]["prompt_tokens"] + 1 == t()["usage"]["prompt_tokens"]
    assert len(t(n=3)["choices"]) == 3
    prompts(t, c)
    conversations(c)
    status, h, j = ask("/v1/completions", BASE["T"], headers=[("X-Request-Id", "req-7")])
    assert h["x-request-id"] == "req-7" and j["id"] == "cmpl-req-7"
    print(f"{seen} fields")


main()
