#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The whole path gives the same results as transformers for the shipped model: greedy ids,
# their logprobs and the prompt's, alone and in a batch.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
ref=$FDD_SRC/tests/parity/demo.txt
start --set model.path="$DEMO"
awk '$1 == "prompt" { $1 = ""; print > (d "/ids" n++) }' d="$dir" n=0 "$ref"
[ -s "$dir/ids0" ] && [ -s "$dir/ids1" ] || fail "no prompts in $ref"
for i in 0 1; do
    for n_requests in 1 5; do
        ctl generate --ids-file "$dir/ids$i" --max-tokens 48 --temperature 0 --ignore-eos \
            --prompt-logprobs 5 --logprobs 5 --n-requests $n_requests --json >"$dir/out" ||
            fail "generate: $(head -c 500 "$dir/out")"
        python3 - "$dir/out" "$ref" "$i" <<'PY' || fail "case $i, $n_requests requests"
import json, sys
case, want = -1, []
for line in open(sys.argv[2]):
    w = line.split()
    if w and w[0] == "prompt":
        case += 1
    elif w and w[0] in ("p", "g", "~g", "~") and case == int(sys.argv[3]):
        want.append((w[0], int(w[1]), int(w[2]), float(w[3])))
n_checked = 0
for line in open(sys.argv[1]):
    d = json.loads(line)
    n = len(d["prompt_ids"])
    for kind, pos, token, logprob in want:
        if kind == "p":
            got = d["prompt_logprobs"][pos]
        else:
            if pos - n >= len(d["ids"]):
                continue
            got = d["logprobs"][pos - n]
        if got["id"] != token or abs(got["logprob"] - logprob) > 2e-3:
            sys.exit(f"position {pos}: {got['id']} {got['logprob']}, not {token} {logprob}")
        n_checked += 1
if n_checked < 40:
    sys.exit(f"only {n_checked} positions compared")
PY
    done
done
stop
