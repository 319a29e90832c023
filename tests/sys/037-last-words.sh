#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# After a crash `fdctl status` shows which process ended, when, how, and its last words
# and lines: for a worker that was killed or panicked, also when the next one is ready;
# for the daemon itself when it is started again; and for the worker because of which the
# daemon gave up. A clean end leaves nothing.
. "$(dirname "$0")/lib.sh"

status() { ctl status --json | json "$1"; }
null="--set model.path=null --set device.backend=null"
ready() { [ "$(status '(d["worker"]["phase"], d["worker"]["starts"])')" = "('ready', $1)" ]; }
recent() { # a time of the last minutes
    local now; now=$(date +%s)
    [ "$1" -le "$now" ] && [ "$1" -ge $((now - 600)) ]
}
# shellcheck disable=SC2086
start $null
[ "$(status '(d["last_crash"], d["worker"]["last_crash"])')" = "(None, None)" ] || fail "a crash at the start"
# 1. kill -9: its lines are kept in memory that it shared
worker=$(status 'd["worker"]["pid"]')
kill -KILL "$worker"
until_true 20 ready 2 || fail "no second worker"
[ "$(status '(lambda c: (c["program"], c["pid"], c["how"], c["panic"]))(d["worker"]["last_crash"])')" = \
    "('fdd-worker', $worker, 'ended by signal 9 (Killed)', [])" ] || fail "kill -9: $(ctl status --json)"
recent "$(status 'd["worker"]["last_crash"]["ended_s"]')" || fail "time of the crash"
has "$(status '"\n".join(d["worker"]["last_crash"]["lines"])')" 'I fdd-worker: worker: ready$'
expect 0 ctl status
has "$out" "^crash     fdd-worker, pid $worker, [0-9-]+ [0-9:]+: ended by signal 9 \(Killed\)"
has "$out" '^            .* I fdd-worker: worker: ready'
# 2. a panic: its text too. What a request's text holds is in no line, and what
# could steer a terminal is escaped.
expect 0 ctl set log.requests=all
worker=$(status 'd["worker"]["pid"]')
kill -SEGV "$worker"
until_true 20 ready 3 || fail "no third worker"
has "$(status '"\n".join(d["worker"]["last_crash"]["panic"])')" '^panic: SIGSEGV at address'
[ "$(status 'd["worker"]["last_crash"]["pid"]')" = "$worker" ] || fail "not the last crash"
expect 0 ctl status
has "$out" '^            panic: SIGSEGV at address'
# 3. the daemon itself
first=$fdd_pid
kill -SEGV "$fdd_pid"
wait "$fdd_pid" 2>/dev/null
fdd_pid=
[ "$(stat -c %a "$run/fdd.crash")" = 600 ] || fail "mode of the file: $(stat -c %a "$run/fdd.crash")"
# a line that was made to steer a terminal, or to pass for another
printf 'evil \033[2J \377 line\n' >>"$run/fdd.crash"
# shellcheck disable=SC2086
start $null
[ "$(status '(lambda c: (c["program"], c["pid"]))(d["last_crash"])')" = "('fdd', $first)" ] || fail "crash of fdd: $(ctl status --json)"
has "$(status 'd["last_crash"]["how"]')" '^panic: SIGSEGV'
has "$(status '"\n".join(d["last_crash"]["panic"])')" 'backtrace:'
has "$(status '"\n".join(d["last_crash"]["lines"])')" 'I fdd: supervise: worker 0 ready after'
has "$(status '"\n".join(d["last_crash"]["lines"])')" '^evil \?\[2J \? line$'
recent "$(status 'd["last_crash"]["ended_s"]')" || fail "time of fdd's crash"
[ "$(status 'd["worker"]["last_crash"]')" = None ] || fail "a crash of another daemon's worker"
expect 0 ctl status
has "$out" "^crash     fdd, pid $first, [0-9-]+ [0-9:]+: panic: SIGSEGV"
until_true 10 grep -q "W fdd: gate: the daemon before did not end well: fdd (pid $first)" "$dir/log" || fail "the log says nothing"
# 4. killed: nothing but that is known
first=$fdd_pid
kill -KILL "$fdd_pid"
wait "$fdd_pid" 2>/dev/null
fdd_pid=
# shellcheck disable=SC2086
start $null
has "$(status 'd["last_crash"]["how"]')" 'killed'
[ "$(status '(lambda c: (c["pid"], c["ended_s"], c["panic"], c["lines"]))(d["last_crash"])')" = "($first, 0, [], [])" ] ||
    fail "after kill -9 of fdd: $(ctl status --json)"
recent "$(status 'd["last_crash"]["started_s"]')" || fail "start of the daemon that was killed"
# 5. a clean end leaves nothing
stop
[ ! -e "$run/fdd.crash" ] || fail "a clean end leaves $run/fdd.crash"
# 6. a worker that dies at every start: the daemon gives up, and the next one knows
printf '#!/bin/sh\nexit 3\n' >"$dir/bad"; chmod +x "$dir/bad"
"$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$dir/bad" --set daemon.crash_max=2 \
    --set model.path=null --set daemon.drain_timeout_ms=0 2>>"$dir/log"
rc=$?
[ $rc = 75 ] || fail "exit $rc instead of 75"
# shellcheck disable=SC2086
start $null
[ "$(status '(lambda c: (c["program"], c["how"]))(d["last_crash"])')" = "('fdd-worker', 'exited with 3')" ] ||
    fail "after exit code 75: $(ctl status --json)"
stop
# 7. a file made by another user does not count as a crash
printf 'fdd-crash 1\nprogram \n' >"$run/fdd.crash"
# shellcheck disable=SC2086
start $null
[ "$(status 'd["last_crash"]')" = None ] || fail "a broken file is taken for a crash"
stop
ln -s /etc/passwd "$run/fdd.crash"
# shellcheck disable=SC2086
start $null
[ "$(status 'd["last_crash"]')" = None ] || fail "a link is followed"
stop
