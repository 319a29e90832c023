#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G22: /metrics has all metrics that vLLM's dashboard reads, by vLLM's names, besides
# those of fdd and of the gateway. promtool accepts it. Without fdd's counters only the
# gateway's are there.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
py "$gw/g22_metrics.py" || fail "see above"
if command -v promtool >/dev/null; then
    # names with a colon are vLLM's; the linter keeps them for rules
    curl -fsS "$url/metrics" | grep -v 'vllm:' | promtool check metrics >"$dir/promtool" 2>&1 ||
        fail "promtool: $(head -n 20 "$dir/promtool")"
    curl -fsS "$url/metrics" | promtool check metrics >"$dir/promtool" 2>&1
    ! grep -vE "metric names should not contain ':'|^vllm:|^\s*$" "$dir/promtool" || fail "promtool: see above"
fi
stop
until_true 10 sh -c "curl -s $url/metrics | grep -q '^fdd_http_daemon_metrics 0'" || fail "counters of a daemon that has ended"
curl -fsS "$url/metrics" | grep -q '^http_requests_total' || fail "the gateway's own are missing"
! curl -fsS "$url/metrics" | grep -q '^vllm:' || fail "old counters are shown"
gateway_stop
