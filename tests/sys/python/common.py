# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python module share: fdctl, conditions to wait for."""
import json
import os
import subprocess
import time

PROMPT = "In the beginning"
SLOW = int(os.environ.get("FDD_SLOW", "1"))


def ctl(*arguments):
    return subprocess.run([os.environ["FDCTL"], "--runtime-dir", os.environ["FDD_RUN"],
                           *arguments], check=True,
                          stdout=subprocess.PIPE).stdout.decode()


def n_requests():
    return len(json.loads(ctl("requests", "--json"))["requests"])


def greedy(n, prompt=PROMPT):
    """What fdctl says of the same request."""
    return json.loads(ctl("generate", "-p", prompt, "--max-tokens", str(n),
                          "--temperature", "0", "--ignore-eos", "--json"))


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def rss():
    """Bytes of memory that this process has."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def n_fds():
    return len(os.listdir("/proc/self/fd"))
