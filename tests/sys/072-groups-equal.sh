#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# P1 through the daemon, formats of weights and KV cache by (T, D): tokens and
# logprobs of D groups of T ranks equal, to the byte, those of one device that adds in
# the order of T ranks (parallel.reference_splits = T). FDD_LONG: every format with
# every (T, D); else some.
. "$(dirname "$0")/lib.sh"
[ "${FDD_TEST_DEVICE:-}" != 1 ] || skip "the model is on one device"
test_device=()
for text in 'In the beginning' 'Once upon a time there was' 'The answer is' 'x'; do
    printf '{"prompt":"%s","max_tokens":24,"temperature":0,"logprobs":3,"ignore_eos":true}\n' "$text"
done >"$dir/ask"
# Fields that are not compared: ids, times, counters.
answers() {
    ctl generate --batch "$dir/ask" --json | python3 -c '
import json, sys
for line in sys.stdin:
    answer = json.loads(line)
    print(json.dumps([answer["ids"], answer["text"], answer["logprobs"]]))'
}
model() {
    start --set model.path="$DEMO" --set daemon.worker_hang_ms=60000 --set device.threads=1 \
        --set kv.memory_bytes=32M --set device.shared=yes "$@"
}
formats=(quant.weights=none quant.weights=wint8 quant.weights=wint4 quant.weights=fp8
    kv.dtype=int8 kv.dtype=fp8)
shapes=("2 1" "4 1" "2 2" "1 2")
n=-1
printf '%-20s %s\n' format "T D"
for f in "${formats[@]}"; do
    for s in "${shapes[@]}"; do
        read -r T D <<<"$s"
        n=$((n + 1))
        # every shape and format, once at least
        [ -n "${FDD_LONG:-}" ] || [ $((n % 4)) = $((n / 4 % 4)) ] || continue
        model --set device.backend=cpu --set "$f" --set parallel.reference_splits="$T"
        want=$(answers) || fail "$f: no answer of one device"
        [ ${#want} -gt 400 ] || fail "$f: short answer: $want"
        if [ "$T" -gt 1 ]; then
            expect 0 ctl program
            has "$out" ' columns '
            has "$out" ' add '
        fi
        finish
        model --set device.list=cpu:$((T * D)) --set parallel.tensor_parallel_size="$T" \
            --set parallel.data_parallel_size="$D" --set "$f"
        for _ in 1 2; do
            [ "$(answers)" = "$want" ] || fail "$f, T $T, D $D: other answers than one device: $want"
        done
        finish
        printf '%-20s %s %s equal\n' "$f" "$T" "$D"
    done
done
refused() { # PATTERN ARGS
    local pat=$1; shift
    expect 78 timeout $((30 * slow)) "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" \
        --set model.path="$DEMO" --set device.backend=cpu "$@"
    has "$out" "$pat"
}
refused 'reference_splits = 3: num_attention_heads [0-9]+ is not divisible; 1, 2' \
    --set parallel.reference_splits=3
refused 'parallel.reference_splits = 2: it is for one device, and parallel.tensor_parallel_size = 2' \
    --set parallel.reference_splits=2 --set tensor_parallel_size=2 --set device.list=cpu:2
refused 'parallel.reference_splits = 2: model.path=null has no weights to share' \
    --set parallel.reference_splits=2 --set model.path=null
exit 0
