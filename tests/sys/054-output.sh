#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# What a request may ask of its output, end to end: the model's files.
. "$(dirname "$0")/lib.sh"

model=$dir/model
cp -r "$DEMO" "$model"
printf '{{ messages }}' >"$model/chat_template.jinja"
start --set model.path="$model" --set device.backend=cpu --set device.threads=1 --set kv.num_blocks=64

# ---- files: as they were when the model was loaded
echo changed >"$model/chat_template.jinja"
for name in tokenizer_config.json generation_config.json; do
    ctl model --file $name >"$dir/file" || fail "model --file $name"
    cmp "$dir/file" "$model/$name" || fail "$name is not the model's"
done
[ "$(ctl model --file chat_template.jinja)" = '{{ messages }}' ] || fail "the template is not the one at the start"
expect 65 ctl model --file chat_parser.json
has "$out" 'E_NO_FILE'
expect 65 ctl model --file ../config.json
has "$out" 'E_NO_FILE'
expect 64 ctl model --file vocabulary --json
ctl model --json | json 'd["parameters"]' >/dev/null || fail "fdctl model shows no model"
ctl model --file vocabulary >"$dir/vocabulary" || fail "model --file vocabulary"
if command -v python3 >/dev/null; then
    python3 - "$dir/vocabulary" >"$dir/tokens" <<'PY' || fail "the vocabulary cannot be read"
import json, struct, sys
b, at, out = open(sys.argv[1], "rb").read(), 0, []
while at < len(b):
    n, kind = struct.unpack_from("<HB", b, at)
    out.append((kind, b[at + 3:at + 3 + n]))
    at += 3 + n
assert at == len(b) and len(out) == 4096, (at, len(b), len(out))
assert out[4095] == (3, b"<|endoftext|>"), out[4095]
assert sum(k == 0 for k, _ in out) > 4000
for i in range(300, 320):
    print(i, out[i][1].hex())
PY
    while read -r id hex; do
        [ "$(ctl detokenize "$id" --json | json 'd["text"].encode().hex()')" = "$hex" ] ||
            case $hex in *[89a-f]?*) ;; *) fail "id $id is not $hex" ;; esac
    done <"$dir/tokens"
fi
stop
