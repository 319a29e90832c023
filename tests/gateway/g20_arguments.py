# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments arrive as they are generated: when the model stops within a call, all of them have
arrived except the length of one token."""
import json
import sys

from wire import Reader, connect, events, request, say

PATH = "/v1/chat/completions"
VALUE = "The quick brown fox jumps over the lazy dog, twice."
SAID = {
    "hermes": '<tool_call>\n{"name": "find", "arguments": {"q": "%s"}}\n</tool_call>',
    "qwen3-coder": "<tool_call>\n<function=find>\n<parameter=q>\n%s\n</parameter>\n</function>\n</tool_call>",
    "glm-4.5": "<tool_call>find\n<arg_key>q</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
    "mistral": '[TOOL_CALLS]find[ARGS]{"q": "%s"}',
}[sys.argv[1]] % VALUE
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {
    "type": "object", "properties": {"q": {"type": "string"}}}}}]


def body(**kw):
    return {"messages": [{"role": "user", "content": "a"}], "tools": TOOLS, "chat_template_kwargs": say(**kw)}


def arguments(block):
    d = json.loads(block[len("data: "):])["choices"][0]["delta"]
    return "".join(c["function"]["arguments"] for c in d.get("tool_calls", []))


def main():
    whole = "".join(arguments("data: " + json.dumps(e)) for e in events(PATH, body(text=SAID, each=4)))
    assert json.loads(whole) == {"q": VALUE}, whole
    at = SAID.index(VALUE)
    for n in range(8, len(VALUE) + 1, 7):
        with connect(20) as s:
            s.sendall(request(PATH, dict(body(text=SAID[:at + n], each=4, how="hol"), stream=True)))
            r = Reader(s)
            assert r.head()[0] == 200
            got = ""
            # the model writes no more: the rest must arrive without further tokens
            for chunk in r.chunks():
                for block in chunk.decode().split("\n\n"):
                    got += arguments(block) if block.startswith("data: {") else ""
                if VALUE[:n - 4] in got:
                    break
            assert whole.startswith(got), (got, whole)
    print(f"{sys.argv[1]}: arguments arrive as they are written")


main()
