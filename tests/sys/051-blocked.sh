#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A worker that was ready cannot start again, since its model is missing: status shows
# what it waits for, since when, the number of tries and the fix. The service manager is
# told, the log has it once, and it serves when the model is back.
. "$(dirname "$0")/lib.sh"
cp -r "$DEMO" "$dir/model"
python3 - "$dir/notify" "$dir/told" <<'EOT' &
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(sys.argv[1])
out = open(sys.argv[2], "w", buffering=1)
while True: out.write(s.recv(65536).decode() + "\n")
EOT
manager=$!
trap 'rc=$?; kill $manager 2>/dev/null; (exit $rc); cleanup' EXIT
until_true 10 test -S "$dir/notify" || fail "no socket"
export NOTIFY_SOCKET=$dir/notify
start --set model.path="$dir/model" --set device.backend=cpu --set kv.num_blocks=16 \
    --set daemon.cache_dir="$dir/cache"
unset NOTIFY_SOCKET
get() { ctl status --json | json "$1"; }
tried() { [ "$(get '(d["worker"]["retry"] or {"tries": 0})["tries"]')" -ge "$1" ]; }
is() { [ "$(get "$1")" = "$2" ]; }
[ "$(get 'd["worker"]["retry"]')" = None ] || fail "blocked while it serves"

mv "$dir/model" "$dir/away"
expect 0 ctl debug kill-worker
until_true 30 tried 3 || fail "not tried 3 times: $(ctl status)"
[ "$(get 'd["state"]')" = blocked ] || fail "state: $(ctl status)"
until_true 10 is 'd["worker"]["phase"]' blocked || fail "phase: $(ctl status)"
ctl status --json >"$dir/status"
json '[d["worker"]["retry"][k] for k in ("waits_for", "exit_code")]' <"$dir/status" |
    grep -qxF "[\"the model's files\", 66]" || fail "$(cat "$dir/status")"
json '0 < d["worker"]["retry"]["since_ms"] < 60000 and 0 <= d["worker"]["retry"]["next_in_ms"] <= 10000' \
    <"$dir/status" | grep -qx True || fail "times: $(cat "$dir/status")"
expect 0 ctl status
has "$out" ', blocked, pid '
has "$out" "waits for the model's files since [0-9]+.*, tried [0-9]+ times, next in "
has "$out" "ls -ld $dir/model"
expect 0 ctl ls
has "$out" ' blocked '
expect 69 ctl --wait 0.5 ping
has "$out" "the worker is .*$dir/model"
expect 1 ctl doctor fdd
has "$out" "blocked, waits for the model's files, tried [0-9]+ times"
grep -q "^STATUS=blocked: the worker waits for the model's files since .*fix: ls -ld $dir/model" \
    "$dir/told" || fail "the service manager was told: $(cat "$dir/told")"

# logged once, not with each start, by the gate and by the workers
until_true 30 tried 5 || fail "not tried 5 times"
logged 1 'E fdd: supervise: worker 0 is blocked: it waits for the model' || fail "not said once"
logged 2 'supervise: worker 0 started' || fail "each start is logged" # the first, and the first that failed
[ "$(grep -c 'fdd-worker: .*No such file' "$dir/log")" -le 1 ] || fail "each worker says why"
[ "$(awk '/is blocked/ { on = 1; next } on' "$dir/log" | wc -l)" -le 3 ] || fail "the log goes on"

# a new cause is logged
mkdir "$dir/model"
until_true 30 logged 2 'is blocked: it waits for' || fail "another error is not told"
rmdir "$dir/model"

mv "$dir/away" "$dir/model"
ctl --wait $((30 * slow)) ping >/dev/null || fail "the model is back: $(ctl status)"
until_true 10 is 'd["state"]' running || fail "state: $(ctl status)"
[ "$(get 'd["worker"]["retry"]')" = None ] || fail "still blocked"
logged 1 'supervise: worker 0 starts again after [0-9]+ tries' || fail "its return is not logged"
logged 2 'I fdd-worker: worker: ready' || fail "the worker stays mute"
[ "$(grep '^STATUS=' "$dir/told" | tail -n 1)" = STATUS= ] || fail "status line: $(cat "$dir/told")"
expect 0 ctl generate -p 'In the' --max-tokens 2
stop
