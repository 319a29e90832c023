#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# 64 clients, random cancels and kills: one terminal event per accepted
# request, all blocks free at the end, no descriptors or memory kept.
. "$(dirname "$0")/lib.sh"
n=${FDD_SOAK:-3000}
[ -n "${FDD_SAN_RUN:-}" ] && n=600
start --set model.path=null --set device.backend=null --set ipc.connects_per_second=10000 \
    --set max_model_len=1024
ctl ping >/dev/null
fds=$(fds_of "$fdd_pid")
"$FDD_BUILD/tests/sys/soak" "$run/fdd.sock" 64 $((n / 10)) 1 200 >/dev/null || fail "warm-up"
sleep 0.3
rss=$(awk '/VmRSS/{print $2}' /proc/$fdd_pid/status)
out=$(timeout $((120 * slow)) "$FDD_BUILD/tests/sys/soak" "$run/fdd.sock" 64 "$n" "${SEED:-$$}" 200 2>&1) ||
    fail "soak: $out"
echo "$out"
quiet() { [ "$(ctl requests --json | json 'len(d["requests"])')" = 0 ]; }
until_true 10 quiet || fail "requests left: $(ctl requests)"
sleep 0.3
after=$(fds_of "$fdd_pid")
[ "$after" -le "$((fds + 1))" ] || fail "descriptors: $fds before, $after after"
rss2=$(awk '/VmRSS/{print $2}' /proc/$fdd_pid/status)
[ -n "${FDD_SAN_RUN:-}" ] || [ "$rss2" -le $((rss + 4096)) ] || fail "gate memory: $rss kB before, $rss2 kB after"
used=$(ctl stat -1 --json | json 'd["worker"]["kv_blocks_used"]')
[ "$used" = 0 ] || fail "$used KV blocks still in use"
expect 0 ctl debug selfcheck
stop
