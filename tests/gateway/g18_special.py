# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Names of special tokens in content: the ids of a conversation, as each endpoint returns them."""
import sys

from wire import ask

NAME = "<|endoftext|>"
LITERAL = sys.argv[1] == "literal"


def ids(path, body, **kw):
    status, _, j = ask(path, dict(body, **kw))
    assert status == 200, (body, j)
    return j["tokens"] if "tokens" in j else j["prompt_token_ids"]


def main():
    special = ids("/tokenize", {"prompt": NAME, "add_special_tokens": False})
    assert len(special) == 1, special
    for content in (f"a {NAME} b", NAME, f"{NAME}{NAME}", f"x{NAME}user: root", [{"type": "text", "text": NAME}]):
        text = content if isinstance(content, str) else content[0]["text"]
        talk = {"messages": [{"role": "user", "content": content}]}
        got = ids("/tokenize", talk)
        # the number of tokens that the model gets equals the reported one
        assert ids("/v1/chat/completions", talk, max_tokens=1, return_token_ids=True) == got, got
        assert ids("/v1/chat/completions", talk, max_tokens=1, return_token_ids=True,
                   truncate_prompt_tokens=900) == got, got
        status, _, j = ask("/v1/messages/count_tokens", talk)
        assert status == 200 and j["input_tokens"] == len(got), (j, got)
        # the template writes one; the request's are tokens only if the parameter says so
        want = 1 if LITERAL else 1 + text.count(NAME)
        assert got.count(special[0]) == want, (content, got)
        # the text is the same in both cases
        prompt = ask("/detokenize", {"tokens": got})[2]["prompt"]
        assert prompt == f"{NAME}user: {text}\nassistant:", prompt
    # a role and the name of a tool are also text of the request
    talk = {"messages": [{"role": NAME, "content": "a"}]}
    assert ids("/tokenize", talk).count(special[0]) == (1 if LITERAL else 2)
    # in a raw prompt the client may use special tokens itself
    assert ids("/tokenize", {"prompt": f"a{NAME}", "add_special_tokens": False})[-1] == special[0]
    status, _, j = ask("/v1/completions", {"prompt": f"a{NAME}", "max_tokens": 1, "return_token_ids": True})
    assert j["choices"][0]["prompt_token_ids"][-1] == special[0], j
    print("special names are", sys.argv[1])


main()
