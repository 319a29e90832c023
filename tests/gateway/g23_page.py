# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""The web page in a browser: used by keyboard only, without a report of its content policy."""
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.request

from cdp import Browser
from wire import PORT, metric, wait_for

DIR, SHOTS = os.environ["FDD_DIR"], os.environ.get("FDD_SHOTS")
URL = f"http://127.0.0.1:{PORT}/"
SAID = "document.getElementById('said').textContent"
LAST = "[...document.querySelectorAll('article')].at(-1)"
TEXT = LAST + ".querySelector('.text:not(.think *)').textContent"
OPEN = "document.querySelector('dialog[open]')"


def cancels():
    out = subprocess.run(os.environ["FDD_CTL"].split() + ["stat", "-1", "--json"], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["gate"]["cancels"]


def shots(b, name):
    if not SHOTS:
        return
    os.makedirs(SHOTS, exist_ok=True)
    for scheme in ("light", "dark"):
        b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        b.shot(os.path.join(SHOTS, f"{name}-{scheme}.png"))
    b.call("Emulation.setEmulatedMedia", features=[])


def send(b, text):
    b.tab_to("#input", back=True)
    b.type(text)
    b.key("Enter")


def answered(b):
    b.until("an answer", f"{SAID}.startsWith('Answered')", 60)
    return b.js(TEXT)


def no_reports(b, url=URL):
    assert b.js("window.reports") == [], b.js("window.reports")
    assert b.faults() == [], b.faults()
    foreign = [u for u, _ in b.requests() if not u.startswith((url, "data:", "about:"))]
    assert foreign == [], foreign


def names(b):
    """Every element that can have the focus has an accessible name."""
    for n in b.call("Accessibility.getFullAXTree")["nodes"]:
        props = {p["name"]: p["value"].get("value") for p in n.get("properties", [])}
        if props.get("focusable") and not n.get("ignored") and n["role"]["value"] not in ("RootWebArea", "generic"):
            assert n.get("name", {}).get("value"), f"no name: {n['role']['value']} {n.get('backendDOMNodeId')}"


def conversation(b):
    b.until("the model's name", "document.getElementById('model').textContent")
    assert b.js("document.activeElement.id") == "input"
    names(b)
    send(b, "In the beginning")
    first = answered(b)
    assert first.strip() and "tokens/s" in b.js(SAID), b.js(SAID)
    send(b, "And\nthen")
    second = answered(b)
    asked = [json.loads(p)["messages"] for u, p in b.requests() if u.endswith("v1/chat/completions")]
    assert [m["role"] for m in asked[-1]] == ["user", "assistant", "user"], asked[-1]
    assert asked[-1][1]["content"] == first and asked[-1][2]["content"] == "And\nthen", asked[-1]
    assert second.strip()


def settings(b):
    b.tab_to("#more > summary")
    b.key("Enter")
    b.tab_to("#max_tokens")
    b.key("a", ctrl=True)
    b.type("300")
    b.tab_to("#fields")
    b.type('{"ignore_eos": true}')
    names(b)


def stop(b):
    before = cancels()
    for n, how in ((1, "Escape"), (2, "button")):
        send(b, "And he said")
        b.until("text arrives", f"{LAST}.classList.contains('busy') && {TEXT}.length > 20")
        if how == "Escape":
            b.key("Escape")
        else:
            b.tab_to("#stop")
            b.key(" ")
        b.until("it is stopped", f"{SAID} === 'Stopped.'")
        wait_for("fdd has cancelled it", lambda: cancels() == before + n)
        assert len(b.js(TEXT)) > 20, "what had come is lost"
        assert b.js("document.activeElement.id") == "input"
    wait_for("nothing runs", lambda: metric("fdd_http_streams") == 0)
    b.tab_to("#fields")
    b.key("a", ctrl=True)
    b.type('{"min_tokens": 12}')
    b.tab_to("#max_tokens", back=True)
    b.key("a", ctrl=True)
    b.type("30")


def shading(b):
    b.tab_to("#shade", back=True)
    b.key(" ")
    send(b, "Blessed is the man")
    text = answered(b)
    spans = b.js(f"[...{LAST}.querySelectorAll('.t')].map(s => s.textContent)")
    assert len(spans) > 5 and "".join(spans) == text, (text, spans)
    kinds = b.js(f"new Set([...{LAST}.querySelectorAll('.t')].map(s => getComputedStyle(s).backgroundColor)).size")
    assert kinds > 1, "every token has the same shade"
    b.tab_to("article:last-of-type .text", back=True)
    b.key("ArrowRight")
    b.key("ArrowRight")
    odds = b.js(f"{LAST}.querySelector('.odds').textContent")
    assert odds.count("%") >= 4 and spans[1].replace(" ", "\u00b7") in odds, odds
    shots(b, "shade")


def as_curl(b):
    b.call("Browser.grantPermissions", session=False, permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    b.tab_to("article:last-of-type .foot button:nth-of-type(2)")
    assert b.js("document.activeElement.textContent") == "Copy as curl"
    b.key("Enter")
    b.until("it is copied", f"{SAID} === 'Copied.' || !!{OPEN}")
    if b.js(f"!!{OPEN}"):
        line = b.js("document.getElementById('copy-text').value")
        b.key("Escape")
    else:
        line = b.js("navigator.clipboard.readText()")
    out = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert out.stdout.rstrip().endswith("data: [DONE]") and '"content":' in out.stdout, (line, out)


def plots(b):
    b.until("figures", "document.querySelectorAll('#plots output').length === 6 && "
            "[...document.querySelectorAll('#plots output')].every(o => o.textContent !== '\u2013' || "
            "/first|latency/.test(o.previousSibling.textContent))")
    assert b.js("document.getElementById('why').textContent") == ""
    send(b, "In those days")
    b.until("a rate", "parseFloat(document.querySelector('#plots output').textContent) > 0")
    answered(b)
    b.until("lines", "[...document.querySelectorAll('#plots .one')].every(p => /L/.test(p.getAttribute('d')))", 30)


def forget(b):
    b.tab_to("#new")
    b.key("Enter")
    assert b.js("document.querySelectorAll('article').length") == 0
    assert b.js("document.activeElement.id") == "input"
    send(b, "x")
    answered(b)
    asked = [json.loads(p)["messages"] for u, p in b.requests() if u.endswith("v1/chat/completions")]
    assert len(asked[-1]) == 1, asked[-1]


def text_mode(b):
    b.tab_to("#new")
    b.key("Enter")
    b.tab_to("#mode")
    b.key("ArrowDown")
    send(b, "In the beginning")
    assert answered(b).strip()
    assert b.requests()[-1][0].endswith("v1/completions") or any(u.endswith("v1/completions") for u, _ in b.requests())
    b.tab_to("#mode")
    b.key("c")


def refused(b):
    """An error is shown, and the user's input is kept."""
    b.tab_to("#temperature")
    b.type("-1")
    send(b, "y")
    b.until("an error", f"/temperature/.test({SAID})")
    assert b.js("document.getElementById('input').value") == "y"
    b.tab_to("#temperature")
    b.key("a", ctrl=True)
    b.key("Backspace")


def policy_holds(b):
    """The policy is in force: forbidden actions do not run, and are reported."""
    b.js("const s = document.createElement('b'); s.style.setProperty('color', 'red'); 0")
    assert b.js("window.reports") == []
    r = b.call("Runtime.evaluate", expression="document.body.innerHTML = '<i>x</i>'", returnByValue=True)
    assert "TrustedHTML" in json.dumps(r), r
    b.js("document.body.append(Object.assign(document.createElement('img'), {src: 'x.png'})); 0")
    b.until("a report", "window.reports.some(r => r.startsWith('img-src'))")


class Canned(http.server.BaseHTTPRequestHandler):
    """Serves the page with its headers, and answers that the demo model does not give."""
    asked = []
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        with urllib.request.urlopen(URL + self.path.lstrip("/")) as r:
            raw, headers = r.read(), r.headers
        self.send_response(200)
        for k in ("Content-Type", "Content-Security-Policy"):
            if headers[k]:
                self.send_header(k, headers[k])
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_POST(self):
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if len(self.asked) == 1:
            deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "Which <b>city</b>?"},
                      {"reasoning_content": " Paris."}, {"content": "I look. <script>alert(1)</script>"},
                      {"tool_calls": [{"index": 0, "id": "c1", "type": "function",
                                       "function": {"name": "weather", "arguments": ""}}]},
                      {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Pa'}}]},
                      {"tool_calls": [{"index": 0, "function": {"arguments": 'ris"}'}}]}]
        else:
            deltas = [{"role": "assistant", "content": ""}, {"content": "It rains."}]
        end = "tool_calls" if len(self.asked) == 1 else "stop"
        events = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}],
                   "usage": {"completion_tokens": i, "prompt_tokens": 1}} for i, d in enumerate(deltas)]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": end}]})
        raw = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        # cut anywhere, as a network does
        for i in range(0, len(raw), 37):
            self.wfile.write(raw[i:i + 37].encode())
            self.wfile.flush()
        self.close_connection = True


