# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Answers of a model that ends them with a special token: its name shows only if it is asked for.
Prints the answers, which are the same with any parser."""
import json
import sys

from wire import Reader, connect, request

QUESTIONS = ["Who are you?", "What is light?", "Who made the heaven and the earth?"]


def ask(stream, **more):
    """Returns the content, ids and number of tokens of each answer."""
    s = connect(60)
    r, found = Reader(s), []
    for q in QUESTIONS:
        body = dict(messages=[{"role": "user", "content": q}], temperature=0, max_tokens=60, return_token_ids=True,
                    stream=stream, **more)
        if stream:
            body["stream_options"] = {"include_usage": True}
        s.sendall(request("/v1/chat/completions", body))
        status, _, raw = r.answer()
        assert status == 200, raw
        if not stream:
            m = json.loads(raw)
            c = m["choices"][0]
            assert c["finish_reason"] == "stop", c
            found.append((c["message"]["content"], c["token_ids"], m["usage"]["completion_tokens"], m["prompt_token_ids"]))
            continue
        content, ids, usage, prompt = "", [], None, None
        for block in raw.decode().split("\n\n")[:-2]:
            m = json.loads(block[len("data: "):])
            usage = m.get("usage") or usage
            if "prompt_token_ids" in m:
                assert prompt is None, block
                prompt = m["prompt_token_ids"]
            for c in m["choices"]:
                content += c["delta"].get("content", "")
                ids += c.get("token_ids", [])
        found.append((content, ids, usage["completion_tokens"], prompt))
    return found


plain = ask(False)
assert all(x[0] and "<|im" not in x[0] for x in plain), plain
assert all(len(x[1]) == x[2] for x in plain), plain
assert ask(True) == plain, (ask(True), plain)
for more, end in ({"include_stop_str_in_output": True}, ""), ({"skip_special_tokens": False}, "<|im_end|>"):
    shown = ask(False, **more)
    assert [x[0] for x in shown] == [x[0] + end for x in plain], (more, shown)
    assert ask(True, **more) == shown, (more, shown)
print(json.dumps(plain))
