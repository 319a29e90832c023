# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Odd requests: their answers, and the field that a refusal names.

Without an argument the model answers with the variables that its template gets; with "ids" the
model has a vocabulary."""
import json
import sys

from wire import ask

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
USER = [{"role": "user", "content": "Hi"}]
BASE = {CHAT: {"messages": USER}, TEXT: {"prompt": "ab"}, RESPONSES: {"input": "Hi"},
        MESSAGES: {"messages": USER, "max_tokens": 9}}
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def tool(**function):
    return [{"type": "function", "function": function}]


def call(**function):
    return USER + [{"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function",
                                                                          "function": function}]}]


def with_block(**p):
    return [{"role": "user", "content": [{"type": "text", "text": "a"}, p]}]


def used(block):
    return USER + [{"role": "assistant", "content": [block]}, {"role": "user", "content": "x"}]


# path, field, value; the parameter that the error names, and other text in it
REFUSED = [
    # numbers and other types
    (CHAT, "temperature", "0.5", "temperature", "a string"),
    (CHAT, "temperature", True, "temperature", "true"),
    (CHAT, "top_p", 0, "top_p", "above 0"),
    (TEXT, "top_p", 0.0, "top_p", "above 0"),
    (CHAT, "max_tokens", 10 ** 30, "max_tokens", "from 0 to"),
    (CHAT, "max_tokens", 0, "max_tokens", "at least 1"),
    (TEXT, "max_tokens", 0, "max_tokens", "echo"),
    (CHAT, "max_tokens", "4", "max_tokens", "a string"),
    (CHAT, "n", 1.5, "n", "whole"),
    (CHAT, "n", 0, "n", "from 1"),
    (CHAT, "seed", 2 ** 64, "seed", "64 bits"),
    (TEXT, "logprobs", True, "logprobs", "true"),
    (CHAT, "logprobs", 5, "logprobs", "true or false"),
    (CHAT, "top_logprobs", 3, "top_logprobs", "logprobs"),
    # names
    (CHAT, "model", 5, "model", "a number"),
    (CHAT, "model", "gpt-4", "model", '"gpt-4"'),
    (RESPONSES, "model", ["a"], "model", "an array"),
    ("/tokenize", "model", 5, "model", "a number"),
    (CHAT, "user", 5, "user", "a number"),
    # streams
    (CHAT, "stream", "true", "stream", "a string"),
    (CHAT, "stream_options", {"include_usage": True}, "stream_options", "stream: true"),
    # stop strings
    (CHAT, "stop", [""], "stop", "0 bytes"),
    (CHAT, "stop", [["a"]], "stop", "strings"),
    (CHAT, "stop", ["a%d" % i for i in range(17)], "stop", "16"),
    (MESSAGES, "stop_sequences", "x", "stop_sequences", "an array"),
    (MESSAGES, "stop_sequences", [5], "stop_sequences", "string"),
    # ids and their biases
    (CHAT, "logit_bias", {"5 ": 1}, "logit_bias", "token ids"),
    (CHAT, "logit_bias", {"5\0 6": 1}, "logit_bias", "token ids"),
    (TEXT, "logit_bias", {"": 1}, "logit_bias", "token ids"),
    # tools
    (CHAT, "tools", {}, "tools", "an object"),
    (CHAT, "tools", [None], "tools", "null"),
    (CHAT, "tools", [{"type": "function"}], "tools", "no name"),
    (CHAT, "tools", tool(name=5), "tools", "no name"),
    (CHAT, "tools", tool(name=""), "tools", "no name"),
    (CHAT, "tools", tool(name="f", parameters="x"), "tools", "a string"),
    (CHAT, "tools", tool(name="f", parameters=[]), "tools", "an array"),
    (CHAT, "tools", tool(name="f", parameters=True), "tools", "true"),
    (CHAT, "tools", [{"type": "custom", "custom": {"name": "f"}}], "tools", "custom"),
    (RESPONSES, "tools", [{"type": "function", "name": "f", "parameters": 5}], "tools", "a number"),
    (MESSAGES, "tools", [{"name": "f"}], "tools", "missing"),
    (MESSAGES, "tools", [{"name": "f", "input_schema": 5}], "tools", "a number"),
    (CHAT, "tool_choice", "maybe", "tool_choice", "auto"),
    (CHAT, "parallel_tool_calls", "x", "parallel_tool_calls", "a string"),
    # conversations
    (CHAT, "messages", [None], "messages", "role"),
    (CHAT, "messages", [{"role": "user", "content": 7}], "messages", "a number"),
    (CHAT, "messages", with_block(type="image_url", image_url={"url": PICTURE}), "messages", '"image_url"'),
    (CHAT, "messages", with_block(type="input_audio", input_audio={}), "messages", '"input_audio"'),
    (CHAT, "messages", with_block(type="text", text=5), "messages", "this model takes only type text, with a string as its text"),
    (CHAT, "messages", USER + [{"role": "assistant", "tool_calls": "x"}], "messages", "a string"),
    (CHAT, "messages", USER + [{"role": "assistant", "tool_calls": [5]}], "messages", "no name"),
    (CHAT, "messages", call(arguments="{}"), "messages", "no name"),
    (RESPONSES, "input", [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}], "input",
     '"input_image"'),
    (RESPONSES, "input", [{"type": "function_call_output", "call_id": "c", "output": {"a": 1}}], "input", "an object"),
    (RESPONSES, "input", [{"type": "item_reference", "id": "x"}], "input", '"item_reference"'),
    (RESPONSES, "reasoning", "high", "reasoning", "a string"),
    (RESPONSES, "text", 5, "text", "a number"),
    (RESPONSES, "include", "x", "include", "a string"),
    (MESSAGES, "messages", with_block(type="image", source={}), "messages", '"image"'),
    (MESSAGES, "messages", [{"role": "user", "content": None}], "messages", "null"),
    (MESSAGES, "messages", used({"type": "tool_use", "id": "a", "input": {}}), "messages", "a name"),
    (MESSAGES, "messages", used({"type": "tool_use", "id": "a", "name": "f", "input": "x"}), "messages", "an object"),
    (MESSAGES, "system", [{"type": "text", "text": 5}], "system", "a string"),
    (MESSAGES, "system", 5, "system", "a number"),
    # formats and modes
    (CHAT, "modalities", "audio", "modalities", "text"),
    (CHAT, "response_format", "json", "response_format", "text"),
    (CHAT, "reasoning_effort", "HIGH", "reasoning_effort", "high"),
    # prompts
    (TEXT, "prompt", [[]], "prompt", "without token ids"),
    (TEXT, "prompt", [], "prompt", "empty"),
    (TEXT, "prompt", ["a", 5], "prompt", "a number"),
    (TEXT, "prompt", [1.5], "prompt", "1.5"),
    (TEXT, "prompt", {}, "prompt", "an object"),
    (TEXT, "seed", 2 ** 63, "seed", "64 bits"),
    (TEXT, "seed", 9999999999999999999, "seed", "64 bits"),
]

# bodies that are refused as a whole: the error's code
BODIES = [
    (b"", "invalid_json"), (b"5", "invalid_json"), (b'{"messages":[{"role":"user","content":"\\ud800"}]}', "invalid_json"),
    (b'{"messages":[{"role":"user","content":"\xff"}]}', "invalid_json"), (b'{"a":NaN}', "invalid_json"),
    (b'{"messages":[{"role":"user","content":"a"}],}', "invalid_json"),
    (b'{"messages":[{"role":"user","content":"a"}]} {}', "invalid_json"),
    (b'{"metadata":' + b"[" * 70 + b"]" * 70 + b"}", "invalid_json"),
]


def param_of(path, j):
    """The field param of an error; Anthropic's errors have none and name it only in their text."""
    e = j["error"]
    if path == MESSAGES:
        assert list(j) == ["type", "error", "request_id"] and "param" not in e, j
        return None
    return e["param"]


