#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Minutes of mixed load on a GPU at 90 % memory use, in deterministic mode: every answer
# equals that of the request alone, nothing fails, and memory does not grow.
#   mixed.sh [SECONDS [SHAPE]]   (480 and the 8B shape)
. "$FDD_SRC/tests/sys/lib.sh"
seconds=${1:-480} shape=${2:-$FDD_SRC/tests/bench/shapes/llama-8b}
vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$shape/config.json")
start --set model.path="$shape" --set model.load_format=dummy --set device.backend=cuda \
    --set device.deterministic=yes --set kv.gpu_memory_utilization=0.9 \
    --set sched.max_num_seqs=256 --set sched.max_inflight_per_client=512
worker=$(pgrep -P "$fdd_pid" | head -n 1)
[ -n "$worker" ] || fail "no worker process"
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
free_blocks() { ctl stat -1 | awk '$1 ~ /blocks_free/ { print $2; exit }'; }
"$FDD_BUILD/tests/gpu/g_mixed" "$run/fdd.sock" 15 192 "$vocab" 3000 || fail "warming up"
before_gpu=$(used) before=$(rss "$worker") before_gate=$(rss "$fdd_pid")
"$FDD_BUILD/tests/gpu/g_mixed" "$run/fdd.sock" "$seconds" 192 "$vocab" 3000 ||
    fail "mixed load"
after_gpu=$(used) after=$(rss "$worker") after_gate=$(rss "$fdd_pid")
[ "$(pgrep -P "$fdd_pid" | head -n 1)" = "$worker" ] || fail "the worker was restarted"
echo "note: GPU $before_gpu to $after_gpu MiB, worker $before to $after KiB, gate" \
    "$before_gate to $after_gate KiB"
[ "$after_gpu" -le $((before_gpu + 8)) ] || fail "the GPU's memory grew"
[ "$after" -le $((before + 20480)) ] || fail "the worker grew"
[ "$after_gate" -le $((before_gate + 8192)) ] || fail "the daemon grew"
ctl stat -1 | grep -E 'blocks|rows_running|rows_discarded' | head -n 8
stop
