# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""A conversation's prompt is, byte for byte, the text that Jinja renders from the template.

    g16_templates.py write       write goldens.json again; needs jinja2 3.1
    g16_templates.py TEMPLATE    ask the gateway, which uses this template, for each
                                 conversation of tests/chat/conversations.json"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHAT = os.path.join(HERE, "..", "chat")
TEMPLATES = os.path.join(HERE, "templates")
GOLDENS = os.path.join(TEMPLATES, "goldens.json")
FIELDS = ("messages", "tools", "documents", "reasoning_effort", "add_generation_prompt")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def read(path):
    with open(path, encoding="utf-8", newline="") as f:
        return f.read()


def talks():
    return json.loads(read(os.path.join(CHAT, "conversations.json")))


def message(m):
    """The message in the form in which servers of OpenAI's API pass it to a template."""
    m = json.loads(json.dumps(m))
    if isinstance(m.get("content"), list):
        m["content"] = "\n".join(x["text"] for x in m["content"])
    m.setdefault("content", None)
    for c in m.get("tool_calls") or []:
        try:
            a = json.loads(c["function"]["arguments"])
        except (TypeError, ValueError):
            continue
        if isinstance(a, dict):
            c["function"]["arguments"] = a
    said = next((m[k] for k in THOUGHTS if isinstance(m.get(k), str)), None)
    if said is not None:
        for k in THOUGHTS:
            m.setdefault(k, said)
    return m


def variables(talk):
    v = dict(talk, messages=[message(m) for m in talk["messages"]])
    if "reasoning_effort" in v:
        v.setdefault("enable_thinking", v["reasoning_effort"] != "none")
    return v


def by_jinja(name):
    sys.path.insert(0, CHAT)
    import reference

    text = read(os.path.join(TEMPLATES, name + ".jinja"))
    out = [reference.render(text, variables(t)) for t in talks()]
    return [None if x.startswith("ERROR") else x for x in out]


def main():
    names = sorted(n[:-6] for n in os.listdir(TEMPLATES) if n.endswith(".jinja"))
    if sys.argv[1] == "write":
        with open(GOLDENS, "w", encoding="utf-8") as f:
            f.write(json.dumps({n: by_jinja(n) for n in names}, indent=0, ensure_ascii=False) + "\n")
        return
    from wire import ask

    want = json.loads(read(GOLDENS))[sys.argv[1]]
    try:
        assert by_jinja(sys.argv[1]) == want, "goldens.json is not what this Jinja makes"
        live = ", and Jinja as it runs"
    except ImportError:
        live = ""
    n = 0
    for i, talk in enumerate(talks()):
        body = {k: v for k, v in talk.items() if k in FIELDS}
        body["chat_template_kwargs"] = {k: v for k, v in talk.items() if k not in FIELDS}
        status, _, j = ask("/tokenize", body)
        if want[i] is None or talk["messages"] == []:
            assert status == 400 and j["error"]["param"] == "messages", (i, j)
            continue
        assert status == 200, (i, j)
        got = ask("/detokenize", {"tokens": j["tokens"]})[2]["prompt"]
        assert got == want[i], f"conversation {i}:\n{got!r}\n{want[i]!r}"
        n += 1
    assert n > 3, n
    print(f"{sys.argv[1]}: {n} prompts of {len(want)} conversations, as the goldens{live}")


main()
