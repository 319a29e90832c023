#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Room that others leave. A request that waits for room in the session to fdd is sent when
# clients with streams disconnect. A gateway without a descriptor for a connection does
# not spin, and accepts it when one is free.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.backend=null --set device.step_delay_us=20000 --set sched.max_inflight_per_client=4
gateway
py "$gw/room.py" waits || fail "waiting: see above"
gateway_stop
(ulimit -n 80 && exec "$HTTP" -c /dev/null --set http.port=0 --set http.max_per_address=400 --set daemon.socket="$run/fdd.sock") 2>"$dir/http.log" &
http_pid=$!
until_true 10 grep -q "listening on http" "$dir/http.log" || fail "fdd-http: $(cat "$dir/http.log")"
port=$(sed -nE 's/.*listening on http:\/\/[^ ]*:([0-9]+)$/\1/p' "$dir/http.log" | tail -n 1)
export FDD_HTTP_PORT=$port FDD_HTTP_PID=$http_pid
until_true 20 curl -fsS "http://127.0.0.1:$port/health" >/dev/null || fail "not healthy"
py "$gw/room.py" descriptors || fail "descriptors: see above"
gateway_stop
stop
