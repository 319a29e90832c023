#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Every fdctl command gives an answer, as text and as JSON; wrong arguments get a hint.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.backend=null
for c in status 'stat -1' requests clients config model memory program; do
    # shellcheck disable=SC2086
    expect 0 ctl $c
    [ -n "$out" ] || fail "fdctl $c prints nothing"
    # shellcheck disable=SC2086
    expect 0 ctl $c --json
    echo "$out" | json 'd' >/dev/null || fail "fdctl $c --json is not JSON: $out"
done
for c in status stat generate tokenize detokenize requests cancel clients config model memory program \
    drain stop debug; do
    expect 0 ctl $c --help
    has "$out" "$c"
done
# Completion offers every command.
expect 0 ctl help
for c in $(printf '%s\n' "$out" | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    grep -qE "^\.It Cm $c( |\$)" "$FDD_SRC/tools/fdctl.1" || fail "fdctl(1) has no fdctl $c"
done
expect 0 ctl status
has "$out" '0 queued \(0 tokens\)'
expect 64 ctl statsu
has "$out" 'status'
expect 64 ctl generate --max-token 3
expect 0 ctl config sched.max_num_seqs
has "$out" 256
expect 0 ctl set log.level=debug
expect 0 ctl config log.level
has "$out" debug
ctl set sched.max_num_seqs=3 >/dev/null 2>&1 && fail "a restart parameter was set while running"
printf '[log]\nlevel = warn\n' >"$dir/x.ini"
stop
start -c "$dir/x.ini" --set model.path=null --set device.backend=null
printf '[log]\nlevel = info\n' >"$dir/x.ini"
kill -HUP "$fdd_pid"
until_true 5 sh -c "'$FDCTL' --runtime-dir '$run' config log.level | grep -q info" || fail "SIGHUP did not reload"
printf '[log]\nlevel = nonsense\n' >"$dir/x.ini"
kill -HUP "$fdd_pid"
sleep 0.3
expect 0 ctl config log.level
has "$out" info
until_true 10 grep -q 'nonsense' "$dir/log" || fail "bad reload is not logged"
# cancel by id
echo '[5,6,7]' >"$dir/ids"
# Regression: commands that print a table reported success with output to a full disk.
[ ! -e /dev/full ] || expect 74 eval 'ctl status >/dev/full'
# Regression: with a closed standard output, generated text went into the client socket.
expect 74 eval 'ctl generate --ids-file "$dir/ids" --max-tokens 4 >&-'
has "$out" "standard output"
expect 0 ctl drain
stop
# The same in the daemon: log lines must not reach a descriptor of its own.
"$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" \
    --set model.path=null --set device.backend=null <&- >&- 2>&- &
fdd_pid=$!
expect 0 ctl --wait 20 generate --ids-file "$dir/ids" --max-tokens 4
stop
# slow enough that the requests are still there when they are asked for
start --set model.path=null --set device.backend=null --set device.step_delay_us=2000
ctl generate --ids-file "$dir/ids" --max-tokens 60000 --ignore-eos --n-requests 32 --json >"$dir/out" 2>&1 &
g=$!
id=
for i in $(seq 100); do
    id=$(ctl requests --json | json 'd["requests"][0]["id"] if d["requests"] else ""')
    [ -n "$id" ] && break
    sleep 0.05
done
[ -n "$id" ] || fail "request not listed"
# one that has ended meanwhile keeps none of the others
ended=(9000001 9000002 9000003 9000004 9000005 9000006 9000007 9000008 9000009)
expect 65 ctl cancel "${ended[@]}" "${ended[@]}" "$id"
has "$out" 'no open request has id 9000001'
has "$out" '1 cancelled'
expect 64 ctl cancel "$id" x
expect 0 ctl cancel --all
wait $g
grep -qE '"cancelled"|E_CANCELLED' "$dir/out" || fail "nothing cancelled: $(head -c 600 "$dir/out")"
# Regression: with --retry a client of a daemon that had ended retried for ever.
ctl generate --ids-file "$dir/ids" --max-tokens 60000 --ignore-eos --n-requests 200 --concurrency 8 \
    --retry 1000 --json >"$dir/out" 2>&1 &
g=$!
until_true 20 eval 'ctl requests --json | grep -q "\"id\""' || fail "no request runs"
expect 0 ctl stop --now
until_true 20 eval '! kill -0 $g 2>/dev/null' || fail "fdctl generate --retry goes on without a daemon"
wait $g; [ $? != 0 ] || fail "all well without a daemon"
wait "$fdd_pid"; rc=$?; fdd_pid=
[ $rc = 0 ] || fail "fdctl stop: fdd exited $rc"
