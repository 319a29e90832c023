#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl doctor with and without a daemon, fdctl memory, and --wait with a daemon
# that ends or fails.
. "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$dir/cache HOME=$dir
mkdir "$dir/cache"

# every group, in order; the exit code is that of the worst check
doctor() { # RC is in $rc, the report in $out
    out=$(timeout $((60 * slow)) "$FDCTL" --runtime-dir "$run" doctor "$@" 2>&1); rc=$?
}
check() { # EXPRESSION over c, the checks by group and name
    printf '%s' "$out" | json '(lambda c: '"$1"')({(k["group"], k["name"]): k
        for k in d["checks"]})' | grep -qx True || fail "not so: $1: $out"
}
doctor
[ $rc -le 1 ] || fail "exit $rc: $out"
for g in system limits io_uring memory gpu fdd; do
    has "$(printf '%s\n' "$out" | grep -x "$g")" "$g"
done
has "$out" 'none runs in '
has "$out" '[0-9]+ ok, [0-9]+ info, [0-9]+ warnings, [0-9]+ errors'
printf '%s\n' "$out" | grep -q 'no answer within\|ended by' && fail "a group did not end: $out"
doctor --json
check 'd["worst"] in ("ok", "info") and '$rc' == 0 or d["worst"] in ("warning", "error") and '$rc' == 1'
check 'all(k["state"] in ("ok", "info", "warning", "error") and (k["fix"] == "") == (k["state"] == "ok")
    and k["value"] for k in d["checks"])'
check 'len({k["group"] for k in d["checks"]}) == 6'
check 'c["memory", "held by"]["data"]["processes"][0]["bytes"] > 0'
doctor --json fdd
check '{k["group"] for k in d["checks"]} == {"fdd"}'
check 'c["fdd", "daemon"]["state"] == "info" and c["fdd", "runtime folder"]["state"] == "info"'
doctor -q --json system limits
check 'not [k for k in d["checks"] if k["state"] == "ok"]'
doctor --json fdd memory --model "$dir/nowhere"
[ $rc = 1 ] || fail "exit $rc for a model that is not there"
check 'c["fdd", "model"]["state"] == "error" and "nowhere" in c["fdd", "model"]["value"]'
expect 64 ctl doctor limit
has "$out" "unknown group 'limit'; known: system limits io_uring memory gpu fdd"
expect 66 ctl doctor -c "$dir/nothere.ini"
has "$out" 'nothere\.ini'
printf '[model]\npath = %s\n' "$DEMO" >"$dir/some.ini"
doctor --json -c "$dir/some.ini" fdd
check '"some.ini" in c["fdd", "model"]["value"]'
# the worker makes the cache folder and its parent, no more
for d in new/cache:ok far/new/cache:warning; do
    printf '[model]\npath = %s\n[daemon]\ncache_dir = %s/%s\n' "$DEMO" "$dir" "${d%:*}" >"$dir/some.ini"
    doctor --json -c "$dir/some.ini" fdd
    check 'c["fdd", "cache folder"]["state"] == "'"${d#*:}"'"'
done
expect 0 ctl doctor --help
has "$out" 'io_uring'

# with a daemon: its parameters, its limits, its worker
start --set model.path=null --set device.backend=null --set ipc.max_clients=7
doctor --json fdd limits
check 'c["fdd", "daemon"]["state"] == "ok" and "running" in c["fdd", "daemon"]["value"]'
check 'c["fdd", "worker"]["state"] == "ok" and "ready" in c["fdd", "worker"]["value"]'
check 'c["fdd", "client socket"]["state"] == "ok" and c["fdd", "admin socket"]["state"] == "ok"'
check '"of the daemon, pid '"$fdd_pid"'" in c["limits", "nofile"]["value"] and
    c["limits", "nofile"]["data"]["wanted"] == 348'
check '("fdd", "worker deaths") not in c'
# a file to check instead of the daemon's: nothing of the daemon's parameters
echo '[log]' >"$dir/empty.ini"
doctor --json -c "$dir/empty.ini" fdd limits
check 'c["fdd", "daemon"]["state"] == "ok" and "none is named" in c["fdd", "model"]["value"]'
check 'c["limits", "nofile"]["data"]["wanted"] > 348'
# a state that waiting does not end
ctl pause >/dev/null || fail "no pause"
doctor --json fdd
check '"paused" in c["fdd", "daemon"]["value"] and "fdctl pause --off" in c["fdd", "daemon"]["fix"]'
ctl pause --off >/dev/null || fail "no end of the pause"
kill -KILL "$(pgrep -P "$fdd_pid" | head -n 1)"
died() { [ "$(ctl status --json | json 'd["worker"]["deaths"]')" = 1 ]; }
until_true 20 died || fail "the worker's death is not counted"
expect 0 ctl --wait $((20 * slow)) ping
doctor --json fdd
check 'c["fdd", "worker deaths"]["state"] == "warning" and
    c["fdd", "worker deaths"]["data"]["deaths"] == 1'

