#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Long bodies are read on a separate thread: 256 streams together with a client that sends
# 30 MB bodies one after another have at most 2 ms more ITL than alone (with FDD_LONG;
# otherwise 20 ms, as other programs may run), because bodies wait in their sockets while
# streams run. The memory of all bodies together is bounded, and the body of a client that
# disconnects is freed.
. "$(dirname "$0")/lib.sh"
load=$FDD_BUILD/tests/bench/http_load
start --set model.path=null --set device.step_delay_us=10000 --set sched.max_num_seqs=256 --set sched.max_penalty_seqs=256 --set ipc.trusted_users="$(id -un)"
gateway --set http.max_bodies_bytes=64m
measure() {
    local i
    for i in 1 2 3; do
        "$load" -p "$port" -a -n 256 -s 2 >"$dir/alone.$i" || fail "http_load: $?"
        "$load" -p "$port" -a -n 256 -s 2 -b 30000000 >"$dir/next.$i" || fail "http_load -b: $?"
    done
    cat "$dir"/alone.? "$dir"/next.? | py -c '
import json, os, sys
runs = [json.loads(line) for line in sys.stdin]
p99 = lambda r: sorted(x["itl_us"]["p99"] for x in r)[1]
alone, with_bodies, bodies = p99(runs[:3]), p99(runs[3:]), sum(x["bodies"] for x in runs[3:])
print(f"ITL p99 of 256 streams: {alone/1000:.2f} ms; next to {bodies} bodies of 30 MB {with_bodies/1000:.2f} ms")
assert bodies >= 6, bodies
assert with_bodies <= alone + (2000 if os.environ.get("FDD_LONG") else 20000), (alone, with_bodies)
'
}
# one of three tries must succeed, as other programs have bursts
[ -n "${FDD_SAN_RUN:-}" ] || measure || measure || measure || fail "see above"
py "$gw/bodies.py" || fail "see above"
gateway_stop
stop
