# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Responses API, without state: input in, items and events out, refused requests."""
import json

from wire import ask, failing_events, named_events, say

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "find", "description": "d", "strict": True,
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
SAID = ("<think>Which one?</think>Let me \"look\".\n<tool_call>\n{\"name\": \"find\", \"arguments\": "
        "{\"q\": \"a\\\"b\\u00e9\", \"n\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", "
        "\"arguments\": {}}\n</tool_call>")
TEXT = lambda t: {"type": "output_text", "text": t, "annotations": [], "logprobs": []}
ITEMS = [{"type": "reasoning", "summary": [], "status": "completed",
          "content": [{"type": "reasoning_text", "text": "Which one?"}]},
         {"type": "message", "role": "assistant", "status": "completed", "content": [TEXT("Let me \"look\".")]},
         {"type": "function_call", "status": "completed", "name": "find",
          "arguments": "{\"q\": \"a\\\"b\\u00e9\", \"n\": 3}"},
         {"type": "function_call", "status": "completed", "name": "stop", "arguments": "{}"}]


def seen(**body):
    status, h, j = ask(PATH, dict({"model": "mock", "input": "Hi"}, **body))
    assert status == 200 and "x-fdd-ignored" not in h, (h, j)
    return json.loads(j["output"][0]["content"][0]["text"])


