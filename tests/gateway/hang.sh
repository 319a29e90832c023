#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A hanging daemon is reported: /ping and /health are 503 while its worker has requests
# but makes no step, or while its gate is stopped, and 200 after that. A worker without
# requests makes no steps and is healthy.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.step_delay_us=20000 --set daemon.worker_hang_ms=0
worker=$(pgrep -P "$fdd_pid" | head -n 1)
[ -n "$worker" ] || fail "no worker"
trap 'rc=$?; kill -CONT "$worker" "$fdd_pid" 2>/dev/null; (exit $rc); gateway_end' EXIT
gateway --set http.max_step_age_ms=1000
ping_is() { [ "$(curl -sS --max-time 5 -o "$dir/ping" -w '%{http_code}' "$url/ping")" = "$1" ]; }
for _ in 1 2 3 4 5; do # no request: no step is due
    ping_is 200 || fail "without requests: $(cat "$dir/ping")"
    sleep 0.5
done
curl -sSN --max-time $((120 * slow)) "$url/v1/completions" -H 'Content-Type: application/json' \
    -d '{"prompt":"ab","max_tokens":400,"ignore_eos":true,"stream":true}' >"$dir/stream" &
streaming=$!
until_true 10 grep -q '"text"' "$dir/stream" || fail "no stream"
for _ in 1 2 3; do
    ping_is 200 || fail "a worker that makes steps: $(cat "$dir/ping")"
    sleep 0.5
done
kill -STOP "$worker"
until_true 10 ping_is 503 || fail "a worker that hangs does not show"
has "$(cat "$dir/ping")" '"code":"worker_still"'
[ "$(curl -sS -o /dev/null -w '%{http_code}' "$url/health")" = 503 ] || fail "healthy, but pings do not come through"
kill -CONT "$worker"
until_true 10 ping_is 200 || fail "a worker that goes on: $(cat "$dir/ping")"
wait $streaming || fail "the stream: curl $?"
kill -STOP "$fdd_pid"
still() { ping_is 503 && grep -q '"code":"daemon_still"' "$dir/ping"; }
until_true 15 still || fail "a gate that stands still does not show: $(cat "$dir/ping")"
kill -CONT "$fdd_pid"
until_true 15 ping_is 200 || fail "a gate that goes on: $(cat "$dir/ping")"
gateway_stop
stop
