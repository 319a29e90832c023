# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Python SDK, unmodified."""
import os

import anthropic

URL = f"http://127.0.0.1:{os.environ['FDD_HTTP_PORT']}"
NAME = os.environ["FDD_MODEL"]
MSG = [{"role": "user", "content": "In the beginning"}]


def raises(kind, fn):
    try:
        fn()
    except kind as e:
        assert type(e) is kind, (type(e), kind)
        return e
    raise AssertionError(f"no {kind}")


def main():
    c = anthropic.Anthropic(base_url=URL, api_key="k-one", max_retries=0, timeout=60)
    ask = {"model": NAME, "messages": MSG, "max_tokens": 12, "extra_body": {"temperature": 0}}
    whole = c.messages.create(**ask)
    assert whole.type == "message" and whole.role == "assistant" and whole.model == NAME, whole
    assert whole.content[0].type == "text" and whole.content[0].text, whole
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 12, whole

    with c.messages.stream(**ask) as s:
        text = "".join(s.text_stream)
        last = s.get_final_message()
    assert text == last.content[0].text == whole.content[0].text, (text, whole)
    assert last.stop_reason == "max_tokens" and last.usage.output_tokens == 12, last
    kinds = [e.type for e in c.messages.create(**ask, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 1, kinds
    assert "content_block_delta" in kinds, kinds

    n = c.messages.count_tokens(model=NAME, messages=MSG).input_tokens
    assert n == whole.usage.input_tokens, (n, whole.usage)
    more = c.messages.create(**dict(ask, system="Be brief.", messages=MSG + [
        {"role": "assistant", "content": [{"type": "text", "text": "God created"}]},
        {"role": "user", "content": [{"type": "text", "text": "And then?"}]}]))
    assert more.usage.input_tokens > n, more
    cut = c.messages.create(**dict(ask, max_tokens=300, stop_sequences=["e"]))
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == "e", cut
    assert "e" not in cut.content[0].text, cut

    raises(anthropic.NotFoundError, lambda: c.messages.create(**dict(ask, model="claude-0")))
    raises(anthropic.BadRequestError, lambda: c.messages.create(**dict(ask, max_tokens=99999)))
    raises(anthropic.BadRequestError, lambda: c.messages.create(**dict(ask, extra_body={"temperature": -1})))
    bad = anthropic.Anthropic(base_url=URL, api_key="no", max_retries=0)
    raises(anthropic.AuthenticationError, lambda: bad.messages.create(**ask))


main()
