#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# kv.dtype=fp8: memory is as planned, with and without scales in the checkpoint; bad
# scales end the start with a line that names them.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"

# DIR SCALE...: the demo model with key and value scales of each layer
with_scales() {
    mkdir -p "$1"
    cp "$DEMO"/*.json "$1"
    python3 - "$DEMO/model.safetensors" "$@" <<'PY'
import json, struct, sys
src, to, scales = sys.argv[1], sys.argv[2], [float(x) for x in sys.argv[3:]]
data = open(src, 'rb').read()
n = struct.unpack('<Q', data[:8])[0]
head, body = json.loads(data[8:8 + n]), data[8 + n:]
for i, x in enumerate(scales):
    head['model.layers.%d.self_attn.%s_scale' % (i // 2, 'kv'[i % 2])] = {
        'dtype': 'F32', 'shape': [], 'data_offsets': [len(body), len(body) + 4]}
    body += struct.pack('<f', x)
text = json.dumps(head).encode()
text += b' ' * (-len(text) % 8)
open(to + '/model.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + body)
PY
}
layers=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["num_hidden_layers"])' "$DEMO/config.json")
heads=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["num_key_value_heads"])' "$DEMO/config.json")
# shellcheck disable=SC2046
with_scales "$dir/scaled" $(seq 1 $((2 * layers)) | sed 's/$/e-2/')

ids() { ctl generate -p 'In the beginning' --max-tokens 24 --temperature 0 --logprobs 0 --json |
    json '[d["ids"], d["logprobs"]]'; }
# A worker that used other memory than planned would not get ready. The rows of fdctl
# memory add up, and the scales' row is LAYERS x 2 x HEADS floats.
memory() { # BYTES, "" for no such row
    ctl memory --json >"$dir/memory" || fail "fdctl memory"
    got=$(json '" ".join(str(r["bytes"]) for r in d["rows"] if r["name"] == "KV scales")' <"$dir/memory")
    [ "$got" = "$1" ] || fail "KV scales: $got bytes, not $1: $(cat "$dir/memory")"
    json 'sum(r["bytes"] for r in d["rows"] if r["where"] == "device") == d["device_bytes"] or 1/0' \
        <"$dir/memory" >/dev/null || fail "rows are not the sum: $(cat "$dir/memory")"
}

start --set model.path="$DEMO" --set kv.dtype=fp8
memory $((layers * 2 * heads * 4))
expect 0 ctl memory
has "$out" 'KV scales'
until_true 10 grep -q 'no KV scales: all are 1' "$dir/log" || fail "nothing said about scales"
one=$(ids)
stop
start --set model.path="$dir/scaled" --set kv.dtype=fp8
memory $((layers * 2 * heads * 4))
until_true 10 grep -q "$((2 * layers)) KV scales from the checkpoint" "$dir/log" || fail "scales are not read"
scaled=$(ids)
[ "$one" != "$scaled" ] || fail "the scales change nothing"
stop

start --set model.path="$DEMO" --set kv.dtype=fp32
memory ""
plain=$(ids)
stop
: >"$dir/log"
start --set model.path="$dir/scaled" --set kv.dtype=fp32
memory ""
until_true 10 logged 1 "$((2 * layers)) KV scales of the checkpoint are without use: kv.dtype = fp32" ||
    fail "unused scales are not mentioned once"
[ "$plain" = "$(ids)" ] || fail "scales change the fp32 cache"
stop

refused() { # PATTERN MODEL
    expect 78 timeout $((30 * slow)) "$FDD" --set daemon.runtime_dir="$run" \
        --set daemon.worker="$WORKER" --set model.path="$2" --set kv.dtype=fp8
    has "$out" "$1"
}
with_scales "$dir/short" 1 1
refused 'layer 1: tensor model.layers.1.self_attn.k_scale is missing' "$dir/short"
# shellcheck disable=SC2046
with_scales "$dir/zero" 1 0 $(seq 3 $((2 * layers)))
refused 'tensor model.layers.0.self_attn.v_scale: element 0 is 0; a KV scale is finite' "$dir/zero"
# The null model has scales too: one layer, one head.
start --set model.path=null --set device.backend=null --set kv.dtype=fp8
memory 8
stop
