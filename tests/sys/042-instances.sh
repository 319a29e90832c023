#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Several daemons on one machine: each has its folder, sockets, statistics and
# configuration; fdctl --instance selects one, fdctl ls lists them, even a killed one. A
# daemon that names the CPU as its device locks it for others.
. "$(dirname "$0")/lib.sh"
unset FDD_SOCKET FDD_INSTANCE RUNTIME_DIRECTORY XDG_RUNTIME_DIR
export FDD_RUNTIME_DIR=$run
pids=()
end_all() { [ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null; }
trap 'rc=$?; end_all; (exit $rc); cleanup' EXIT
instance() { # NAME [fdd arguments]: start and wait
    local name=$1; shift
    "$FDD" --instance "$name" --set daemon.worker="$WORKER" "$@" 2>>"$dir/log.$name" &
    pids+=($!)
    "$FDCTL" --instance "$name" --wait $((20 * slow)) ping >/dev/null 2>"$dir/ping" ||
        fail "instance $name: $(cat "$dir/ping" "$dir/log.$name")"
}
row() { # NAME FILTER: of fdctl ls
    "$FDCTL" ls --json | json "[x for x in d if x['name'] == '$1'][0]${2-}"
}

# ---- names: misuse first
for bad in devices fdd -x A a/b .. "" 'a b' abcdefghijklmnopqrstuvwxyz0123456; do
    expect 64 "$FDCTL" --instance="$bad" ping
    expect 64 "$FDD" --instance="$bad" --set model.path=null
    [ -z "$bad" ] || FDD_INSTANCE=$bad expect 64 "$FDCTL" ping
done
expect 64 "$FDCTL" --instance A/B ping
has "$out" 'A/B.*a-z 0-9'
expect 78 "$FDD" --instance nofile
has "$out" 'instance nofile has neither .*/fdd/nofile.ini nor a model.path'
[ ! -e "$run" ] || fail "a refused instance made $run"
expect 0 "$FDCTL" ls
[ -z "$out" ] || fail "ls of nothing: $out"
expect 0 "$FDCTL" ls --json
[ "$out" = "[]" ] || fail "ls --json of nothing: $out"
for what in ping "stat -1" trace; do
    # shellcheck disable=SC2086
    expect 69 "$FDCTL" --instance qwen $what
    has "$out" "systemctl start fdd@qwen"
    has "$out" "fdd --set daemon.runtime_dir=$run/qwen "
done

# ---- three at a time, independent of each other
printf '[model]\npath = null\nname = lamb\n' >"$dir/lamb.ini"
instance qwen --set model.path=null --set model.name=quail
instance lamb -c "$dir/lamb.ini"
launch_main() {
    "$FDD" --set daemon.worker="$WORKER" --set model.path=null --set model.name=main 2>>"$dir/log" &
    pids+=($!)
    "$FDCTL" --wait $((20 * slow)) ping >/dev/null || fail "no main daemon"
}
launch_main
for n in qwen lamb; do
    expect 0 "$FDCTL" --instance $n status --json
    [ "$(json 'd["instance"]' <<<"$out")" = $n ] || fail "status of $n: $out"
    [ "$(json 'd["socket"]' <<<"$out")" = "$run/$n/fdd.sock" ] || fail "socket of $n: $out"
done
[ "$("$FDCTL" --instance qwen status --json | json 'd["model"]["name"]')" = quail ] || fail "qwen's model"
[ "$("$FDCTL" --instance lamb status --json | json 'd["model"]["name"]')" = lamb ] || fail "lamb's model"
[ "$(FDD_INSTANCE=qwen "$FDCTL" status --json | json 'd["model"]["name"]')" = quail ] || fail "FDD_INSTANCE"
[ "$("$FDCTL" status --json | json 'd["model"]["name"]')" = main ] || fail "the one without a name"
[ "$("$FDCTL" --runtime-dir "$run" --instance lamb status --json | json 'd["model"]["name"]')" = lamb ] ||
    fail "--runtime-dir with --instance"
"$FDCTL" --instance qwen generate -p abc --max-tokens 4 >/dev/null || fail "generate"
of() { "$FDCTL" --instance "$1" stat -1 --json | json '(d["gate_pid"], d["model"])'; }
[ "$(of qwen)" = "(${pids[0]}, 'quail')" ] && [ "$(of lamb)" = "(${pids[1]}, 'lamb')" ] ||
    fail "two instances share their statistics: $(of qwen), $(of lamb)"

# ---- fdctl ls
expect 0 "$FDCTL" ls
has "$out" '^NAME +STATE +MODEL +PID +USER +DEVICE +SOCKET$'
[ "$(wc -l <<<"$out")" = 4 ] || fail "ls: $out"
has "$out" "^qwen +running +quail +${pids[0]} +$(id -un) +none +$run/qwen/fdd.sock\$"
has "$out" "^- +running +main "
expect 0 "$FDCTL" --runtime-dir "$run" ls
[ "$(wc -l <<<"$out")" = 4 ] || fail "ls of a folder: $out"
[ "$(XDG_RUNTIME_DIR=$dir "$FDCTL" ls | wc -l)" = 4 ] || fail "ls with an empty XDG_RUNTIME_DIR"
mkdir "$dir/xdg"; ln -s "$run" "$dir/xdg/fdd"
[ "$(XDG_RUNTIME_DIR=$dir/xdg "$FDCTL" ls | wc -l)" = 4 ] || fail "ls lists a folder twice"
[ "$(FDD_RUNTIME_DIR=$dir/none XDG_RUNTIME_DIR=$dir/xdg "$FDCTL" ls | wc -l)" = 4 ] || fail "ls of XDG_RUNTIME_DIR"

kill -KILL "${pids[1]}"; wait "${pids[1]}" 2>/dev/null
[ "$(row lamb '["state"]')" = dead ] || fail "a killed one is $(row lamb)"
[ "$(row lamb '["pid"]')" = None ] || fail "a killed one has a pid: $(row lamb)"
[ "$(row qwen '["state"]')" = running ] || fail "another one is $(row qwen)"
kill -STOP "${pids[0]}"
expect 0 "$FDCTL" --timeout 1 ls --json
kill -CONT "${pids[0]}"
[ "$(json '[x["state"] for x in d if x["name"] == "qwen"][0]' <<<"$out")" = "no answer" ] ||
    fail "a stopped process: $out"
# a socket unit listens, and listing does not start its daemon
mkdir "$run/asleep"
python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); s.listen(1)
s.settimeout(60 * int(sys.argv[2]))
try: s.accept(); open(sys.argv[3], "w")
except OSError: pass' "$run/asleep/fdd.sock" $slow "$dir/connected" & pids+=($!)
until_true 10 test -S "$run/asleep/fdd.sock"
asleep() { [ "$(row asleep '["state"]')" = "starts on use" ]; }
until_true 10 asleep || fail "a socket unit's: $(row asleep)"
[ ! -e "$dir/connected" ] || fail "ls connected to the client socket"
"$FDCTL" --instance qwen stop >/dev/null || fail "stop qwen"
wait "${pids[0]}" || fail "qwen exited $?"

