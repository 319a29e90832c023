#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A hanging worker is detected: if stopped under load it is killed, every request ends
# with E_GPU_RESET, and another worker gets ready. Not with the parameter at 0, and
# not under a debugger.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.backend=null --set daemon.worker_hang_ms=1000
worker() { ctl status --json | json 'd["worker"]["pid"]'; }
is_ready() { [ "$(ctl status --json | json 'd["worker"]["phase"]')" = ready ]; }
echo '[5,6,7]' >"$dir/ids"
load() { # N: requests that would take minutes; each client's exit code in $codes
    local i
    clients=()
    for i in $(seq "$1"); do
        timeout $((60 * slow)) "$FDCTL" --runtime-dir "$run" generate --ids-file "$dir/ids" \
            --max-tokens 60000 --ignore-eos --n-requests 16 --json >"$dir/out$i" 2>&1 &
        clients+=($!)
    done
    until_true 10 sh -c "[ \$('$FDCTL' --runtime-dir '$run' stat -1 | awk '/generation_tokens/ { print \$3 }') -gt $2 ]" ||
        fail "no tokens: $(ctl stat -1)"
}
tokens() { ctl stat -1 | awk '/generation_tokens/ { print $3 }'; }

ctl set device.step_delay_us=2000 >/dev/null 2>&1
w=$(worker)
load 4 500
kill -STOP "$w"
for c in "${clients[@]}"; do
    wait "$c"; rc=$?
    [ $rc = 75 ] || fail "exit $rc instead of 75: $(head -c 600 "$dir"/out*)"
done
n=$(cat "$dir"/out? | grep -o E_GPU_RESET | wc -l)
[ "$n" -ge 64 ] || fail "$n of 64 requests ended with E_GPU_RESET: $(head -c 600 "$dir"/out*)"
until_true 20 is_ready || fail "no worker is ready: $(ctl status)"
[ "$(worker)" != "$w" ] || fail "the same worker"
[ ! -e "/proc/$w" ] || fail "process $w is there"
grep -qE "worker 0 \(pid $w\) is killed: it has not moved for [12]\.[0-9] s; its last step began" "$dir/log" ||
    fail "the log does not say why"
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4 --ignore-eos

# an idle worker that hangs is detected too
w=$(worker)
kill -STOP "$w"
until_true 20 logged 2 'is killed: it has not moved' || fail "an idle worker that is stopped stays"
until_true 20 is_ready || fail "no worker is ready: $(ctl status)"

# not when it is switched off
expect 0 ctl set daemon.worker_hang_ms=0
w=$(worker)
kill -STOP "$w"
sleep $((3 * slow))
kill -CONT "$w"
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4 --ignore-eos
[ "$(worker)" = "$w" ] || fail "killed although daemon.worker_hang_ms is 0"
expect 0 ctl set daemon.worker_hang_ms=500

# nor while a debugger stops it, if this user may debug
cat >"$dir/hold.py" <<'PY'
import ctypes, os, sys, time
pid, lib = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
lib.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
tids = [int(t) for t in os.listdir(f"/proc/{pid}/task")]
for t in tids:
    if lib.ptrace(0x4206, t, 0, 0) != 0:  # PTRACE_SEIZE
        sys.exit(77)
    lib.ptrace(0x4207, t, 0, 0)           # PTRACE_INTERRUPT
for t in tids:
    os.waitpid(t, 0x40000000)             # __WALL
time.sleep(float(sys.argv[2]))
for t in tids:
    lib.ptrace(17, t, 0, 0)               # PTRACE_DETACH
PY
python3 "$dir/hold.py" "$w" $((3 * slow)); rc=$?
if [ $rc != 77 ]; then
    [ $rc = 0 ] || fail "the debugger: exit $rc"
    expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4 --ignore-eos
    [ "$(worker)" = "$w" ] || fail "killed under a debugger"
fi
logged 2 'is killed' || fail "$(grep -c 'is killed' "$dir/log") killed instead of 2"
stop
