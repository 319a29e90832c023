#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl --wait before there is a daemon: a daemon of the same user that starts meanwhile
# is found in $XDG_RUNTIME_DIR, although /run/fdd was the folder when fdctl began.
. "$(dirname "$0")/lib.sh"
mkdir -m 700 "$dir/xdg"
run=$dir/xdg/fdd
env -u FDD_SOCKET -u FDD_RUNTIME_DIR -u FDD_INSTANCE XDG_RUNTIME_DIR="$dir/xdg" \
    "$FDCTL" --wait $((20 * slow)) ping >"$dir/out" 2>&1 & p=$!
sleep 0.5
launch --set model.path=null --set device.backend=null
wait $p || fail "it waits elsewhere: $(cat "$dir/out")"
stop
