# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""The joined pieces of a stream equal the whole answer: text, finish, stop, usage, logprobs."""
import sys

from wire import ask, events

HAS_LOGPROBS = sys.argv[1:] == ["logprobs"]


def join(evs, chat):
    out = {}
    for e in evs:
        for c in e["choices"]:
            o = out.setdefault(c["index"], {"text": "", "finish": None, "stop": None, "lp": None,
                                            "role": 0, "ended": False})
            assert not o["ended"], "an event behind the finish"
            if chat:
                d = c["delta"]
                if "role" in d:
                    assert d == {"role": "assistant", "content": ""} and o["text"] == ""
                    o["role"] += 1
                o["text"] += d.get("content", "")
                # there are no empty pieces, which a client would count
                assert "role" in d or d.get("content") != ""
            else:
                o["text"] += c["text"]
            if c["logprobs"]:
                if o["lp"] is None:
                    o["lp"] = {k: list(v) for k, v in c["logprobs"].items() if v is not None}
                else:
                    for k, v in c["logprobs"].items():
                        if v is not None:
                            o["lp"][k] += v
            if c["finish_reason"]:
                o["finish"], o["stop"], o["ended"] = c["finish_reason"], c["stop_reason"], True
    return out


def compare(path, body, chat):
    status, _, whole = ask(path, body)
    assert status == 200, whole
    evs = events(path, dict(body, stream_options={"include_usage": True}))
    usage = [e["usage"] for e in evs]
    assert usage[-1] is not None and evs[-1]["choices"] == [], evs[-1]
    assert all(u is None for u in usage[:-1])
    strip = lambda u: {k: v for k, v in u.items() if k != "prompt_tokens_details"}
    assert strip(usage[-1]) == strip(whole["usage"]), (usage[-1], whole["usage"])
    # continuous usage: the tokens so far at each event
    running = [e["usage"] for e in events(path, dict(body, stream_options={"include_usage": True, "continuous_usage_stats": True}))]
    counts = [u["completion_tokens"] for u in running]
    assert counts == sorted(counts) and counts[-2] == counts[-1] == usage[-1]["completion_tokens"], counts
    assert counts[-1] < 8 or any(0 < n < counts[-1] for n in counts), counts
    counts = [u["prompt_tokens"] for u in running]  # all are accepted before the first event
    assert counts == sorted(counts) and counts[-1] == usage[-1]["prompt_tokens"], counts
    assert len({e["id"] for e in evs}) == 1 and len({e["created"] for e in evs}) == 1
    got = join(evs, chat)
    assert len(got) == len(whole["choices"])
    for c in whole["choices"]:
        o = got[c["index"]]
        text = c["message"]["content"] if chat else c["text"]
        lp = c["logprobs"] and {k: v for k, v in c["logprobs"].items() if v is not None}
        assert o["text"] == text, (o["text"], text)
        assert (o["finish"], o["stop"]) == (c["finish_reason"], c["stop_reason"]), (o, c)
        assert o["lp"] == lp, (o["lp"], lp)
        assert not chat or o["role"] == 1
    return whole


def main():
    t, c = "/v1/completions", "/v1/chat/completions"
    msg = [{"role": "user", "content": "Who made the heaven?"}]
    w = compare(t, {"prompt": "In the beginning", "max_tokens": 24, "seed": 7}, False)
    assert w["choices"][0]["finish_reason"] == "length" and w["usage"]["completion_tokens"] == 24
    w = compare(t, {"prompt": "And God", "max_tokens": 12, "seed": 7, "n": 3}, False)
    assert len({x["text"] for x in w["choices"]}) > 1, "three samples are the same"
    w = compare(t, {"prompt": ["And God", "In the", "Moses"], "max_tokens": 9, "seed": 1, "n": 2}, False)
    assert len(w["choices"]) == 6
    w = compare(t, {"prompt": "In the beginning", "max_tokens": 200, "temperature": 0, "stop": [" king"]}, False)
    assert w["choices"][0]["finish_reason"] == "stop" and w["choices"][0]["stop_reason"] == " king"
    assert not w["choices"][0]["text"].endswith(" king")
    w = compare(t, {"prompt": "In the beginning", "max_tokens": 200, "temperature": 0, "stop": " king",
                    "include_stop_str_in_output": True}, False)
    assert w["choices"][0]["text"].endswith(" king")
    compare(t, {"prompt": [1, 2, 3], "max_tokens": 5, "seed": 1}, False)
    w = compare(t, {"prompt": [[1, 2, 3], [4]], "max_tokens": 5, "seed": 1}, False)
    assert len(w["choices"]) == 2
    w = compare(t, {"prompt": "In the beginning", "max_tokens": 3, "seed": 1, "echo": True}, False)
    assert w["choices"][0]["text"].startswith("In the beginning")
    compare(c, {"messages": msg, "max_tokens": 16, "seed": 3}, True)
    compare(c, {"messages": msg, "max_completion_tokens": 8, "seed": 3, "n": 2}, True)
    if HAS_LOGPROBS:
        w = compare(t, {"prompt": "In the", "max_tokens": 6, "seed": 3, "logprobs": 3}, False)
        lp = w["choices"][0]["logprobs"]
        assert "".join(lp["tokens"]) == w["choices"][0]["text"]
        assert len(lp["token_logprobs"]) == 6 and all(len(x) >= 3 for x in lp["top_logprobs"])
        assert lp["text_offset"][0] == 0 and lp["text_offset"] == sorted(lp["text_offset"])
        # echo: also of the prompt, whose first token has none
        for n, most in ((1, 2), (2, 2), (1, 0)):
            w = compare(t, {"prompt": "In the beginning God", "max_tokens": most, "seed": 3, "logprobs": 1,
                            "echo": True, "n": n}, False)
            for x in w["choices"]:
                lp = x["logprobs"]
                k = w["usage"]["prompt_tokens"] + most
                assert x["text"].startswith("In the beginning God") and "".join(lp["tokens"]) == x["text"], x
                assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == k, (k, lp)
                assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
                assert all(v < 0 for v in lp["token_logprobs"][1:])
                assert lp["text_offset"] == [len("".join(lp["tokens"][:i])) for i in range(k)], lp
        ids = ask("/tokenize", {"prompt": "In the beginning"})[2]["tokens"]
        w = compare(t, {"prompt": ids, "max_tokens": 2, "seed": 3, "echo": True}, False)
        assert w["choices"][0]["text"].startswith("In the beginning")
        w = compare(c, {"messages": msg, "max_tokens": 6, "seed": 3, "logprobs": True,
                        "top_logprobs": 2, "n": 2}, True)
        lp = w["choices"][0]["logprobs"]["content"]
        assert "".join(x["token"] for x in lp) == w["choices"][0]["message"]["content"]
        assert all(len(x["top_logprobs"]) == 2 and x["bytes"] == list(x["token"].encode()) for x in lp)
        w = compare(c, {"messages": msg, "max_tokens": 3, "seed": 3, "logprobs": True}, True)
        assert all(x["top_logprobs"] == [] for x in w["choices"][0]["logprobs"]["content"])
    print("streams and whole answers agree")


main()
