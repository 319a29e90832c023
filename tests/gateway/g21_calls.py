# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""System calls of the loop in strace's output, by loop iteration (from epoll_wait to the next)."""
import collections
import re
import sys

CALL = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)[( ](?:resumed>)?(\d*)")


def rounds(path, pid):
    """A Counter of (call, first argument) for each iteration."""
    out, now = [], collections.Counter()
    with open(path) as f:
        for line in f:
            m = CALL.match(line)
            if not m or m[1] != pid or "resumed>" in line:
                continue
            if m[2] == "epoll_wait":
                out.append(now)
                now = collections.Counter()
            else:
                now[(m[2], m[3])] += 1
    return out


def main():
    pid, per = sys.argv[1], {}
    for n, path in zip(sys.argv[2::2], sys.argv[3::2]):
        all_rounds = rounds(path, pid)
        # within a step: no request begins or ends
        steps = [r for r in all_rounds if any(c == "sendto" for c, _ in r)
                 and not any(c in ("accept4", "close", "epoll_ctl") for c, _ in r)]
        assert len(steps) > 30, (n, len(steps))
        twice = [r for r in steps if any(v > 1 for (c, _), v in r.items() if c == "sendto")]
        sends = sum(v for r in steps for (c, _), v in r.items() if c == "sendto")
        rest = collections.Counter()
        for r in steps:
            for (c, _), v in r.items():
                if c != "sendto":
                    rest[c] += v
        per[int(n)] = sum(rest.values()) / len(steps)
        print(f"{n} streams: {len(steps)} iterations with {sends} sends, others {dict(rest)}: {per[int(n)]:.2f} an iteration")
        assert not twice, twice[0]
    few, many = (per[k] for k in sorted(per))
    assert many <= few + 1 and many < 12, per


main()
