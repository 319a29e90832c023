#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The real-time clock jumps by hours in both directions, for daemon, worker and clients
# (clock/shift.c): streams go on, deadlines are not affected, nothing hangs, and the
# daemon drains and ends.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "a sanitizer's run time library has to be the first one"
command -v cc >/dev/null || skip "no compiler"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
cc -shared -fPIC -O1 -o "$dir/shift.so" "$FDD_SRC/tests/sys/clock/shift.c" >"$dir/cc" 2>&1 ||
    fail "clock/shift.c: $(cat "$dir/cc")"
jump() { # SECONDS from the real time: eight bytes, the lowest first
    local i h=''
    for i in 0 8 16 24 32 40 48 56; do h+=$(printf '\\x%02x' $((($1 >> i) & 255))); done
    printf '%b' "$h" | dd of="$dir/clock" conv=notrunc status=none
}
day() { LD_PRELOAD=$dir/shift.so FDD_CLOCK=$dir/clock "$@"; }
c() { day "$FDCTL" --runtime-dir "$run" "$@"; }
jump 7200
far=$(($(day date +%s) - $(date +%s)))
[ $far -ge 7199 ] && [ $far -le 7201 ] || fail "the clock does not jump: $far s instead of 7200"
jump 0

printf '#!/bin/sh\nFDD_CLOCK=%s LD_PRELOAD=%s exec "$@"\n' "$dir/clock" "$dir/shift.so" >"$dir/under"
chmod 755 "$dir/under"
FDD_UNDER=$dir/under start --set model.path="$DEMO" --set device.backend=cpu \
    --set device.step_delay_us=20000 --set daemon.drain_timeout_ms=$((20000 * slow))
w=$(pgrep -P "$fdd_pid" | head -n 1)
grep -q "$dir/shift.so" "/proc/$w/maps" || fail "the worker's clock does not jump"
ask() { # NUMBER OPTION...: 2 s of tokens, in the background
    local i=$1; shift
    c generate -p "On day $i" --max-tokens 100 --ignore-eos --temperature 0.8 --seed "$i" "$@" \
        >"$dir/out.$i" 2>"$dir/err.$i" &
    pids[i]=$!
}
for i in 1 2 3 4; do ask $i --timeout-ms $((60000 * slow)); done
for i in 1 2 3 4; do
    wait "${pids[i]}" || fail "no reference: $(cat "$dir/err.$i")"
    mv "$dir/out.$i" "$dir/ref.$i"
done
for i in 1 2 3 4; do ask $i --timeout-ms $((60000 * slow)); done
for s in 10800 -10800 86400 -1 0 -31536000 3600 -10800; do jump $s; sleep 0.2; done
for i in 1 2 3 4; do
    wait "${pids[i]}" || fail "stream $i while the clock jumps: exit $?: $(cat "$dir/err.$i")"
    cmp "$dir/out.$i" "$dir/ref.$i" || fail "stream $i: other text"
done

# a deadline: neither sooner nor later
jump 0
t0=$(date +%s%N)
ask 5 --timeout-ms 1000
sleep 0.3; jump 10800; sleep 0.3; jump -10800
wait "${pids[5]}" && fail "no deadline"
ms=$((($(date +%s%N) - t0) / 1000000))
grep -q E_DEADLINE "$dir/err.5" || fail "deadline: $(cat "$dir/err.5")"
[ $ms -ge 950 ] && [ $ms -lt $((4000 * slow)) ] || fail "a deadline of 1000 ms came after $ms ms"

# sleeping threads are woken, and the worker was not replaced
for s in 10800 -10800 0; do
    jump $s
    sleep 0.3
    expect 0 c --timeout $((10 * slow)) ping --deep
    expect 0 c generate -p x --max-tokens 3 --timeout-ms $((20000 * slow))
done
[ "$(pgrep -P "$fdd_pid" | head -n 1)" = "$w" ] || fail "another worker"

# draining
ask 6
busy() { [ "$(ctl status --json | json 'd["requests"]["running"]')" = 1 ]; }
until_true 10 busy || fail "the request does not run"
kill -TERM "$fdd_pid"
for s in -3600 -7200 -10800 10800 -14400 -18000 -21600 -25200 -28800 -32400; do jump $s; sleep 0.25; done
wait "${pids[6]}" || fail "a request while draining: $(cat "$dir/err.6")"
until_true 5 ended || fail "the daemon does not end"
wait "$fdd_pid" || fail "exit $? on SIGTERM"
fdd_pid=