def canned(b):
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Canned)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{s.server_address[1]}/"
    b.page(url)
    b.until("the model's name", "document.getElementById('model').textContent")
    send(b, "Is it raining in Paris?")
    b.until("the answer", f"{SAID}.startsWith('Answered')")
    assert b.js(TEXT) == "I look. <script>alert(1)</script>", b.js(TEXT)
    assert b.js(f"{LAST}.querySelector('details.think').open") is False
    assert b.js(f"{LAST}.querySelector('.think .text').textContent") == "Which <b>city</b>? Paris."
    assert b.js(f"{LAST}.querySelector('.call b').textContent") == "weather"
    assert json.loads(b.js(f"{LAST}.querySelector('.call pre').textContent")) == {"city": "Paris"}
    b.tab_to(".think summary", back=True)
    b.key("Enter")
    assert b.js(f"{LAST}.querySelector('details.think').open") is True
    shots(b, "tools")
    b.tab_to(".call textarea")
    b.type("rain, 12 degrees")
    b.key("Tab")
    b.key("Enter")
    b.until("the second answer", f"{TEXT} === 'It rains.'")
    m = Canned.asked[-1]["messages"]
    assert [x["role"] for x in m] == ["user", "assistant", "tool"], m
    assert m[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Paris"}'}, m
    assert m[2] == {"role": "tool", "tool_call_id": "c1", "content": "rain, 12 degrees"}, m
    no_reports(b, url)
    s.shutdown()


def phone(b):
    if not SHOTS:
        return
    b.call("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=2, mobile=True)
    shots(b, "phone")
    b.call("Emulation.clearDeviceMetricsOverride")


def open_page(b):
    b.page(URL)
    shots(b, "empty")
    for step in (conversation, settings, stop, shading, as_curl, plots, forget, text_mode, phone):
        step(b)
        print(f"{step.__name__}: as it should", flush=True)
    no_reports(b)
    refused(b)  # the browser's log has the 400
    assert b.js("window.reports") == []
    policy_holds(b)
    canned(b)


def keys(b):
    b.page(URL)
    b.until("the key is asked for", f"!!{OPEN} && document.activeElement.id === 'ask-key'")
    shots(b, "key")
    names(b)
    b.type("wrong")
    b.key("Enter")
    b.until("it is refused", f"!!{OPEN} && /not known/.test({OPEN}.innerText)")
    b.key("a", ctrl=True)
    b.type("secret-key")
    b.key("Enter")
    b.until("the model's name", "document.getElementById('model').textContent")
    send(b, "In the beginning")
    assert answered(b).strip()
    b.until("figures", "document.querySelector('#plots output').textContent !== '\u2013'")
    assert b.js("window.reports") == []
    # a key in the fragment is taken, and does not stay in the address
    b.page(URL + "#key=secret-key")
    b.until("the model's name", "document.getElementById('model').textContent")
    assert b.js("location.href") == URL, b.js("location.href")
    no_reports(b)


def main():
    folder = os.path.join(DIR, "browser")
    os.makedirs(folder, exist_ok=True)
    b = Browser(os.environ["FDD_BROWSER"], folder)
    try:
        (keys if sys.argv[1:] == ["keys"] else open_page)(b)
    finally:
        b.end()


main()
