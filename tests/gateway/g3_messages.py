# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Anthropic's API: conversations in, blocks and events out, errors."""
import json

from wire import Reader, ask, connect, failing_events, named_events, request, say

PATH = "/v1/messages"
MSG = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "find", "description": "d", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
SAID = ("<think>Which one?</think>Let me \"look\".\n<tool_call>\n{\"name\": \"find\", \"arguments\": "
        "{\"q\": \"a\\\"b\\u00e9\", \"n\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", "
        "\"arguments\": {}}\n</tool_call>")
BLOCKS = [{"type": "thinking", "thinking": "Which one?", "signature": ""},
          {"type": "text", "text": "Let me \"look\"."},
          {"type": "tool_use", "name": "find", "input": {"q": "a\"b\u00e9", "n": 3}},
          {"type": "tool_use", "name": "stop", "input": {}}]


def seen(**body):
    """The variables that the model's template gets, and the response headers."""
    status, h, j = ask(PATH, dict({"model": "mock", "messages": MSG, "max_tokens": 9}, **body))
    assert status == 200, j
    return json.loads(j["content"][0]["text"]), h


def conversations():
    s, h = seen(system="Be brief")
    assert s["messages"] == [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}], s
    assert "x-fdd-ignored" not in h
    s, _ = seen(system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
                        {"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}},
                        {"type": "text", "text": "B"}],
                messages=[
                    {"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "redacted_thinking", "data": "x"},
                        {"type": "text", "text": "I look"},
                        {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": [1, {"a": "b c"}]}},
                        {"type": "tool_use", "id": "t2", "name": "stop", "input": {}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "found"},
                        {"type": "tool_result", "tool_use_id": "t2", "is_error": True,
                         "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                        {"type": "tool_result", "tool_use_id": "t3"},
                        {"type": "text", "text": "And?"}]}],
                tools=[TOOL, {"type": "custom", "name": "stop", "input_schema": {}}], tool_choice={"type": "auto"},
                thinking={"type": "enabled", "budget_tokens": 1024}, metadata={"user_id": "u"},
                output_config={"effort": "high"})
    function = lambda i, n, a: {"type": "function", "id": i, "function": {"name": n, "arguments": a}}
    assert s["messages"] == [
        {"role": "system", "content": "A\nB"}, {"role": "user", "content": "1\n2"},
        {"role": "assistant", "content": "I look", "reasoning_content": "hm", "reasoning": "hm", "thinking": "hm",
         "tool_calls": [function("t1", "find", {"q": [1, {"a": "b c"}]}), function("t2", "stop", {})]},
        {"role": "tool", "tool_call_id": "t1", "content": "found"},
        {"role": "tool", "tool_call_id": "t2", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
        {"role": "user", "content": "And?"}], s["messages"]
    assert s["tools"] == [{"type": "function", "function": {"name": "find", "description": "d",
                                                            "parameters": TOOL["input_schema"]}},
                          {"type": "function", "function": {"name": "stop", "parameters": {}}}], s["tools"]
    assert s["thinks"] is True and s["effort"] == "high", s
    assert seen(thinking={"type": "disabled"})[0]["thinks"] is False
    assert seen(thinking={"type": "adaptive"})[0]["thinks"] is True and seen()[0]["thinks"] is None
    assert seen(tools=[TOOL], tool_choice={"type": "none"})[0]["tools"] is None
    assert seen(context_management={"edits": []}, betas=["x"])[1]["x-fdd-ignored"] == "context_management, betas"
    status, _, j = ask(PATH + "/count_tokens", {"messages": MSG, "system": "Be brief"})
    _, _, more = ask(PATH + "/count_tokens", {"messages": MSG, "system": "Be very brief"})
    assert status == 200 and list(j) == ["input_tokens"] and more["input_tokens"] - j["input_tokens"] == 5, (j, more)


def join(evs):
    """The message that the events add up to."""
    kinds = [k for k, _ in evs if k != "ping"]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    m = evs[0][1]["message"]
    assert m["content"] == [] and m["stop_reason"] is None and m["usage"]["input_tokens"] > 0, m
    open_at, texts = None, []
    for k, d in evs[1:]:
        if k == "content_block_start":
            assert open_at is None and d["index"] == len(m["content"]), d
            open_at, b = d["index"], d["content_block"]
            assert b.get("text", "") == "" and b.get("thinking", "") == "" and b.get("input", {}) == {}, b
            m["content"].append(b)
            texts.append("")
        elif k == "content_block_delta":
            assert d["index"] == open_at, d
            kind = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
            assert d["delta"]["type"] == kind[m["content"][open_at]["type"]], d
            field = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
            piece = d["delta"][field[d["delta"]["type"]]]
            assert piece != "", d
            texts[open_at] += piece
        elif k == "content_block_stop":
            assert d["index"] == open_at, d
            open_at = None
        elif k == "message_delta":
            assert open_at is None
            m["stop_reason"], m["stop_sequence"], m["usage"] = (
                d["delta"]["stop_reason"], d["delta"]["stop_sequence"], d["usage"])
        else:
            assert k in ("ping", "message_stop"), k
    for b, t in zip(m["content"], texts):
        if b["type"] == "tool_use":
            b["input"] = json.loads(t or "{}")
        else:
            b["text" if b["type"] == "text" else "thinking"] = t
    return m


def bare(m):
    return [{k: v for k, v in b.items() if k != "id"} for b in m["content"]]


def answers():
    body = {"model": "mock", "messages": MSG, "max_tokens": 99, "tools": [TOOL, dict(TOOL, name="stop")]}
    for each, most in ((1, 0), (3, 0), (0, 9), (0, 40), (1000, 0)):
        b = dict(body, chat_template_kwargs=say(SAID, each, most))
        status, h, whole = ask(PATH, b)
        assert status == 200 and h["content-type"] == "application/json", whole
        assert whole["type"] == "message" and whole["role"] == "assistant" and whole["id"].startswith("msg_")
        assert bare(whole) == BLOCKS and whole["stop_reason"] == "tool_use", whole
        got = join(named_events(PATH, b))
        assert bare(got) == BLOCKS and got["stop_reason"] == "tool_use", got
        strip = lambda u: {k: v for k, v in u.items() if k != "output_tokens" or most == 0}
        assert strip(got["usage"]) == strip(whole["usage"]), (got, whole)
        ids = [x["id"] for x in whole["content"] if x["type"] == "tool_use"]
        assert len(set(ids)) == 2, ids
    # cut off within a call
    for n in range(1, len(SAID)):
        b = dict(body, chat_template_kwargs=say(SAID[:n], 7))
        whole = ask(PATH, b)[2]
        evs = named_events(PATH, b)
        assert [k for k, _ in evs].count("content_block_start") == [k for k, _ in evs].count("content_block_stop")
        cut = [d["delta"].get("partial_json", "") for k, d in evs if k == "content_block_delta"]
        assert len(whole["content"]) == len([1 for k, _ in evs if k == "content_block_start"]), (n, whole)
        assert all(isinstance(x["input"], dict) for x in whole["content"] if x["type"] == "tool_use"), (n, cut)
    # reasoning that was not requested
    b = dict(body, chat_template_kwargs=say("<think>a</think>b"), thinking={"type": "disabled"})
    assert bare(ask(PATH, b)[2]) == [{"type": "text", "text": "b"}]
    b = dict(body, chat_template_kwargs=say("<think>a</think>b"), thinking={"type": "adaptive", "display": "omitted"})
    assert bare(join(named_events(PATH, b))) == [{"type": "text", "text": "b"}]
    b = dict(body, chat_template_kwargs=say("just text"))
    assert ask(PATH, b)[2]["stop_reason"] == "end_turn" and bare(ask(PATH, b)[2]) == [{"type": "text", "text": "just text"}]
    assert join(named_events(PATH, dict(b, request_id="r7")))["id"] == "msg_r7"
    b = dict(body, chat_template_kwargs=say(""))
    assert ask(PATH, b)[2]["content"] == [] and join(named_events(PATH, b))["content"] == []


def refused(status, kind, word, body, path=PATH, **kw):
    s, h, j = ask(path, body, **kw)
    assert s == status, (body, s, j)
    assert j["type"] == "error" and j["error"]["type"] == kind and word in j["error"]["message"], j
    return h


def errors():
    ok = {"model": "mock", "messages": MSG, "max_tokens": 9}
    bad = lambda word, **kw: refused(400, "invalid_request_error", word, dict(ok, **kw))
    bad("max_tokens is missing", max_tokens=None)
    bad("max_tokens is -1", max_tokens=-1)
    bad("temperature", temperature=-1)
    bad("stop_sequences", stop_sequences=5)
    bad("tool_choice", tools=[TOOL], tool_choice={"type": "any"})
    bad("tool_choice", tools=[TOOL], tool_choice={"type": "tool", "name": "find"})
    bad("disable_parallel_tool_use", tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    bad("web_search_20250305", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    bad("have a name", tools=[{"input_schema": {}}])
    bad("tools is an object", tools={})
    bad("thinking.type", thinking={"type": "much"})
    bad("output_config.format", output_config={"format": {"type": "json_schema", "schema": {}}})
    bad("output_config.effort", output_config={"effort": "some"})
    bad("mcp_servers", mcp_servers=[{"url": "x"}])
    bad("container", container={"id": "x"})
    bad("messages must be", messages=[])
    bad("role is user or assistant", messages=[{"role": "tool", "content": "a"}])
    bad('type "image"', messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])
    bad('type "document"', messages=[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
                                                                  "content": [{"type": "document"}]}]}])
    bad("tool_use_id", messages=[{"role": "user", "content": [{"type": "tool_result"}]}])
    bad('type "tool_result"', messages=[{"role": "assistant", "content": [{"type": "tool_result"}]}])
    bad("system", system=5)
    refused(400, "invalid_request_error", "comes twice", b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1,'
            b'"max_tokens":2}')
    refused(400, "invalid_request_error", "not JSON", b"{")
    refused(400, "invalid_request_error", "must be an object", [1])
    refused(404, "not_found_error", "gpt", dict(ok, model="gpt"))
    refused(400, "invalid_request_error", "messages", {"messages": 5}, path=PATH + "/count_tokens")
    refused(405, "invalid_request_error", "takes only POST", None)
    with connect() as s:
        s.sendall(request(PATH, ok).replace(b"application/json", b"text/plain"))
        status, _, raw = Reader(s).answer()
        assert status == 415 and json.loads(raw)["type"] == "error", raw
    evs = failing_events(PATH, dict(ok, chat_template_kwargs=say("a b", how="fai")))
    assert evs[-1][0] == "error" and evs[-1][1]["error"]["type"] == "api_error", evs
    assert "content_block_delta" in [k for k, _ in evs] or len(evs) < 4, evs
    refused(500, "api_error", "NUMERIC", dict(ok, chat_template_kwargs=say("a b", how="fai")))


conversations()
answers()
errors()
print("messages")
