# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Python SDK, unmodified."""
import os

import openai

URL = f"http://127.0.0.1:{os.environ['FDD_HTTP_PORT']}/v1"
MSG = [{"role": "user", "content": "In the beginning"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}}}}]


def raises(kind, param, fn):
    try:
        fn()
    except kind as e:
        assert type(e) is kind and e.param == param, (type(e), e.param, param)
        return e
    raise AssertionError(f"no {kind}")


def main():
    c = openai.OpenAI(base_url=URL, api_key="k-one", max_retries=0, timeout=60)
    name = c.models.list().data[0].id
    assert c.models.retrieve(name).id == name
    r = c.completions.create(model=name, prompt="In the beginning", max_tokens=5, seed=1)
    assert r.choices[0].text and r.usage.completion_tokens == 5
    r = c.chat.completions.create(model=name, messages=MSG, max_tokens=5, seed=1, tools=TOOLS, n=2)
    assert len(r.choices) == 2 and r.choices[0].finish_reason == "length"
    whole = c.chat.completions.create(model=name, messages=MSG, max_tokens=12, seed=1)
    text, usage = "", None
    for e in c.chat.completions.create(model=name, messages=MSG, max_tokens=12, seed=1, stream=True,
                                       stream_options={"include_usage": True}):
        usage = e.usage or usage
        for ch in e.choices:
            text += ch.delta.content or ""
    assert text == whole.choices[0].message.content and usage.completion_tokens == 12
    with c.chat.completions.stream(model=name, messages=MSG, max_tokens=300, seed=1, stop=["e"]) as s:
        kinds = [e.type for e in s]
        assert "content.delta" in kinds and s.get_final_completion().choices[0].finish_reason == "stop"
    r = c.completions.create(model=name, prompt=["a", "b"], max_tokens=2, extra_body={"top_k": 1})
    assert len(r.choices) == 2

    create = lambda **kw: c.chat.completions.create(**dict({"model": name, "messages": MSG}, **kw))
    raises(openai.BadRequestError, "temperature", lambda: create(temperature=-1))
    raises(openai.BadRequestError, "response_format", lambda: create(response_format={"type": "json_object"}))
    raises(openai.NotFoundError, "model", lambda: create(model="gpt-5"))
    e = raises(openai.BadRequestError, "max_tokens", lambda: create(max_tokens=99999))
    assert e.code == "context_length_exceeded"
    bad = openai.OpenAI(base_url=URL, api_key="no", max_retries=0)
    assert raises(openai.AuthenticationError, None, lambda: bad.models.list()).code == "invalid_api_key"
    two = openai.OpenAI(base_url=URL, api_key="k-two", max_retries=0)
    s = two.completions.create(model=name, prompt="a", max_tokens=900, stream=True, extra_body={"ignore_eos": True})
    next(iter(s))
    raises(openai.RateLimitError, None, lambda: two.completions.create(model=name, prompt="a"))
    s.close()
    # its own retry succeeds
    again = openai.OpenAI(base_url=URL, api_key="k-two", max_retries=5)
    assert again.completions.create(model=name, prompt="a", max_tokens=1).choices


main()
