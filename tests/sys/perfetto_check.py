#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Check a Trace Event JSON file as fdctl trace --perfetto writes it against the
rules of the format. Usage: perfetto_check.py FILE (- is standard input).
Prints what the file has; exit 1 with the first violation, 2 if unreadable."""
import json
import sys
from decimal import Decimal

PHASES = set("BEXibensfCM")
META = {"process_name": "name", "thread_name": "name", "process_labels": "labels",
        "process_sort_index": "sort_index", "thread_sort_index": "sort_index"}


class Bad(Exception):
    pass


def need(cond, what):
    if not cond:
        raise Bad(what)


def number(v):
    return isinstance(v, (int, Decimal)) and not isinstance(v, bool) \
        and not (isinstance(v, Decimal) and not v.is_finite())


def text(v):
    return isinstance(v, str) and v != ""


class Check:
    def __init__(self):
        self.processes, self.threads = {}, {}
        self.used_pids, self.used_tids = {}, {}
        self.slices = {}     # (pid, tid): X slices as (begin, end, name, index)
        self.stacks = {}     # (pid, tid): open B
        self.asyncs = {}     # (pid, cat, id): open b
        self.flows = {}      # (cat, name, id): [ts of s, ts of f]
        self.ends = []       # of flows: (pid, tid, ts, index)
        self.last = {}       # track: ts of the event before
        self.count = dict.fromkeys(PHASES, 0)
        self.names = {}

    def meta(self, e):
        name, args = e.get("name"), e.get("args")
        need(name in META, f"metadata {name!r} is not known")
        need(isinstance(args, dict) and META[name] in args,
             f"metadata {name} has no args.{META[name]}")
        v = args[META[name]]
        if META[name] == "sort_index":
            need(isinstance(v, int) and not isinstance(v, bool),
                 f"{name}: {v!r} is not a whole number")
        else:
            need(text(v), f"{name}: {v!r} is not a text")
        if name == "process_name":
            need(e["pid"] not in self.processes, f"process {e['pid']} is named twice")
            self.processes[e["pid"]] = v
        if name == "thread_name":
            key = (e["pid"], e["tid"])
            need(key not in self.threads, f"thread {key} is named twice")
            self.threads[key] = v

    def ordered(self, track, ts):
        need(ts >= self.last.get(track, Decimal(0)),
             f"goes back in time on track {track}: {ts} after {self.last.get(track)}")
        self.last[track] = ts

    def complete(self, e, i):
        need(number(e.get("dur")) and e["dur"] >= 0, f"dur {e.get('dur')!r} is no duration")
        key = (e["pid"], e["tid"])
        self.slices.setdefault(key, []).append(
            (Decimal(e["ts"]), Decimal(e["ts"]) + Decimal(e["dur"]), e["name"], i))

    def asynchronous(self, e):
        need(text(e.get("cat")), "an asynchronous event without cat")
        ident = e.get("id")
        need(text(ident) or (isinstance(ident, int) and not isinstance(ident, bool)),
             f"id {ident!r} is neither a text nor a number")
        stack = self.asyncs.setdefault((e["pid"], e["cat"], str(ident)), [])
        if e["ph"] == "b":
            stack.append(e["name"])
        elif e["ph"] == "e":
            need(stack, f"the end of {e['name']!r}, id {ident}, that did not begin")
            need(stack[-1] == e["name"], f"the end of {e['name']!r}, id {ident}, in {stack[-1]!r}")
            stack.pop()
        else:
            need(stack, f"{e['name']!r} is outside what has id {ident}")

    def flow(self, e, i):
        need("id" in e and text(e.get("cat")), "a flow event without id or cat")
        key = (e["cat"], e["name"], str(e["id"]))
        pair = self.flows.setdefault(key, [None, None])
        at = 0 if e["ph"] == "s" else 1
        need(pair[at] is None, f"flow {key} has two events {e['ph']!r}")
        need(at == 0 or pair[0] is not None, f"flow {key} ends before it begins")
        need(at == 0 or e.get("bp") == "e", f"flow {key} ends without bp \"e\"")
        pair[at] = Decimal(e["ts"])
        self.ends.append((e["pid"], e["tid"], Decimal(e["ts"]), i))

    def counter(self, e):
        args = e.get("args")
        need(isinstance(args, dict) and args, "a counter without args")
        for k, v in args.items():
            need(number(v), f"counter {e['name']!r}: {k} = {v!r} is not a number")
            need(v >= 0, f"counter {e['name']!r}: {k} = {v} is negative")

    def event(self, e, i):
        need(isinstance(e, dict), "is not an object")
        ph = e.get("ph")
        need(isinstance(ph, str) and ph in PHASES, f"ph {ph!r} is not known")
        need(isinstance(e.get("pid"), int) and isinstance(e.get("tid"), int),
             "pid or tid is not a whole number")
        self.count[ph] += 1
        if ph == "M":
            return self.meta(e)
        need(number(e.get("ts")) and e["ts"] >= 0, f"ts {e.get('ts')!r} is no time")
        need(text(e.get("name")), "has no name")
        need("args" not in e or isinstance(e["args"], dict), "args is not an object")
        ts, pid, tid = Decimal(e["ts"]), e["pid"], e["tid"]
        self.used_pids.setdefault(pid, i)
        if ph == "C":
            self.ordered((pid, "counter", e["name"]), ts)
            return self.counter(e)
        if ph in "ben":
            self.ordered((pid, e.get("cat"), str(e.get("id"))), ts)
            return self.asynchronous(e)
        self.used_tids.setdefault((pid, tid), i)
        if ph in "sf":
            return self.flow(e, i)
        if ph == "i":
            need(e.get("s", "t") in ("t", "p", "g"), f"scope {e.get('s')!r} is not known")
            return self.ordered((pid, tid, "instants"), ts)
        self.ordered((pid, tid), ts)
        self.names[e["name"].split()[0]] = self.names.get(e["name"].split()[0], 0) + 1
        if ph == "X":
            return self.complete(e, i)
        stack = self.stacks.setdefault((pid, tid), [])
        if ph == "B":
            stack.append(e["name"])
        else:
            need(stack and stack[-1] == e["name"], f"E {e['name']!r} ends no B")
            stack.pop()
        return None

    def nested(self):
        for track, slices in self.slices.items():
            need(not self.stacks.get(track), f"track {track} has both X and open B")
            open_ = []
            for begin, end, name, i in slices:
                while open_ and open_[-1][0] <= begin:
                    open_.pop()
                need(not open_ or end <= open_[-1][0],
                     f"event {i}: slice {name!r} ({begin} to {end}) partly overlaps "
                     f"{open_[-1][1] if open_ else ''!r} on track {track}")
                open_.append((end, name))

    def flows_bound(self):
        starts = {t: [s[0] for s in sl] for t, sl in self.slices.items()}
        from bisect import bisect_right
        for pid, tid, ts, i in self.ends:
            sl = self.slices.get((pid, tid), [])
            k = bisect_right(starts.get((pid, tid), []), ts) - 1
            need(k >= 0 and any(s[0] <= ts <= s[1] for s in sl[max(0, k - 8):k + 1]),
                 f"event {i}: a flow outside any slice of track {(pid, tid)}")
        for key, (s, f) in self.flows.items():
            need(s is not None and f is not None, f"flow {key} has one end")
            need(s <= f, f"flow {key} goes back in time")

    def finish(self):
        self.nested()
        for track, stack in self.stacks.items():
            need(not stack, f"{stack!r} on track {track} did not end")
        for key, stack in self.asyncs.items():
            need(not stack, f"{stack!r}, id {key[2]}, did not end")
        self.flows_bound()
        for pid, i in self.used_pids.items():
            need(pid in self.processes, f"event {i}: process {pid} has no name")
        for key, i in self.used_tids.items():
            need(key in self.threads, f"event {i}: thread {key} has no name")


def check(doc):
    c = Check()
    need(isinstance(doc, dict), "the file is not an object")
    need(isinstance(doc.get("traceEvents"), list), "no list traceEvents")
    need(doc.get("displayTimeUnit") in ("ms", "ns"),
         f"displayTimeUnit {doc.get('displayTimeUnit')!r} is neither ms nor ns")
    need(isinstance(doc.get("otherData", {}), dict), "otherData is not an object")
    for i, e in enumerate(doc["traceEvents"]):
        try:
            c.event(e, i)
        except Bad as b:
            raise Bad(f"event {i}: {b}") from None
    c.finish()
    return c


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with (sys.stdin if argv[1] == "-" else open(argv[1], encoding="utf-8")) as f:
            doc = json.load(f, parse_float=Decimal, parse_constant=no_constant)
    except OSError as e:
        print(f"{argv[1]}: {e}", file=sys.stderr)
        return 2
    except ValueError as e:
        print(f"{argv[1]}: not JSON: {e}")
        return 1
    try:
        c = check(doc)
    except Bad as b:
        print(f"{argv[1]}: {b}")
        return 1
    print("ok:", ", ".join(f"{n} {k}" for k, n in sorted(c.names.items())),
          f"slices; {c.count['s']} flows; {c.count['C']} counter values;",
          f"{len(c.asyncs)} asynchronous tracks with {c.count['b']} slices")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
