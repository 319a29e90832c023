#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Gate and worker as they run: no new privileges, two filters in the worker, and another
# process of the same user cannot read the memory of either.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build"
! grep -q 'define FDD_DEVELOPER' "$FDD_BUILD/config.h" || skip "a build for developers is open"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
start --set model.path="$DEMO" --set device.backend=cpu
field() { sed -n "s/^$2:[^0-9]*\([0-9]*\).*/\1/p" "/proc/$1/status"; }
worker() { ctl status --json | json 'd["worker"]["pid"]'; }
w=$(worker)
for p in "$fdd_pid" "$w"; do
    [ "$(field "$p" NoNewPrivs)" = 1 ] || fail "process $p may get new privileges"
done
[ "$(field "$w" Seccomp)" = 2 ] || fail "the worker has no filter: $(cat "$dir/log")"
n=$(field "$w" Seccomp_filters)
outer=$(field "$fdd_pid" Seccomp_filters)
[ "${n:-2}" = $((${outer:-0} + 2)) ] || fail "the worker has $n filters, the gate $outer"
# every thread of it
for t in /proc/"$w"/task/*; do
    grep -q '^Seccomp:.2' "$t/status" || fail "thread $t has no filter"
done
! grep -q 'more than it should\|stays open' "$dir/log" || fail "not confined"
# weights come through the restricted rings where the kernel has them
if python3 -c 'import ctypes, sys
p = (ctypes.c_uint32 * 30)(); p[2] = 1 << 6
sys.exit(ctypes.CDLL(None).syscall(425, 4, p) < 0)'; then
    grep -qE 'load: .* io_uring' "$dir/log" || fail "no io_uring: $(grep load: "$dir/log")"
fi
expect 0 ctl generate -p 'In the beginning' --max-tokens 16
# last words still arrive
kill -SEGV "$w"
until_true 20 logged 1 'ended by signal 11' || fail "no death: $(tail "$dir/log")"
expect 0 ctl --wait $((20 * slow)) ping
expect 0 ctl debug panic
has "$out" 'panic: SIGSEGV'
stop

# run as a separate user, other programs of that user see nothing
others || exit 0
run=$dir/other
mkdir "$run" && chown 65534:65534 "$run"
LD_LIBRARY_PATH=$dir/others setpriv --reuid 65534 --regid 65534 --clear-groups "$O_FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$O_WORKER" --set model.path=null \
    --set device.backend=null 2>>"$dir/log" &
fdd_pid=$!
ctl --wait $((20 * slow)) ping >"$dir/ping" 2>&1 || fail "daemon not ready: $(cat "$dir/ping")"
w=$(worker)
a=$(cat "/proc/$fdd_pid/oom_score_adj") b=$(cat "/proc/$w/oom_score_adj")
[ "$b" = $((a + 600 > 1000 ? 1000 : a + 600)) ] || fail "oom_score_adj: gate $a, worker $b"
cat >"$dir/look.py" <<'PY'
import ctypes, os, sys
lib = ctypes.CDLL(None, use_errno=True)
seen = 0
for pid in map(int, sys.argv[1:]):
    if lib.ptrace(0x4206, pid, 0, 0) == 0:
        print(f"{pid} is traced")
        seen += 1
    p = os.pidfd_open(pid)
    if lib.syscall(438, p, 0, 0) >= 0:
        print(f"descriptor 0 of {pid} is taken")
        seen += 1
sys.exit(seen != 0)
PY
chmod 644 "$dir/look.py"
for p in "$fdd_pid" "$w"; do
    for f in mem environ maps fd/0; do
        ! as_other head -c 1 "/proc/$p/$f" >/dev/null 2>&1 || fail "/proc/$p/$f is read"
    done
done
python=
for p in python3 /usr/bin/python3; do
    [ -n "$python" ] || { as_other "$p" -c 'import os; os.pidfd_open' 2>/dev/null && python=$p; }
done
if [ -n "$python" ]; then
    out=$(as_other "$python" "$dir/look.py" "$fdd_pid" "$w") || fail "$out"
fi
# public data is there: descriptors in the metrics, and doctor runs
out=$(as_other "$O_FDCTL" --runtime-dir "$run" stat --prometheus 2>&1) || fail "stat: $out"
# Linux 6.2 and later
[ "$(stat -L -c %s /proc/self/fd)" = 0 ] || has "$out" 'process_open_fds.* [1-9]'
stop
