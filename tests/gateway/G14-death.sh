#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G14: worker or daemon is killed while streams run: each stream gets the same tokens in
# the end, or an error event; then new requests are answered.
. "$(dirname "$0")/lib.sh"
n=$(few 32 8)
start --set model.path="$DEMO" --set device.step_delay_us=3000
gateway
worker=$(pgrep -P "$fdd_pid" | head -n 1)
[ -n "$worker" ] || fail "no worker"
py "$gw/g14_death.py" "$worker" "$n" || fail "worker: see above"
until_true 30 curl -fsS "$url/health" || fail "not healthy after the worker's death"
has "$(post /v1/completions '{"prompt":"a","max_tokens":2}')" '"usage"'

# the daemon: another one is started meanwhile, as by a service manager
old=$fdd_pid
py "$gw/g14_death.py" "$old" "$n" >"$dir/death" 2>&1 &
job=$!
until_true 60 sh -c "! kill -0 $old" || fail "not killed: $(cat "$dir/death")"
wait "$old" 2>/dev/null
launch --set model.path="$DEMO" --set device.step_delay_us=3000
wait $job || fail "daemon: $(cat "$dir/death")"
cat "$dir/death"
until_true 30 curl -fsS "$url/health" || fail "not healthy after the daemon's death"
has "$(post /v1/completions '{"prompt":"a","max_tokens":2}')" '"usage"'
gateway_stop
stop