# ---- one device, one daemon
end_all; wait "${pids[@]}" 2>/dev/null; pids=()
cpu=(--set model.path=null --set device.list=cpu:1)
instance one "${cpu[@]}"
[ "$(row one '["device"]')" = cpu-0 ] || fail "device: $(row one)"
expect 78 timeout $((30 * slow)) "$FDD" --instance two --set daemon.worker="$WORKER" "${cpu[@]}"
has "$out" "device cpu-0 is taken by another fdd \(pid ${pids[0]}, instance one, in $run/one\)"
has "$out" "fdctl --runtime-dir $run/one stop"
has "$out" "device.shared = yes"
expect 78 timeout $((30 * slow)) "$FDD" --instance two --set daemon.worker="$WORKER" "${cpu[@]}" --set device.shared=yes
has "$out" "taken by .*yes there too"
# a daemon that does not name the device is not affected, and an end releases it
instance three --set model.path=null
# also the end of only the worker: the next one takes it again
"$FDCTL" --instance one debug kill-worker >/dev/null
again() { "$FDCTL" --instance one status --json | json '(d["worker"]["phase"] == "ready" and d["worker"]["starts"] == 2) or 1/0'; }
until_true 20 again || fail "the next worker did not get its device: $(cat "$dir/log.one")"
kill -KILL "${pids[0]}"; wait "${pids[0]}" 2>/dev/null
instance two "${cpu[@]}" --set device.shared=yes
instance four "${cpu[@]}" --set device.shared=yes
expect 78 timeout $((30 * slow)) "$FDD" --instance five --set daemon.worker="$WORKER" "${cpu[@]}"
has "$out" "yes for both"
end_all; wait "${pids[@]}" 2>/dev/null; pids=()

