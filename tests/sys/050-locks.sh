#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Another user who may enter the runtime folder can lock none of the files whose lock fdd
# or its worker needs; he can still see which daemon runs and which has a device.
. "$(dirname "$0")/lib.sh"
others || skip "needs root and setpriv"
command -v flock >/dev/null || skip "no flock"
unset XDG_RUNTIME_DIR # the folder of device locks is then in the runtime folder
owner=65533
cp -r "$DEMO" "$dir/model"
chmod -R a+rX "$dir/model"
mkdir -m 755 "$run" "$run/devices" # as tmpfiles.d/fdd.conf makes it
mkdir "$dir/cache"
chown $owner:$owner "$run" "$run/devices" "$dir/cache"
serve() {
    LD_LIBRARY_PATH=$dir/others setpriv --reuid $owner --regid $owner --clear-groups "$O_FDD" \
        --set daemon.runtime_dir="$run" --set daemon.worker="$O_WORKER" \
        --set daemon.cache_dir="$dir/cache" --set model.path="$dir/model" \
        --set device.backend=cpu --set device.list=cpu:1 --set kv.num_blocks=16 2>>"$dir/log" &
    fdd_pid=$!
    ctl --wait $((20 * slow)) ping >/dev/null 2>"$dir/ping" || fail "not ready: $(cat "$dir/ping")"
}
mode() { stat -c %a "$1"; }
other() { as_other "$O_FDCTL" --runtime-dir "$run" "$@"; }
locks=("$run/fdd.lock" "$run/devices/cpu-0")
see() { # as another user: who holds the locks, and whether they can be opened
    for f in "${locks[@]}"; do
        [ "$(mode "$f")" = 600 ] || fail "$f has mode $(mode "$f")"
        ! as_other flock -n -x "$f" true 2>/dev/null || fail "another user locks $f"
    done
    expect 0 other ls
    has "$out" " $fdd_pid "
    out=$(other doctor --json 2>&1)
    has "$out" "held by fdd \\(pid $fdd_pid, no instance, in $run\\)"
}
umask 022
serve
see
stop

# ---- not running: he cannot be first, also where the files are left of a version that
# let everybody open them; a lock on a file that he may read blocks no daemon
expect 0 other ls
has "$out" ' dead '
for f in "${locks[@]}"; do
    ! as_other flock -n -x "$f" true 2>/dev/null || fail "another user locks $f"
    chmod 644 "$f"
done
as_other flock -n -x "$run/fdd.pid" sleep $((60 * slow)) & holder=$!
as_other flock -n -x "$run/devices/cpu-0.holder" sleep $((60 * slow)) & holder2=$!
until_true 5 pgrep -P "$holder" || fail "no lock on fdd.pid"
until_true 5 pgrep -P "$holder2" || fail "no lock on the holder's file"
umask 077
serve
see
[ "$(mode "$run/fdd.pid")" = 644 ] || fail "fdd.pid has mode $(mode "$run/fdd.pid")"
kill "$holder" "$holder2"
chmod 700 "$run/devices"
out=$(other doctor --json 2>&1)
has "$out" '"devices","state":"info","value":"cannot be looked at'
chmod 755 "$run/devices"

# ---- a second daemon in the folder learns who is there
expect 73 setpriv --reuid $owner --regid $owner --clear-groups env LD_LIBRARY_PATH="$dir/others" \
    "$O_FDD" --set daemon.runtime_dir="$run" --set model.path=null --set device.backend=null
has "$out" "pid $fdd_pid"
stop
