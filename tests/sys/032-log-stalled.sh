#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The reader of the log stops: requests and administration go on; lines without room are
# counted, for gate and worker, and reported when the reader goes on. Lines of a killed
# worker arrive too. Nothing hangs at the end.
. "$(dirname "$0")/lib.sh"
reader=
reader_cleanup() {
    local rc=$?
    [ -z "$reader" ] || kill -KILL "$reader" 2>/dev/null
    (exit $rc)
    cleanup
}
trap reader_cleanup EXIT

# The log goes through a pipe of one page to a reader that can be stopped. Only fdd has
# the pipe's other end.
reading() {
    mkfifo "$dir/pipe"
    cat "$dir/pipe" >>"$dir/log" &
    reader=$!
    exec 7>"$dir/pipe"
    python3 -c 'import fcntl; fcntl.fcntl(7, 1031, 4096)'
    "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" "$@" 2>&7 &
    fdd_pid=$!
    exec 7>&-
    ctl --wait $((20 * slow)) ping >/dev/null 2>"$dir/ping" || fail "daemon not ready: $(cat "$dir/ping")"
}
lost() { # gate|worker
    ctl stat -1 --json | json 'd["'"$1"'"]["log_dropped"]'
}
both_lost() { [ "$(lost gate)" -gt 0 ] && [ "$(lost worker)" -gt 0 ]; }
# Only root may inspect fdd, unless it is a build for developers.
flags() { grep flags: "/proc/$fdd_pid/fdinfo/2" 2>"$dir/flags" || echo "not to be seen"; }

reading --set model.path=null --set device.backend=null --set log.rate=0
before=$(flags)
has "$(cat "/proc/$fdd_pid/task/"*/comm)" fdd-log
expect 0 ctl set log.requests=all
for _ in $(seq 400); do echo '{"ids": [1, 2, 3], "max_tokens": 20, "ignore_eos": true}'; done >"$dir/batch"

phase() { [ "$(ctl status --json | json '(d["worker"]["phase"], d["worker"]["starts"])')" = "('ready', $1)" ]; }
kill_worker() {
    kill -KILL "$(ctl status --json | json 'd["worker"]["pid"]')"
    until_true 20 phase "$1" || fail "the killed worker was not replaced"
}

# The lines that a killed worker had queued, and that its pipe had no room for,
# are shown by the gate.
expect 0 ctl debug +sched
kill -STOP "$reader"
timeout $((10 * slow)) "$FDCTL" --runtime-dir "$run" generate -p abc --max-tokens 200 --ignore-eos >"$dir/out" ||
    fail "a request does not end while the reader stands still"
steps=$(ctl stat -1 --json | json 'd["worker"]["steps"]')
[ "$steps" -ge 100 ] || fail "only $steps steps"
kill_worker 2
kill -CONT "$reader"
until_true 20 logged "$steps" 'fdd-worker: sched: step ' ||
    fail "of $steps lines of the killed worker $(grep -c 'fdd-worker: sched: step ' "$dir/log") are shown"

kill -STOP "$reader"
expect 0 ctl debug --level trace +sched
for i in $(seq 40); do
    timeout $((30 * slow)) "$FDCTL" --runtime-dir "$run" generate --batch "$dir/batch" >"$dir/out" 2>&1 ||
        fail "round $i of requests did not end: $(tail -n 3 "$dir/out")"
    both_lost && break
done
both_lost || fail "nothing was dropped although the reader stands still: gate $(lost gate), worker $(lost worker)"
# With more lost lines, pings and requests still take their usual time.
for _ in $(seq 20); do
    expect 0 timeout $((5 * slow)) "$FDCTL" --runtime-dir "$run" ping
done
expect 0 timeout $((10 * slow)) "$FDCTL" --runtime-dir "$run" generate --batch "$dir/batch"
[ "$(flags)" = "$before" ] || fail "flags of stderr changed: $before, now $(flags)"
# A worker that dies meanwhile is replaced, and no process waits for its log.
kill_worker 3
gate=$(lost gate)
[ "$gate" -gt 0 ] || fail "the gate counts nothing"

kill -CONT "$reader"
told() { grep -qE " W $1: log: [0-9]+ lines were lost because the reader of the log is slow\$" "$dir/log"; }
until_true 20 told fdd || fail "no line counts the lost lines"
until_true 20 grep -q 'fdd: supervise: worker 0 ready' "$dir/log" || fail "later lines do not come"
expect 0 ctl set log.level=info
expect 0 ctl debug -sched
until_true 20 grep -q 'fdd: control: log level info, debug bits' "$dir/log" || fail "lines no longer come"
until_true 20 grep -q 'fdd-worker: worker: parameters reloaded' "$dir/log" || fail "the new worker is silent"
all_told() { # the numbers of lost and of reported lines are equal
    [ "$(awk '/ W fdd: log: [0-9]+ lines were lost/ { n += $6 } END { print n + 0 }' "$dir/log")" = "$(lost gate)" ]
}
until_true 20 all_told || fail "lost $(lost gate), told $(grep 'lines were lost' "$dir/log")"

# The end waits one second for such a reader, not for ever, and so does a panic.
kill -STOP "$reader"
expect 0 ctl debug --level trace +sched
expect 0 timeout $((20 * slow)) "$FDCTL" --runtime-dir "$run" generate --batch "$dir/batch"
kill -TERM "$fdd_pid"
gone() { ! kill -0 "$fdd_pid" 2>/dev/null; }
until_true 30 gone || fail "fdd does not end while the reader stands still"
wait "$fdd_pid"; rc=$?
fdd_pid=
[ $rc = 0 ] || fail "fdd exited $rc on SIGTERM"
kill -CONT "$reader"
wait "$reader"
reader=
