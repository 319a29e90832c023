#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Weights of 8-bit floats, quantized while loading and from a checkpoint. They use less
# memory, as planned, and the answers with the checkpoint equal those of transformers.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
models=$FDD_SRC/tests/parity/models

weights() { ctl memory --json | json 'sum(r["bytes"] for r in d["rows"] if "weights" in r["name"])'; }
quantized() { ctl memory --json | json 'sum(r["bytes"] for r in d["rows"] if r["name"] == "quantized weights")'; }
told() { ctl model --json | json 'd["quantized"]'; }
says() { ctl generate -p 'In the beginning' --max-tokens 24 --temperature 0 --json | json 'd["ids"]'; }

start --set model.path="$DEMO"
plain=$(weights)
[ "$(quantized)" = 0 ] || fail "quantized weights without quant.weights"
[ "$(told)" = none ] || fail "fdctl model: $(told)"
stop
for group in 0 64; do
    start --set model.path="$DEMO" --set quant.weights=fp8 --set quant.group_size=$group
    [ "$(weights)" -lt "$plain" ] || fail "$(weights) bytes, $plain without quantization"
    [ "$(quantized)" -gt 0 ] || fail "nothing is quantized"
    [ "$(told)" = fp8 ] || fail "fdctl model: $(told)"
    [ -n "$(says)" ] || fail "no answer"
    stop
done

# The prompt and the greedy ids of the first case of reference.txt.
serve() { # MODEL WHAT
    ref=$models/$1/reference.txt
    sed -n 's/^prompt //p' "$ref" | head -n 1 >"$dir/ids"
    want=$(sed '/^end/q' "$ref" | sed -n 's/^g [0-9]* \([0-9]*\) .*/\1/p' | tr '\n' ' ')
    : >"$dir/log"
    start --set model.path="$models/$1"
    [ "$(told)" = "$2" ] || fail "fdctl model: $(told)"
    until_true 10 grep -q "load: the checkpoint is $2; activations are not quantized" "$dir/log" ||
        fail "the log does not say how $1 is quantized"
    [ "$(quantized)" -gt 0 ] || fail "$1: nothing is quantized"
    got=$(ctl generate --ids-file "$dir/ids" --max-tokens "$(echo "$want" | wc -w)" --temperature 0 --ignore-eos --json |
        json '" ".join(str(i) for i in d["ids"]) + " "')
    [ "$got" = "$want" ] || fail "$1: $got, not $want"
    stop
}
serve qwen3-fp8-block 'fp8, a scale per block of 128x128'
serve llama-fp8-channel 'fp8, a scale per row'
serve llama-fp8-fbgemm 'fp8, a scale per row'
serve llama-fp8-tensor 'fp8, a scale per tensor'
until_true 10 grep -q 'tensors without use: 14: model.layers.0.mlp.down_proj.input_scale' "$dir/log" ||
    fail "scales of activations are not mentioned"

# Quantizing a quantized checkpoint is refused.
expect 78 timeout $((30 * slow)) "$FDD" --set daemon.runtime_dir="$run" \
    --set daemon.worker="$WORKER" --set model.path="$models/qwen3-fp8-block" \
    --set quant.weights=fp8
has "$out" 'is quantized already .fp8, a scale per block of 128x128.: quant.weights=fp8 cannot'
