# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""fdctl chat in a pseudo-terminal. Arguments: a file to save to, the command."""
import json
import os
import pty
import re
import select
import sys
import termios
import time

SLOW = float(os.environ.get("FDD_SLOW_FACTOR", "1"))


class Screen:
    def __init__(self, argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(argv[0], argv)
        self.seen = ""

    def expect(self, pattern, seconds=20):
        end = time.monotonic() + seconds * SLOW
        while True:
            m = re.search(pattern, self.seen)
            if m:
                out, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return out
            left = end - time.monotonic()
            assert left > 0, f"no /{pattern}/ in {self.seen!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    d = os.read(self.fd, 65536)
                except OSError:
                    d = b""
                assert d, f"it ended; no /{pattern}/ in {self.seen!r}"
                self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", d.decode("utf-8", "replace")).replace("\r", "")

    def send(self, text, editing=True):
        """When the line editor reads, or does not: what comes in between, it drops."""
        end = time.monotonic() + 20 * SLOW
        while bool(termios.tcgetattr(self.fd)[3] & termios.ICANON) == editing:
            assert time.monotonic() < end, f"{'no' if editing else 'still an'} editor: {self.seen!r}"
            time.sleep(0.01)
        os.write(self.fd, text.encode())

    def end(self):
        end = time.monotonic() + 20 * SLOW
        try:
            while select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                os.read(self.fd, 65536)
            raise AssertionError("it does not end")
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main():
    s = Screen(sys.argv[2:] + ["--max-tokens", "8", "--seed", "1"])
    s.expect("> ")
    s.send("In the beginning\n")
    first = s.expect(r"\n> ")
    assert "In the beginning" in first and len(first.splitlines()) >= 2, first
    s.send("/regenerate\n")
    again = s.expect(r"\n> ")
    assert first.splitlines()[-2] == again.splitlines()[-2], (first, again)
    # editing: a wrong end is taken back, the line before comes by the arrow
    s.send("And Moses saiX\x7fd\n")
    s.expect(r"\n> ")
    s.send("\x1b[A\n")
    s.expect(r"\n> ")
    s.send(f"/save {sys.argv[1]}\n")
    s.expect(r"> ")
    s.send("\x15/clear\n")
    s.expect(r"> ")
    said = [m["content"] for m in json.load(open(sys.argv[1])) if m["role"] == "user"]
    assert said == ["In the beginning", "And Moses said", "And Moses said"], said
    # a line that is too long does not stay in the conversation
    s.send("~`|^" * 300 + "\n")
    s.expect(r"E_TOO_LONG(.|\n)*\n> ")
    s.send("/regenerate\n")
    s.expect(r"E_TOO_LONG(.|\n)*\n> ")
    s.send("Hello\n")
    s.expect(r"\n> ")
    s.send(f"/save {sys.argv[1]}\n")
    s.expect(r"> ")
    said = [m["role"] for m in json.load(open(sys.argv[1]))]
    assert said == ["user", "assistant"], said
    s.send("/nonsense\n")
    s.expect("no such command")
    s.send("/help\n")
    s.expect("/regenerate")
    s.send("\x04")
    assert s.end() == 0
    # an answer is interrupted, and the conversation goes on
    s = Screen(sys.argv[2:] + ["--max-tokens", "1000", "--ignore-eos"])
    s.expect("> ")
    s.send("In the beginning\n")
    s.expect("beginning\n")
    s.send("\x03", editing=False)
    s.expect("> ")
    s.send("not this\x03")
    s.expect("> ")
    s.send("/exit\n")
    assert s.end() == 0
    # Ctrl-D ends it, also right after an answer that was interrupted
    s = Screen(sys.argv[2:] + ["--max-tokens", "1000", "--ignore-eos"])
    s.expect("> ")
    s.send("In the beginning\n")
    s.expect("beginning\n")
    s.send("\x03", editing=False)
    s.expect(r"\n> ")
    s.send("\x04")
    assert s.end() == 0
    print("terminal")


main()