# ---- errors of device.list, before anything is started
while IFS='|' read -r list want; do
    expect 78 "$FDD" --check-config --set device.list="$list"
    has "$out" "device.list: .*$want"
done <<'EOT'
tpu:0|"tpu" is no kind of device
cuda:99|the number is too large
cuda:0,cuda:0|same device is listed before
cuda:0,,cuda:1|empty entry
cuda:0,cpu:1|another kind
cuda:GPU-1a|too short
cuda:GPU-1x2y3z|hex digit
cuda:0,cuda:1|parallel.tensor_parallel_size = 1 uses one
cpu:4|parallel.tensor_parallel_size = 1 uses one
0|write cuda:0
EOT
expect 78 "$FDD" --check-config --set device.list=cuda:0 --set device.backend=cpu
has "$out" 'does not fit device.backend = cpu'
for list in cuda:0 cuda:GPU-1a2b3c GPU-1a2b3c MIG-1a2b3c 'cuda:*' cpu:1 ''; do
    expect 0 "$FDD" --check-config --set model.path=null --set device.list="$list"
done

# ---- the model on the second of two entries, while the first fails every call
expect 78 "$FDD" --check-config --set device.list=cpu:2 --set device.test_entry=2
has "$out" 'has 2 entries, counted from 0, and device.test_entry = 2 is none of them'
instance two --set model.path="$FDD_SRC/conf/models/demo" --set device.list=cpu:2 --set device.test_entry=1
expect 0 "$FDCTL" --instance two status --json
json '[(x["device"], x["rank"]) for x in d["worker"]["devices"]] == [("cpu-0", None), ("cpu-1", 0)] and
    d["worker"]["device"] == "cpu-1" or 1/0' <<<"$out" >/dev/null || fail "devices: $out"
expect 0 "$FDCTL" --instance two memory
has "$out" 'cpu-1'
expect 0 "$FDCTL" --instance two generate --max-tokens 4 -p 'In the beginning'
grep -q 'load: device cpu-0, not used' "$dir/log.two" || fail "which device: $(cat "$dir/log.two")"
end_all; wait "${pids[@]}" 2>/dev/null; pids=()

# ---- the units: an instance's differ from the daemon's only in the name
units=$FDD_BUILD/conf
at=$units/fdd-at.service.out
[ -e "$at" ] || make -s -C "$FDD_BUILD" conf/fdd-at.service.out conf/fdd-at.socket.out || fail "no units"
diff <(sed 's/, instance %i$//; s/ --instance %i//; s/@%i\.socket/.socket/g; s#=fdd/%i$#=fdd#
    /^ReadWritePaths=-.run.fdd.devices$/d' "$at") "$units/fdd.service.out" ||
    fail "fdd@.service differs from fdd.service in more than the name"
for want in 'ExecStart=.*fdd --instance %i' 'RuntimeDirectory=fdd/%i' 'CacheDirectory=fdd/%i' \
    'Requires=fdd@%i.socket' 'Also=fdd@%i.socket' 'ReadWritePaths=-/run/fdd/devices'; do
    grep -qE "^$want( |\$)" "$at" || fail "fdd@.service has no $want"
done
grep -qx 'ListenSequentialPacket=/run/fdd/%i/fdd.sock' "$units/fdd-at.socket.out" ||
    fail "fdd@.socket listens elsewhere"
grep -q '^d /run/fdd/devices ' "$FDD_SRC/conf/tmpfiles.d/fdd.conf" || fail "nothing makes /run/fdd/devices"
