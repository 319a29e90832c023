#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl up: one command to serve a model, with HTTP; it ends when the processes that it
# started end, and reports why if they fail.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
command -v curl >/dev/null || skip "no curl"
command -v python3 >/dev/null || skip "no python3"
export XDG_RUNTIME_DIR=$dir
port=$(free_port)
sets=(--set daemon.worker="$WORKER" --set daemon.cache_dir="$dir/cache")
up=
for sig in INT TERM HUP; do
    # not "&" alone: a shell's background jobs ignore SIGINT
    python3 -c 'import os, signal, sys; [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)]; os.execv(sys.argv[1], sys.argv[1:])' \
        "$FDCTL" up "$DEMO" --http "$port" "${sets[@]}" >"$dir/up" 2>>"$dir/log" &
    up=$!
    until_true 30 curl -fsS "http://127.0.0.1:$port/health" || fail "not up: $(cat "$dir/up" "$dir/log")"
    home=$(ls -d "$dir"/fdd-up.*)
    [ "$(stat -c %a "$home")" = 700 ] || fail "others may enter $home"
    cmd=$(sed -nE 's/^ +fdctl (.*generate.*)$/\1/p' "$dir/up")
    [ -n "$cmd" ] || fail "it does not say how to reach it: $(cat "$dir/up")"
    eval "'$FDCTL' $cmd --max-tokens 4" >"$dir/text" || fail "generate: $(cat "$dir/text")"
    pids=$(pgrep -P "$up" | tr '\n' ' ')
    [ "$(echo "$pids" | wc -w)" = 2 ] || fail "its children: $pids"
    kill -$sig "$up"
    wait "$up" || fail "exit $? on SIG$sig"
    for p in $pids; do ! kill -0 "$p" 2>/dev/null || fail "$p is left"; done
    ! ls -d "$dir"/fdd-up.* 2>/dev/null || fail "its folder is left"
done
# while a model is loading
printf '#!/bin/sh\nexec sleep 60\n' >"$dir/slow"
chmod +x "$dir/slow"
"$FDCTL" up "$DEMO" --set daemon.worker="$dir/slow" >"$dir/up" 2>&1 &
up=$!
until_true 10 sh -c "ls '$dir'/fdd-up.*/fdd.sock" || fail "no daemon: $(cat "$dir/up")"
kill -TERM "$up"
wait "$up"
[ $? = 130 ] || fail "SIGTERM while loading: $(cat "$dir/up")"
grep -q "loading $DEMO" "$dir/up" || fail "it does not say what it does: $(cat "$dir/up")"
! ls -d "$dir"/fdd-up.* 2>/dev/null || fail "its folder is left"
# starts that fail
expect 66 "$FDCTL" up "$dir/nothing"
expect 64 "$FDCTL" up
expect 64 "$FDCTL" up "$DEMO" --set x
expect 64 "$FDCTL" up "$DEMO" --set daemon.runtime_dir="$dir/other"
expect 64 "$FDCTL" up "$DEMO" --set model.path="$DEMO"
expect 64 "$FDCTL" up "$DEMO" --http 0
mkdir "$dir/empty"
timeout $((60 * slow)) "$FDCTL" up "$dir/empty" "${sets[@]}" >"$dir/out" 2>&1 && fail "an empty folder is a model"
[ $? != 124 ] || fail "it waits for a model that is none: $(cat "$dir/out")"
! ls -d "$dir"/fdd-up.* 2>/dev/null || fail "its folder is left"
# a daemon that ends before it has a pid file
expect 69 timeout $((20 * slow)) "$FDCTL" up "$DEMO" "${sets[@]}" --set sched.no_such=1
has "$out" "unknown parameter"
! ls -d "$dir"/fdd-up.* 2>/dev/null || fail "its folder is left"
# the gateway's port is in use: everything ends
python3 -c 'import socket, sys, time; s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); print("taken", flush=True); time.sleep(600)' "$port" >"$dir/taken" &
taken=$!
until_true 20 grep -q taken "$dir/taken" || fail "the port $port cannot be taken"
expect 69 timeout $((60 * slow)) "$FDCTL" up "$DEMO" --http "$port" "${sets[@]}"
has "$out" "127.0.0.1:$port cannot be listened at: Address already in use"
! printf '%s' "$out" | grep -q loading || fail "a model is loaded for a port that is taken"
kill "$taken"
