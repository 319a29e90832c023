# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, driven by its DevTools protocol over two pipes. Input comes from the keyboard
only; checks read the document."""
import base64
import fcntl
import json
import os
import select
import subprocess
import time

SLOW = float(os.environ.get("FDD_SLOW_FACTOR", "1"))
KEYS = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, "Backspace": 8}
WATCH = """
window.reports = [];
document.addEventListener('securitypolicyviolation',
    e => window.reports.push(e.effectiveDirective + ' ' + e.blockedURI));
"""


class Browser:
    def __init__(self, program, folder):
        down_r, self.down = os.pipe()
        self.up, up_w = os.pipe()
        a, b = fcntl.fcntl(down_r, fcntl.F_DUPFD, 20), fcntl.fcntl(up_w, fcntl.F_DUPFD, 20)

        def ends():
            os.dup2(a, 3)
            os.dup2(b, 4)

        args = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run",
                "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--no-default-browser-check", "--no-proxy-server", "--disable-dev-shm-usage", "--window-size=1280,900"]
        if os.geteuid() == 0:
            args.append("--no-sandbox")
        self.log = open(os.path.join(folder, "log"), "w", encoding="utf-8")
        self.proc = subprocess.Popen(args + ["about:blank"], close_fds=False, preexec_fn=ends,
                                     stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                     env=dict(os.environ, HOME=folder))
        for fd in (down_r, up_w, a, b):
            os.close(fd)
        self.buf, self.n, self.seen, self.session = b"", 0, [], None

    def read(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buf:
            if not select.select([self.up], [], [], max(0, end - time.monotonic()))[0]:
                return None
            data = os.read(self.up, 1 << 20)
            if not data:
                raise AssertionError("the browser has ended; its log: " + self.said())
            self.buf += data
        raw, self.buf = self.buf.split(b"\0", 1)
        return json.loads(raw)

    def said(self):
        with open(self.log.name, encoding="utf-8") as f:
            return f.read()[-2000:]

    def call(self, method, session=True, **params):
        self.n += 1
        m = {"id": self.n, "method": method, "params": params}
        if session and self.session:
            m["sessionId"] = self.session
        os.write(self.down, json.dumps(m).encode() + b"\0")
        end = time.monotonic() + 30 * SLOW
        while time.monotonic() < end:
            got = self.read(end - time.monotonic())
            if got is None:
                break
            if got.get("id") == self.n:
                assert "error" not in got, (method, got["error"])
                return got.get("result", {})
            self.seen.append(got)
        raise AssertionError(f"no answer to {method}: {self.said()}")

    def page(self, url):
        """Opens url in a new tab; window.reports, faults() and requests() then refer to it."""
        self.seen = []
        target = self.call("Target.createTarget", session=False, url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", session=False, targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Page.bringToFront")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        self.call("Page.navigate", url=url)
        self.until("the page is there", "document.readyState === 'complete' && !!document.getElementById('input')")

    def js(self, text):
        r = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in r, (text, r["exceptionDetails"])
        return r["result"].get("value")

    def until(self, what, text, seconds=20):
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end:
            v = self.js(text)
            if v:
                return v
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what}; the page: {self.js('document.body.innerText')[:1500]}")

    def key(self, key, shift=False, ctrl=False):
        p = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper())),
             "modifiers": (8 if shift else 0) + (2 if ctrl else 0)}
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
        if text and not ctrl:
            p["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **p)
        p.pop("text", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **p)

    def type(self, text):
        for c in text:
            if c == "\n":
                self.key("Enter", shift=True)
            else:
                self.key(c)

    def tab_to(self, selector, back=False, most=60):
        """Moves the focus to selector by the Tab key only, as a user without a mouse does."""
        want = f"document.activeElement.matches({json.dumps(selector)})"
        for _ in range(most):
            if self.js(want):
                return
            self.key("Tab", shift=back)
        raise AssertionError(f"Tab does not reach {selector}; it is at " + self.js("document.activeElement.outerHTML")[:300])

    def shot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def events(self, method):
        self.js("0")  # what came before has been read
        return [m["params"] for m in self.seen if m.get("method") == method and m.get("sessionId") == self.session]

    def faults(self):
        """Exceptions, and errors in the browser's log."""
        bad = [e["exceptionDetails"].get("exception", {}).get("description", e["exceptionDetails"]["text"])
               for e in self.events("Runtime.exceptionThrown")]
        return bad + [e["entry"]["text"] for e in self.events("Log.entryAdded") if e["entry"]["level"] == "error"]

    def requests(self):
        return [(e["request"]["url"], e["request"].get("postData", "")) for e in self.events("Network.requestWillBeSent")]

    def end(self):
        try:
            self.call("Browser.close", session=False)
        except (AssertionError, OSError):
            pass
        try:
            self.proc.wait(10)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        self.log.close()