# a model path relative to the daemon's folder, with fdctl run in another one
if [ -e "$DEMO/model.safetensors" ]; then
    stop
    from=$PWD
    cd "$DEMO/.." || fail "no $DEMO/.."
    start --set model.path="$(basename "$DEMO")"
    cd "$dir" || fail "no $dir"
    doctor --json fdd memory
    check 'c["fdd", "model"]["state"] == "ok" and c["memory", "model"]["data"]["files"] == 1'
    stop
    cd "$from" || fail "no $from"
    start --set model.path=null --set device.backend=null
fi

# memory: sums for each place equal those of the rows, names are those of parameters
ctl memory --json >"$dir/memory" || fail "fdctl memory"
json 'all(p["bytes"] == sum(r["bytes"] for r in d["rows"] if r["where"] == p["where"]) and
    p["in_use"] == sum(r["in_use"] for r in d["rows"] if r["where"] == p["where"]) and
    p["free"] == p["bytes"] - p["in_use"] for p in d["places"]) and
    [p["place"] for p in d["places"]] == [d["devices"][0]["device"], "host"] and
    d["devices"][0]["device"] in ("none", "cpu-1") and
    d["places"][0]["bytes"] == d["device_bytes"] and
    d["places"][1]["bytes"] == d["host_bytes"] and
    d["places"][0]["headroom"] == max(0, d["limit_bytes"] - d["device_bytes"])' <"$dir/memory" |
    grep -qx True || fail "places: $(cat "$dir/memory")"
json 'd["blocks"]["dtype"] in ("fp32", "bf16", "fp8", "int8")' <"$dir/memory" |
    grep -qx True || fail "dtype: $(cat "$dir/memory")"
expect 0 ctl memory
has "$out" '^(none|cpu-1)'
has "$out" 'planned +in use +free +share'
has "$out" 'used +0 +0 B'
expect 64 ctl memory all
has "$out" "unexpected 'all'"

# --wait: a daemon that is stopped while its worker does not get ready
stop
printf '#!/bin/sh\nexec sleep 1000\n' >"$dir/slow"; chmod +x "$dir/slow"
launch --set model.path=null --set daemon.worker="$dir/slow"
ctl --wait 300 ping >"$dir/wait" 2>&1 &
w=$!
until_true 20 ctl status || fail "no daemon"
sleep $slow
kill -KILL "$fdd_pid"; wait "$fdd_pid" 2>/dev/null; fdd_pid=
wait $w; rc=$?
[ $rc = 69 ] || fail "exit $rc of --wait for a daemon that was killed: $(cat "$dir/wait")"
has "$(cat "$dir/wait")" 'ended before it was ready'

# its lock and sockets are still there: it still waits for the next daemon
[ -e "$run/fdd.lock" ] || fail "no lock is left"
doctor --json fdd
check 'c["fdd", "daemon"]["state"] == "info"'
ctl --wait $((60 * slow)) ping >"$dir/wait" 2>&1 &
w=$!
sleep 1
kill -0 $w || fail "--wait gave up on a daemon that is not yet started: $(cat "$dir/wait")"
launch --set model.path=null --set device.backend=null
wait $w || fail "--wait: $(cat "$dir/wait")"
stop

# a daemon that fails for good at its start: it prints the reason and does not wait
ctl --wait 300 ping >"$dir/wait" 2>&1 &
w=$!
sleep $slow
expect 66 timeout $((60 * slow)) "$FDD" --set daemon.runtime_dir="$run" \
    --set daemon.worker="$WORKER" --set model.path="$dir/nowhere"
wait $w; rc=$?
[ $rc = 69 ] || fail "exit $rc of --wait for a model that is not there: $(cat "$dir/wait")"
has "$(cat "$dir/wait")" 'nowhere|ended before it was ready'

# one whose worker dies at every start
printf '#!/bin/sh\nexit 3\n' >"$dir/bad"; chmod +x "$dir/bad"
ctl --wait 300 ping >"$dir/wait" 2>&1 &
w=$!
launch --set daemon.worker="$dir/bad" --set model.path=null --set daemon.crash_max=2
wait $w; rc=$?
[ $rc = 69 ] || fail "exit $rc of --wait for a worker that dies: $(cat "$dir/wait")"
wait "$fdd_pid"; rc=$?; fdd_pid=
[ $rc = 75 ] || fail "fdd exited $rc instead of 75"

# no daemon starts: the time runs out
expect 69 ctl --wait 1 ping
has "$out" 'not ready after 1 s'

# a socket that accepts connections and never answers, like that of a service manager
python3 -c 'import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
if os.path.exists(sys.argv[1]): os.unlink(sys.argv[1])
s.bind(sys.argv[1]); s.listen(64); time.sleep(600)' "$run/admin.sock" &
p=$!
until_true 20 test -S "$run/admin.sock" || fail "no socket"
expect 69 timeout 25 "$FDCTL" --runtime-dir "$run" --wait 1 ping
has "$out" 'not ready after 1 s'
kill $p; wait $p 2>/dev/null
exit 0
