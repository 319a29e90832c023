#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The shipped model on the GPU and on the CPU: greedy tokens are equal, or the
# first that differs is a near-tie on both sides; with and without graphs and
# overlap. Then quantized weights and 8-bit KV: both sides round in the same way,
# but their inputs differ a little.
. "$FDD_SRC/tests/sys/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
prompts=('In the beginning' 'Once upon a time' 'The' 'def main():' 'A list of things: one, two,')
ask() { # NAME [fdd arguments]
    local name=$1 p; shift
    start --set model.path="$DEMO" "$@"
    for p in "${prompts[@]}"; do
        ctl generate -p "$p" --max-tokens 48 --temperature 0 --ignore-eos --logprobs 2 --json \
            >>"$dir/$name" || fail "$name: generate: $(tail -c 300 "$dir/$name")"
    done
    stop
}
ask cpu --set device.backend=cpu
ask graph --set device.backend=cuda
ask eager --set device.backend=cuda --set graph.use_cudagraph=no
variants=(quant.weights=wint8 quant.weights=wint4 kv.dtype=bf16 kv.dtype=fp8 kv.dtype=int8)
for v in "${variants[@]}"; do
    for b in cpu cuda; do ask "$v-$b" --set "$v" --set device.backend=$b; done
done
python3 - "$dir" "${variants[@]}" <<'PY' || fail "tokens differ"
import json, sys
def read(name):
    return [json.loads(l) for l in open(f"{sys.argv[1]}/{name}") if l.strip()]
def compare(a, b, near):
    same = bad = 0
    worst = 0.0
    for x, y in zip(a, b):
        for i, (p, q) in enumerate(zip(x["logprobs"], y["logprobs"])):
            if p["id"] == q["id"]:
                same += 1
                worst = max(worst, abs(p["logprob"] - q["logprob"]))
                continue
            # each token is among the best two of the other side, nearly equal
            other = dict((t[0], t[1]) for t in p["top"])
            gap = abs(p["logprob"] - other[q["id"]]) if q["id"] in other else 9.0
            print(f"position {i}: {p['id']} or {q['id']}, {gap:.4f} apart")
            bad += gap > near
            break
    print(f"{same} tokens equal, logprobs within {worst:.5f}")
    return bad
cpu, graph, eager = read("cpu"), read("graph"), read("eager")
bad = compare(cpu, graph, 0.03) + compare(graph, eager, 0)
for v in sys.argv[2:]:
    print(v, end=": ")
    bad += compare(read(v + "-cpu"), read(v + "-cuda"), 0.1)
sys.exit(1 if bad else 0)
PY