def refused():
    for path, field, value, param, says in REFUSED:
        body = dict(BASE.get(path, {"prompt": "ab"}), **{field: value})
        status, _, j = ask(path, body)
        assert status in (400, 404) and says in j["error"]["message"], (path, field, value, status, j)
        assert param_of(path, j) in (None if path == MESSAGES else param,), (path, field, value, j)
        assert path != MESSAGES or param in j["error"]["message"], (field, value, j)
    for option in ("include_usage", "continuous_usage_stats"):
        status, _, j = ask(CHAT, dict(BASE[CHAT], stream=True, stream_options={option: 1}))
        assert status == 400 and option in j["error"]["message"] and j["error"]["param"] == "stream_options", j
    for body, code in BODIES:
        status, _, j = ask(CHAT, body)
        assert status == 400 and j["error"]["code"] == code, (body[:60], j)
    print(len(REFUSED) + len(BODIES) + 2, "refused")


def seen(path=CHAT, **body):
    """The variables that the model's template gets, and the response headers."""
    status, h, j = ask(path, dict(BASE[path], **body))
    assert status == 200, (path, body, j)
    text = {CHAT: lambda: j["choices"][0]["message"]["content"], MESSAGES: lambda: j["content"][0]["text"],
            RESPONSES: lambda: j["output"][0]["content"][0]["text"]}[path]()
    return json.loads(text), h


