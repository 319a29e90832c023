#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The whole daemon with a 1B-shaped model of random weights on a GPU: it starts within the
# memory it planned, serves ids, and its plan equals the use that the GPU reports.
. "$FDD_SRC/tests/sys/lib.sh"
start --set model.path="$FDD_SRC/tests/gpu/shapes/llama-1b" --set model.load_format=dummy \
    --set device.backend=cuda "$@"
ctl memory || fail "memory"
used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1)
total=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)
echo "gpu: $used of $total MiB in use"
[ "$used" -le $((total * 91 / 100)) ] || fail "more than kv.gpu_memory_utilization in use"
seq -s ' ' 100 611 >"$dir/ids"
for i in 1 2 3; do
    ctl generate --ids-file "$dir/ids" --max-tokens 64 --temperature 0 --ignore-eos --stats \
        --json >"$dir/out$i" 2>"$dir/err$i" || fail "generate: $(cat "$dir/err$i")"
    cat "$dir/err$i"
done
ctl generate --ids-file "$dir/ids" --max-tokens 64 --temperature 0 --ignore-eos --stats \
    --n-requests 64 --json >"$dir/many" 2>"$dir/err" || fail "generate: $(cat "$dir/err")"
cat "$dir/err"
ctl stat -1 | grep -E 'steps|host_ns|model_ns|prefix_hits|rows_discarded'
stop
# Deterministic: the answer does not depend on the batch composition.
start --set model.path="$FDD_SRC/tests/gpu/shapes/llama-1b" --set model.load_format=dummy \
    --set device.backend=cuda --set device.deterministic=yes "$@"
for n in 1 64; do
    ctl generate --ids-file "$dir/ids" --max-tokens 64 --temperature 0 --ignore-eos \
        --n-requests $n --json >"$dir/equal$n" 2>"$dir/err" || fail "generate: $(cat "$dir/err")"
done
answers=$(cat "$dir/equal1" "$dir/equal64" | grep -o '"ids": *\[[^]]*\]' | sort -u | wc -l)
[ "$answers" = 1 ] || fail "65 equal requests have $answers answers"
stop
