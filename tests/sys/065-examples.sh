#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The programs of examples/ compile as their comments say. They answer two prompts at a
# time, interleaved, each as fdctl answers it. Without a daemon, or if it dies, they end
# with a message. Their loops use no CPU time while nothing arrives.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/python/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build: a program would need the sanitizer too"
[ -e "$FDD_BUILD/libclient/.libs/libfdclient.so" ] || skip "no shared library in $FDD_BUILD"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
command -v pkg-config >/dev/null || skip "no pkg-config"

cp -R "$FDD_SRC/examples" "$dir/examples" && cd "$dir/examples" || fail "cp"
export PKG_CONFIG_PATH=$FDD_BUILD FDD_SOCKET=$run/fdd.sock
programs=
for p in epoll libuv glib; do
    line=$(sed -n "s/^ \*   \(cc -o $p .*\)/\1/p" $p.c)
    [ -n "$line" ] || fail "$p.c does not say how it is compiled"
    modules=$(expr "$line" : '.*--libs \([^)]*\))')
    # shellcheck disable=SC2086
    pkg-config --exists $modules 2>/dev/null || { echo "no $modules: without $p"; missing=yes; continue; }
    eval "${line/cc /cc -Wall -Wextra -Werror }" >"$dir/out" 2>&1 || fail "$line: $(cat "$dir/out")"
    programs="$programs ./$p"
done
if (have_python) >/dev/null; then
    have_python
    programs="$programs ./asyncio_answers.py"
else
    echo "no python3 for the library: without asyncio_answers.py"; missing=yes
fi

start --set model.path="$DEMO" --set device.step_delay_us=4000
one='In the beginning' two='And he said'
greedy() { ctl generate -p "$1" --max-tokens 40 --temperature 0; }
want_one=$(greedy "$one") want_two=$(greedy "$two")
# as the programs print it: the prompt, a colon and a piece in each line
answer() { sed -n "s/^$1://p" "$dir/out" | tr -d '\n'; }
for p in $programs; do
    timeout -k 5 $((60 * slow)) "$p" "$one" "$two" >"$dir/out" 2>"$dir/err" ||
        fail "$p: exit $?: $(cat "$dir/err")"
    [ "$(answer "$one")" = "$(printf %s "$want_one" | tr -d '\n')" ] || fail "$p: $(answer "$one")"
    [ "$(answer "$two")" = "$(printf %s "$want_two" | tr -d '\n')" ] || fail "$p: $(answer "$two")"
    # answers at the same time are interleaved
    turns=$(sed 's/:.*//' "$dir/out" | uniq | wc -l)
    [ "$turns" -gt 8 ] || fail "$p: one answer after the other, $turns turns"
    expect 0 timeout 10 "$p"
    # a refusal gives a sentence and an exit code
    long=$(printf 'x %.0s' $(seq 1100))
    expect 1 timeout 10 "$p" "$long"
    has "$out" 'E_TOO_LONG: '
    expect 1 env FDD_SOCKET="$dir/none.sock" "$p" x
    has "$out" "$dir/none.sock: No such file or directory"
done
stop

# A stopped program goes on where it was (Ctrl-Z and fg): epoll_wait() then fails with EINTR.
start --set model.path="$DEMO" --set device.step_delay_us=30000
for p in $programs; do
    : >"$dir/out"
    "$p" "$one" >"$dir/out" 2>"$dir/err" &
    pid=$!
    until_true 30 grep -q : "$dir/out" || fail "$p prints nothing: $(cat "$dir/err")"
    kill -STOP $pid; sleep 0.1; kill -CONT $pid
    wait $pid || fail "$p: exit $? after it was stopped: $(cat "$dir/err")"
    [ "$(answer "$one")" = "$(printf %s "$want_one" | tr -d '\n')" ] || fail "$p, stopped: $(answer "$one")"
done
stop

# a model that needs half a second for a step: a waiting program uses no CPU time
start --set model.path="$DEMO" --set device.step_delay_us=500000
cpu() { awk '{ print $14 + $15 }' "/proc/$1/stat"; } # ticks of 10 ms
begun() { grep -q : "$dir/out"; }
for p in $programs; do
    : >"$dir/out"
    "$p" "$one" "$two" >"$dir/out" 2>"$dir/err" &
    pid=$!
    until_true 30 begun || fail "$p prints nothing: $(cat "$dir/err")"
    t=$(cpu $pid); sleep 1.5; t=$(($(cpu $pid) - t))
    [ $t -lt 30 ] || fail "$p used $t ticks of the processor while it waited for 1.5 s"
    kill $pid; wait $pid 2>/dev/null
done
for p in $programs; do
    : >"$dir/out"
    "$p" "$one" >"$dir/out" 2>"$dir/err" &
    pid=$!
    until_true 30 begun || fail "$p prints nothing: $(cat "$dir/err")"
    kill -KILL "$fdd_pid"; wait "$fdd_pid" 2>/dev/null
    wait $pid; rc=$?
    [ $rc = 1 ] || fail "$p: exit $rc when the daemon dies"
    has "$(cat "$dir/err")" 'E_DISCONNECTED'
    start --set model.path="$DEMO" --set device.step_delay_us=500000
done
kill -KILL "$fdd_pid"; wait "$fdd_pid" 2>/dev/null
fdd_pid=
[ -z "${missing:-}" ] || skip "not all examples ran, see above"