def answered():
    # an earlier answer as input
    refusal = {"type": "refusal", "refusal": "No."}
    s, _ = seen(messages=USER + [{"role": "assistant", "content": [{"type": "text", "text": "a"}, refusal]}] + USER)
    assert s["messages"][1]["content"] == "a\nNo.", s
    s, _ = seen(RESPONSES, input=USER + [{"role": "assistant", "content": [refusal]}] + USER)
    assert s["messages"][1]["content"] == "No.", s
    # null counts as absent, an empty array as nothing, and a schema may have
    # numbers of any size
    s, _ = seen(tools=[], tool_choice="auto", parallel_tool_calls=None, stop=[], logit_bias={}, user=None)
    assert s["tools"] is None, s
    s, _ = seen(tools=tool(name="f", description=None, parameters=None))
    assert s["tools"][0]["function"]["name"] == "f", s
    s, _ = seen(tools=tool(name="f", parameters={"$ref": "#", "maximum": 10 ** 30}))
    assert s["tools"][0]["function"]["parameters"]["maximum"] == 10 ** 30, s
    s, _ = seen(messages=call(name="f", arguments="{bad") + [{"role": "tool", "tool_call_id": "c", "content": "r"}])
    assert s["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{bad", s
    s, _ = seen(messages=USER + [{"role": "assistant", "content": "a", "tool_calls": None}] + USER)
    assert s["messages"][1]["tool_calls"] is None, s
    s, h = seen(foo=1, bar=[{}], metadata={"a": 5})
    assert h["x-fdd-ignored"] == "foo, bar", h
    s, _ = seen(messages=[{"role": "wizard", "content": [{"text": "a"}, "b"]}])
    assert s["messages"] == [{"role": "wizard", "content": "a\nb"}], s
    print("odd ones that are no errors are answered")


def begun():
    """Anthropic's prefill: if the last message is the assistant's, it begins the answer."""
    body = dict(BASE[MESSAGES], temperature=0, max_tokens=12)
    count = lambda messages: ask(MESSAGES + "/count_tokens", {"messages": messages})[2]["input_tokens"]
    text = lambda **kw: ask(MESSAGES, dict(body, **kw))[2]["content"][0]["text"]
    talk = USER + [{"role": "assistant", "content": "In the beginning"}]
    as_chat = ask(CHAT, {"messages": talk, "temperature": 0, "max_tokens": 12, "continue_final_message": True})[2]
    assert text(messages=talk) == as_chat["choices"][0]["message"]["content"], as_chat
    blocks = USER + [{"role": "assistant", "content": [{"type": "text", "text": "In the beginning"}]}]
    assert text(messages=blocks) == text(messages=talk)
    assert count(talk) == as_chat["usage"]["prompt_tokens"] == count(blocks), (count(talk), as_chat)
    # what says nothing, or calls a tool, begins no answer
    assert count(USER + [{"role": "assistant", "content": ""}]) >= count(USER)
    called = [{"type": "text", "text": "I look"}, {"type": "tool_use", "id": "a", "name": "f", "input": {}}]
    assert ask(MESSAGES, dict(body, messages=USER + [{"role": "assistant", "content": called}]))[0] == 200
    # a shorter conversation is suggested only if that helps
    long = lambda **kw: ask(MESSAGES, dict(body, **kw))[2]["error"]["message"]
    said = long(messages=USER, max_tokens=99999)
    assert "max_tokens is 99999" in said and "prompt is too long" not in said, said
    assert "prompt is too long" in long(messages=[{"role": "user", "content": "long " * 3000}])
    print("a last message of the model goes on")


def ids():
    status, _, j = ask(TEXT, {"prompt": "ab", "max_tokens": 2, "logit_bias": {"99999999": 1}})
    assert status == 400 and j["error"]["param"] == "logit_bias", j
    status, _, j = ask("/detokenize", {"tokens": [5, 99999999]})
    assert status == 400 and j["error"]["param"] == "tokens" and "99999999" in j["error"]["message"], j
    status, _, j = ask(TEXT, {"prompt": [5, 99999999], "max_tokens": 2})
    assert status == 400 and j["error"]["param"] == "prompt" and "99999999" in j["error"]["message"], j
    text = "\U0001f469\u200d\U0001f467 \ufdfd \u2028 e\u0301"
    for body in ({"prompt": text}, {"messages": [{"role": "user", "content": text}]}):
        status, _, j = ask("/tokenize", body)
        assert status == 200, j
        status, _, j = ask("/detokenize", {"tokens": j["tokens"]})
        assert status == 200 and text in j["prompt"], j
    begun()


if sys.argv[1:] == ["ids"]:
    ids()
else:
    refused()
    answered()