def inputs():
    assert seen()["messages"] == [{"role": "user", "content": "Hi"}]
    s = seen(instructions="Be brief", input=[
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "1"},
                                                        {"type": "input_text", "text": "2"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{\"q\": [1]}"},
        {"type": "function_call", "call_id": "c2", "name": "stop", "arguments": "not json"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": None},
        {"role": "assistant", "content": "Done"},
        {"role": "assistant", "content": "Really"},
        {"role": "user", "content": "And?"}],
        tools=[TOOL], tool_choice="auto", parallel_tool_calls=True, reasoning={"effort": "none", "summary": "auto"},
        include=["reasoning.encrypted_content"], store=False, truncation="disabled", metadata={"a": "b"},
        text={"format": {"type": "text"}, "verbosity": "low"}, max_output_tokens=50, temperature=1, top_p=1)
    function = lambda i, n, a: {"type": "function", "id": i, "function": {"name": n, "arguments": a}}
    thought = lambda t: {"reasoning_content": t, "reasoning": t, "thinking": t}
    assert s["messages"] == [
        {"role": "system", "content": "Be brief\nBe kind"}, {"role": "user", "content": "1\n2"},
        dict({"role": "assistant", "content": "I look",
              "tool_calls": [function("c1", "find", {"q": [1]}), function("c2", "stop", "not json")]}, **thought("hm")),
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
        {"role": "tool", "content": "x", "tool_call_id": "c2"},
        dict({"role": "assistant", "content": "Done"}, **thought("so")), {"role": "assistant", "content": "Really"},
        {"role": "user", "content": "And?"}], s["messages"]
    assert s["tools"] == [{"type": "function", "function": {"name": "find", "description": "d",
                                                            "parameters": TOOL["parameters"]}}], s["tools"]
    assert s["thinks"] is False and s["effort"] == "none" and seen(reasoning={"effort": "low"})["thinks"] is True
    _, h, _ = ask(PATH, {"input": "a", "zzz": 1})
    assert h["x-fdd-ignored"] == "zzz", h


def join(evs):
    """The response that the events add up to; checks each event against the earlier ones."""
    assert [d["sequence_number"] for _, d in evs] == list(range(len(evs)))
    kinds = [k for k, _ in evs]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds
    assert all(k.startswith("response.") for k in kinds)
    items, text, is_open, has_content = [], None, False, False
    for k, d in evs[2:-1]:
        k = k[len("response."):]
        if k == "output_item.added":
            assert not is_open and d["output_index"] == len(items) and d["item"]["status"] == "in_progress", d
            assert not d["item"].get("content") and not d["item"].get("arguments"), d
            is_open, text = d["item"], ""
            continue
        assert is_open and d["output_index"] == len(items), (k, d)
        if k == "output_item.done":
            assert not has_content and d["item"]["id"] == is_open["id"] and d["item"]["type"] == is_open["type"], d
            said = d["item"]["arguments"] if is_open["type"] == "function_call" else d["item"]["content"][0]["text"]
            assert said == text, (said, text)
            items.append(d["item"])
            is_open = False
            continue
        assert d["item_id"] == is_open["id"], d
        name = {"message": "output_text", "reasoning": "reasoning_text",
                "function_call": "function_call_arguments"}[is_open["type"]]
        if k == "content_part.added":
            assert d["content_index"] == 0 and d["part"]["text"] == "" and not has_content, d
            has_content = True
        elif k == "content_part.done":
            assert d["part"]["text"] == text and has_content, d
            has_content = False
        elif k == name + ".delta":
            assert d["delta"] != "" and (has_content or name.startswith("function")), d
            text += d["delta"]
        else:
            assert k == name + ".done" and d["arguments" if name.startswith("function") else "text"] == text, (k, d)
    assert not is_open
    end = evs[-1][1]["response"]
    assert kinds[-1] == "response." + end["status"] and end["output"] == items, (kinds[-1], end)
    first = evs[0][1]["response"]
    assert first["status"] == "in_progress" and first["output"] == [] and first["usage"] is None, first
    same = ("id", "object", "created_at", "model", "tools", "instructions", "metadata")
    assert all(first[f] == end[f] for f in same), (first, end)
    return end


def bare(r):
    return [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in r["output"]]


def answers():
    body = {"model": "mock", "input": "Hi", "tools": [TOOL, {"type": "function", "name": "stop"}],
            "metadata": {"k": "v w"}, "instructions": "a\nb"}
    for each, most in ((1, 0), (3, 0), (0, 9), (0, 40), (1000, 0)):
        b = dict(body, chat_template_kwargs=say(SAID, each, most))
        status, _, whole = ask(PATH, b)
        assert status == 200 and whole["object"] == "response" and whole["status"] == "completed", whole
        assert bare(whole) == ITEMS and whole["id"].startswith("resp_") and whole["error"] is None, whole
        assert whole["metadata"] == {"k": "v w"} and whole["tools"][0]["strict"] is True and whole["store"] is False
        assert whole["instructions"] == "a\nb" and whole["previous_response_id"] is None
        u = whole["usage"]
        assert u["total_tokens"] == u["input_tokens"] + u["output_tokens"] and u["output_tokens"] > 0, u
        got = join(named_events(PATH, b))
        assert bare(got) == ITEMS and (most or got["usage"] == u), got
        assert len({i["id"] for i in got["output"]}) == 4
        calls = [i["call_id"] for i in got["output"] if i["type"] == "function_call"]
        assert len(set(calls)) == 2, calls
    for n in range(len(SAID)):
        b = dict(body, chat_template_kwargs=say(SAID[:n], 7))
        whole, got = ask(PATH, b)[2], join(named_events(PATH, b))
        assert bare(whole) == bare(got), (n, whole, got)
    inside = SAID.index("b\\u00e9")
    assert bare(ask(PATH, dict(body, chat_template_kwargs=say(SAID[:inside], 7)))[2])[-1]["status"] == "incomplete"
    # ended by length: the mock's own tokens end that way
    b = dict(body, max_output_tokens=3, chat_template_kwargs=say("", how="tokens"))
    whole, got = ask(PATH, b)[2], join(named_events(PATH, b))
    assert whole["status"] == got["status"] == "incomplete", whole
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"} and whole["max_output_tokens"] == 3
    evs = failing_events(PATH, dict(body, chat_template_kwargs=say("a b", how="fai")))
    assert evs[-1][0] == "response.failed" and evs[-1][1]["response"]["error"]["code"] == "server_error", evs[-1]
    assert [d["sequence_number"] for _, d in evs] == list(range(len(evs)))


def errors():
    def bad(param, **kw):
        status, _, j = ask(PATH, dict({"input": "a"}, **kw))
        assert status == 400 and j["error"]["param"] == param and param in j["error"]["message"], (kw, j)

    bad("previous_response_id", previous_response_id="resp_1")
    bad("conversation", conversation="c")
    bad("store", store=True)
    bad("background", background=True)
    bad("prompt", prompt={"id": "p"})
    bad("top_logprobs", top_logprobs=2)
    bad("truncation", truncation="auto")
    bad("include", include=["file_search_call.results"])
    bad("tools", tools=[{"type": "web_search"}])
    bad("tools", tools=[{"type": "function"}])
    bad("tools", tools={})
    bad("tool_choice", tools=[TOOL], tool_choice="required")
    bad("tool_choice", tools=[TOOL], tool_choice={"type": "function", "name": "find"})
    bad("parallel_tool_calls", tools=[TOOL], parallel_tool_calls=False)
    bad("text.format", text={"format": {"type": "json_schema", "name": "n", "schema": {}}})
    bad("reasoning.effort", reasoning={"effort": "some"})
    bad("max_output_tokens", max_output_tokens=0)
    bad("temperature", temperature="hot")
    bad("instructions", instructions=[1])
    bad("input", input=None)
    bad("input", input=[])
    bad("input", input=[{"type": "item_reference", "id": "x"}])
    bad("input", input=[{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])
    bad("input", input=[{"role": "tool", "content": "x"}])
    bad("input", input=[{"type": "function_call", "name": "x"}])
    bad("input", input=[{"type": "function_call_output", "output": "x"}])
    bad("input", input=[7])
    status, _, j = ask(PATH, {"input": "a", "model": "gpt"})
    assert status == 404 and j["error"]["code"] == "model_not_found", j
    assert ask(PATH + "/resp_1")[0] == 404


inputs()
answers()
errors()
print("responses")
