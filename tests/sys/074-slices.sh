#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Woken threads run before computing ones: the gate has the shortest scheduler slice, the
# worker's threads a longer one, and its computing threads the longest.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
cat >"$dir/slices.py" <<'T'
import ctypes, os, struct, sys
syscall = ctypes.CDLL(None, use_errno=True).syscall
NR = {"x86_64": 315, "aarch64": 275}.get(os.uname().machine)


def slice_ns(tid):
    b = ctypes.create_string_buffer(48)
    return struct.unpack("IIQiIQQQ", b.raw)[5] if syscall(NR, tid, b, 48, 0) == 0 else 0


if NR is None or slice_ns(0) == 0:
    sys.exit("SKIP")
for pid in sys.argv[1:]:
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm") as f:
            print(f.read().strip(), slice_ns(int(tid)))
T
start --set model.path="$DEMO" --set device.backend=cpu --set device.threads=2
worker=$(ctl stat -1 --json | json 'd["worker_pid"]')
out=$(python3 "$dir/slices.py" "$fdd_pid" "$worker" 2>&1) || skip "this kernel tells no slices"
echo "$out"
slice_of() { # NAME: of the first thread of that name
    sed -n "s/^$1 //p" <<<"$out" | head -n 1
}
gate=$(slice_of fdd) engine=$(slice_of fdd-engine) pool=$(slice_of fdk-pool) stream=$(slice_of fdk-stream)
[ "$gate" -lt "$engine" ] || fail "the gate's slice is $gate ns, the engine's $engine"
[ "$engine" -lt "$pool" ] || fail "the engine's slice is $engine ns, that of what computes $pool"
[ "$pool" = "$stream" ] || fail "threads that compute have slices of $pool and $stream ns"
stop
