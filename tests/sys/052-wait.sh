#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl --wait before there is a daemon: a daemon of the same user that starts meanwhile
# is found in $XDG_RUNTIME_DIR, although /run/fdd was the folder when fdctl began. Without
# a limit, fdctl waits for a daemon that answers late.
. "$(dirname "$0")/lib.sh"
mkdir -m 700 "$dir/xdg"
run=$dir/xdg/fdd
env -u FDD_SOCKET -u FDD_RUNTIME_DIR -u FDD_INSTANCE XDG_RUNTIME_DIR="$dir/xdg" \
    "$FDCTL" --wait $((20 * slow)) ping >"$dir/out" 2>&1 & p=$!
sleep 0.5
launch --set model.path=null --set device.backend=null
wait $p || fail "it waits elsewhere: $(cat "$dir/out")"
# --timeout 0: no limit, also for opening a session with a daemon that stands still
ctl ping --count 1 >/dev/null || fail "no answer"
kill -STOP "$fdd_pid"
ctl --timeout 0 ping >"$dir/out" 2>&1 & p=$!
sleep 6
kill -CONT "$fdd_pid"
wait $p || fail "--timeout 0 is a limit: $(cat "$dir/out")"
stop
