#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# 64 streams on a session with reconnect_ms while the worker is killed (FDD_KILLS, 6) and
# the daemon restarted (FDD_RESTARTS, 2; the first by SIGTERM, then by SIGKILL): ids, text
# and logprobs equal those of an undisturbed run, none twice, none missing. With a waiting
# thread, and in an event loop.
. "$(dirname "$0")/lib.sh"
kills=${FDD_KILLS:-$(few 6 2)} restarts=${FDD_RESTARTS:-2}
RESUME=$FDD_BUILD/tests/sys/resume
worker() { pgrep -P "$fdd_pid" | head -n 1; }
args=(--set model.path="$DEMO" --set daemon.crash_window_s=1 --set daemon.crash_max=16
    --set daemon.drain_timeout_ms=100 --set sched.max_inflight_per_client=128)
again() { # SIGNAL
    kill "-$1" "$fdd_pid"; wait "$fdd_pid" 2>/dev/null
    fdd_pid=
    start "${args[@]}" 7>&- # it would hold the pipe open
}
# A request at several worker deaths without a new token ends, as it should. So every
# third kill waits until each stream has got a token since the last.
relayed() { ctl stat -1 --json | json 'd["gate"]["tokens_relayed"]'; }
went_on() { local n; n=$(relayed 2>/dev/null) && [ "${n:-0}" -ge $(($1 + 200)) ]; }
disturb() { # [loop]
    local i w n=$((kills + restarts)) every=$(((kills + restarts) / restarts))
    mkfifo "$dir/in$1"
    "$RESUME" "$run/fdd.sock" 64 40 $1 <"$dir/in$1" >"$dir/out" 2>"$dir/err" &
    local pid=$!
    exec 7>"$dir/in$1"
    until_true 120 grep -q ready "$dir/out" || fail "no reference: $(cat "$dir/err")"
    for ((i = 1; i <= n; i++)); do
        sleep 0.$((RANDOM % 8 + 1))
        kill -0 $pid 2>/dev/null || fail "ended after $i: $(cat "$dir/err")"
        if [ $((i % every)) = 0 ]; then
            again $([ $((i / every % 2)) = 1 ] && echo TERM || echo KILL)
        else
            w=$(worker)
            [ -z "$w" ] || kill -KILL "$w"
            until_true 20 ctl ping --deep || fail "no worker after kill $i"
            [ $((i % 3)) != 0 ] || until_true 60 went_on "$(relayed)" || fail "nothing goes on after kill $i"
        fi
    done
    exec 7>&-
    wait $pid || fail "resume: $(cat "$dir/err" "$dir/out")"
    tail -n 1 "$dir/out"
    grep -q "opened again $restarts times, 0 errors" "$dir/out" || fail "$(cat "$dir/out")"
    [ "$(sed -n 's/ requests.*//p' "$dir/out")" -ge 64 ] || fail "too few requests: $(cat "$dir/out")"
}
start "${args[@]}"
disturb ''
kills=$((kills / 2 + 1)) restarts=$(((restarts + 1) / 2))
disturb loop
stop
