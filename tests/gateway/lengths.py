# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Prompts close to the model's length, and how many tokens may follow them."""

from wire import ask, events

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
ALL = 1024  # the demo model's length in tokens
SAID = ("and the LORD said unto " * 400).split()


def tokens(**body):
    status, _, j = ask("/tokenize", body)
    assert status == 200, j
    return j["tokens"]


def of_length(n, **body):
    """Returns a text whose prompt has about n tokens, at most n, and that prompt's ids."""
    lo, hi = 1, len(SAID)
    make = lambda k: {"prompt": " ".join(SAID[:k])} if not body else \
        {"messages": [{"role": "user", "content": " ".join(SAID[:k])}]}
    while lo < hi:
        k = (lo + hi + 1) // 2
        lo, hi = (k, hi) if len(tokens(**make(k))) <= n else (lo, k - 1)
    return " ".join(SAID[:lo]), tokens(**make(lo))


def refused(path, name, n, most, **body):
    for stream in (False, True):
        status, _, j = ask(path, dict(body, stream=stream))
        assert status == 400, (path, status, j)  # of a stream too: no text of another prompt came before
        e = j["error"]
        says = e["message"]
        for wanted in (f"maximum context length is {ALL} tokens", f"the prompt has {n}", f"{name} is {most}",
                     f"Lower {name} to {ALL - n}"):
            assert wanted in says, (path, wanted, says)
        if path == MESSAGES:
            assert says.startswith(f"input length and `max_tokens` exceed context limit: {n} + {most} > {ALL}"), says
        else:
            assert e["code"] == "context_length_exceeded", e
            assert e["param"] in ("prompt", "messages", "input"), e


def main():
    text, ids = of_length(ALL - 20)
    n = len(ids)
    one = {"temperature": 0, "ignore_eos": True}
    for prompt in (text, ids, [text, "a"], [ids, [5]], ["", text]):
        refused(TEXT, "max_tokens", n, ALL - n + 1, prompt=prompt, max_tokens=ALL - n + 1)
    refused(TEXT, "max_completion_tokens", n, 500, prompt=text, max_tokens=1, max_completion_tokens=500)
    answers = []
    for prompt in (text, ids):
        status, _, j = ask(TEXT, dict(one, prompt=prompt, max_tokens=ALL - n))
        assert status == 200 and j["usage"]["total_tokens"] == ALL, j
        answers.append(j["choices"][0]["text"])
    assert answers[0] == answers[1]

    # left out: 16 tokens, or as many as fit
    text, ids = of_length(ALL - 8)
    n = len(ids)
    for prompt in (text, ids):
        status, _, j = ask(TEXT, dict(one, prompt=prompt))
        assert status == 200 and j["usage"]["completion_tokens"] == ALL - n < 16, j
        assert j["choices"][0]["finish_reason"] == "length", j
        answer = j["choices"][0]["text"]
        got = events(TEXT, dict(one, prompt=prompt, stream=True))
        assert "".join(e["choices"][0]["text"] for e in got if e["choices"]) == answer, (got, answer)
    status, _, j = ask(TEXT, dict(one, prompt=[text, "", "In the"], n=2))
    assert status == 200 and j["usage"]["completion_tokens"] == 2 * (ALL - n + 32), j
    assert [c["text"] for c in j["choices"][:2]] == [answer] * 2, j
    status, _, j = ask(TEXT, dict(one, prompt=text, echo=True, logprobs=0))
    assert status == 200 and j["choices"][0]["text"] == text + answer, j
    refused(TEXT, "max_tokens", n, 16, prompt=text, max_tokens=16)
    # regression: "the prompt and the tokens asked for are 1024", of a maximum of 1024
    for prompt, n in (" ".join(SAID), len(tokens(prompt=" ".join(SAID)))), ([7] * ALL, ALL):
        status, _, j = ask(TEXT, {"prompt": prompt})
        assert status == 400 and j["error"]["code"] == "context_length_exceeded" and j["error"]["param"] == "prompt", j
        assert f"length is {ALL} tokens; the prompt has {n}, and its answer needs one" in j["error"]["message"], j
    status, _, j = ask(TEXT, {"prompt": [7] * (ALL + 1), "max_tokens": 0, "echo": True})
    assert status == 400 and f"length is {ALL} tokens; the prompt has {ALL + 1}. " in j["error"]["message"], j

    # conversations
    text, ids = of_length(ALL - 20, messages=[])
    n = len(ids)
    said = {"messages": [{"role": "user", "content": text}]}
    refused(CHAT, "max_tokens", n, 100, max_tokens=100, **said)
    refused(CHAT, "max_completion_tokens", n, 100, max_completion_tokens=100, **said)
    refused(MESSAGES, "max_tokens", n, 100, max_tokens=100, **said)
    refused(RESPONSES, "max_output_tokens", n, 100, max_output_tokens=100, input=text)
    status, _, j = ask(CHAT, dict(one, **said))
    assert status == 200 and j["usage"]["total_tokens"] == ALL, j
    status, _, j = ask(CHAT, dict(one, max_tokens=ALL - n, **said))
    assert status == 200 and j["usage"]["total_tokens"] == ALL, j
    status, _, j = ask(RESPONSES, {"input": text, "temperature": 0})
    assert status == 200, j
    # a truncated prompt leaves room for max_tokens
    status, _, j = ask(CHAT, dict(one, max_tokens=100, truncate_prompt_tokens=-1, **said))
    assert status == 200 and j["usage"]["total_tokens"] == ALL and j["usage"]["completion_tokens"] == 100, j
    print("prompts next to the model's length are served or refused with numbers")


main()
