# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Refused requests get the right status, type, param, code and retry-after."""
import time

from wire import Reader, ask, connect, request, wait_for

KEY = [("Authorization", "Bearer k-one")]
TEXT = {"prompt": "In the", "max_tokens": 4}
CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}


def refused(status, code, param, path, body=None, retry=False, headers=KEY, **kw):
    s, h, j = ask(path, body, headers=headers, **kw)
    assert s == status, (path, body, s, j)
    e = j["error"]
    assert set(j) == {"error"} and set(e) == {"message", "type", "param", "code"}, j
    assert e["code"] == code and e["param"] == param and len(e["message"]) > 10, j
    assert h["content-type"] == "application/json"
    if retry:
        assert int(h["retry-after"]) >= 1 and int(h["retry-after-ms"]) > 0 and h["x-should-retry"] == "true", h
    else:
        assert "retry-after" not in h, h
    return h, j


def main():
    t, c = "/v1/completions", "/v1/chat/completions"
    assert ask(t, TEXT, headers=KEY)[0] == 200
    assert ask(t, TEXT, headers=[("x-api-key", "k-one")])[0] == 200
    assert ask("/health")[0] == 200 and ask("/ping")[0] == 200
    # keys are needed for everything except health
    for path, body in ((t, TEXT), (c, CHAT), ("/v1/models", None), ("/metrics", None), ("/version", None),
                       ("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": []})):
        for h in ([], [("Authorization", "Bearer k-on")], [("Authorization", "Bearer ")],
                  [("Authorization", "Basic k-one")], [("Authorization", "k-one")], [("x-api-key", "k")]):
            got, _ = refused(401, "invalid_api_key", None, path, body, headers=h)
            assert got["www-authenticate"] == "Bearer"
    # requested fields
    refused(400, "invalid_json", None, t, b'{"prompt": "a",}')
    refused(400, "invalid_json", None, t, b"\xff\xfe")
    refused(400, "invalid_json", None, c, [1])
    refused(400, None, "prompt", t, {})
    refused(400, None, "prompt", t, {"prompt": []})
    refused(400, None, "prompt", t, {"prompt": [1, -2]})
    refused(400, None, "prompt", t, {"prompt": ["a"] * 257})
    refused(400, "invalid_token", "prompt", t, {"prompt": [99999999]})
    # a limit that fits after no prompt is not the prompt's fault
    _, j = refused(400, "context_length_exceeded", "max_tokens", t, dict(TEXT, max_tokens=99999))
    assert "max_tokens is 99999" in j["error"]["message"], j
    refused(400, "context_length_exceeded", "max_completion_tokens", c,
            {"messages": CHAT["messages"], "max_completion_tokens": 2000})
    _, j = refused(400, "context_length_exceeded", "messages", c,
                   {"messages": [{"role": "user", "content": "word " * 3000}], "max_tokens": 4})
    assert "maximum context length is 1024 tokens" in j["error"]["message"], j
    for m in (None, [], "a", [1], [{}], [{"role": 1}], [{"role": "user", "content": 5}],
              [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]):
        refused(400, None, "messages", c, {"messages": m})
    refused(404, "model_not_found", "model", t, dict(TEXT, model="gpt-5"))
    refused(404, "model_not_found", None, "/v1/models/gpt-5")
    refused(404, "not_offered", None, "/v1/embeddings", {"input": "a"})
    refused(404, "unknown_path", None, "/api/generate", {"prompt": "a"})
    refused(404, "model_not_found", None, "/v1/models/../../version")
    got, _ = refused(405, "method", None, t)
    assert got["allow"] == "POST"
    refused(405, "method", None, "/v1/models", {"a": 1})
    with connect() as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k-one\r\n"
                  b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}")
        assert Reader(s).answer()[0] == 415
    # a key with a limit
    two = [("Authorization", "Bearer k-two")]
    long = dict(TEXT, max_tokens=900, ignore_eos=True, stream=True)
    with connect() as a, connect() as b:
        for s in (a, b):
            s.sendall(request(t, long, headers=two))
            assert Reader(s).head()[0] == 200
        refused(429, "rate_limit_exceeded", None, t, TEXT, headers=two, retry=True)
        assert ask(t, TEXT, headers=KEY)[0] == 200
    wait_for("the places are free again", lambda: ask(t, TEXT, headers=two)[0] == 200)
    refused(400, None, "priority", t, dict(TEXT, priority=-1), headers=two)
    assert ask(t, dict(TEXT, priority=-1), headers=KEY)[0] == 200
    # HEAD, HTTP/1.0 and headers that a client may leave out
    with connect() as s:
        s.sendall(request("/health", method="HEAD") + request("/health"))
        r = Reader(s)
        status, h = r.head()
        assert status == 200 and h["content-length"] == "16"
        assert r.answer()[0] == 200
    with connect() as s:
        s.sendall(request("/health", version="1.0"))
        r = Reader(s)
        assert r.answer()[0] == 200 and r.answer()[0] is None
    with connect() as s:
        s.sendall(request(t, dict(TEXT, stream=True), version="1.0", headers=KEY))
        r = Reader(s)
        status, h = r.head()
        assert status == 200 and "transfer-encoding" not in h and h["connection"] == "close"
        while r.more():
            pass
        assert r.buf.endswith(b"data: [DONE]\n\n")
    print("statuses")


main()
