#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Copies of a model on virtual devices divide prompts: the same text as one device,
# the output of the tools, refusals, and a copy that fails or stops: the worker ends
# and names the rank.
. "$(dirname "$0")/lib.sh"
test_device=()
prompt=$(for i in $(seq 40); do printf 'And God said, Let there be light %d: and there was light. ' "$i"; done)
ask() { ctl generate -p "$prompt" --max-tokens 48 --temperature 0; }
model() { start --set model.path="$DEMO" --set daemon.worker_hang_ms=60000 "$@"; }

model --set device.backend=cpu
want=$(ask) || fail "no text of one device"
[ ${#want} -gt 40 ] || fail "short text: $want"
finish

# ---- two copies, and the tools' output
model --set device.list=cpu:2 --set sequence_parallel_size=2 \
    --set parallel.context_parallel_min_tokens=100
[ "$(ask)" = "$want" ] || fail "other text on two copies: $(ask), not $want"
expect 0 ctl status
has "$out" 'rank 1: device cpu-1'
has "$out" '2 copies divide prompts: when a step computes 100 or more tokens of one prompt'
expect 0 ctl status --json
sizes=$(json 'd["worker"]["tensor_parallel_size"], d["worker"]["prefill_context_parallel_size"]' <<<"$out")
[ "$sizes" = "1 2" ] || fail "sizes: $sizes"
expect 0 ctl memory
has "$out" 'each of 2 devices'
expect 0 ctl program --json
n=$(json 'sum(l["ops"] == "kvshare" and l["divided"] for l in d["launches"])' <<<"$out")
[ "$n" -ge 1 ] || fail "no kvshare in the program"
expect 0 ctl profile --batch 2 --prefill 120 --context 32 -n 2
has "$out" 'kvshare +6 '
has "$out" 'rowshare +1 '
has "$out" '^ +1  cpu-1 +[0-9.]+ +[0-9.]+$'
has "$out" 'imbalance of what ranks compute [0-9.]+ %'
expect 0 ctl profile --batch 2 --prefill 120 --context 32 -n 4 --json
json '"ok" if len(d["ranks"]) == 2 and all(r["compute_us"] > 0 and r["exchange_us"] > 0 for r in d["ranks"]) and 0 <= d["imbalance"] < 1 and 0 < d["exposed_us"] <= min(r["exchange_us"] for r in d["ranks"]) and abs(d["ranks"][0]["compute_us"] + d["ranks"][0]["exchange_us"] - sum(l["us"] for l in d["lines"] if l["index"] >= 0)) < 1 else d["ranks"]' <<<"$out" >"$dir/ranks"
[ "$(cat "$dir/ranks")" = ok ] || fail "ranks: $(cat "$dir/ranks")"
expect 0 ctl profile --batch 2 --prefill 99 --context 32 -n 2
grep -q kvshare <<<"$out" && fail "99 tokens are divided: $out"
ctl trace --all --perfetto "$dir/trace.json" || fail "no trace"
grep -q 'device of rank 1' "$dir/trace.json" || fail "no track of rank 1"
python3 - "$dir/trace.json" <<'PY' || fail "the trace's divided steps are not as they should be"
import json, sys
steps = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e.get("cat") == "step,divided"]
assert {e["tid"] for e in steps if e["pid"] == steps[0]["pid"]} >= {1} and len(steps) >= 2, steps[:2]
assert all(e["args"]["divided"] and e["args"]["padded_tokens"] < e["args"]["tokens"] for e in steps)
PY

# ---- a device that fails, a launch thread that stops
for fault in fail-device stop-rank; do
    w=$(ctl status --json | json 'd["worker"]["pid"]')
    expect 0 ctl debug +faults
    expect 0 ctl debug "$fault"
    ask >"$dir/cut" 2>&1 && fail "$fault: no error"
    until_true 20 test ! -e "/proc/$w" || fail "$fault: the worker goes on"
    expect 0 ctl --wait $((30 * slow)) ping
    expect 0 ctl debug panic
    [ "$(ask)" = "$want" ] || fail "other text after $fault"
done
logged 1 'engine: device error in step .*rank 0 \(cpu-0\): a test made the device fail' ||
    fail "not named: rank 0"
# shellcheck disable=SC2016 # a pattern
logged 1 'engine: device error in step .*rank 1 \(cpu-1\): collective: rank 1 did not arrive within [0-9]+ ms, says rank 0 \(cpu-0\)' ||
    fail "not named: rank 1"
finish

# ---- two copies of two ranks, with a limit that is measured
model --set device.list=cpu:4 --set parallel.tensor_parallel_size=2 \
    --set parallel.prefill_context_parallel_size=2
[ "$(ask)" = "$want" ] || fail "other text on two copies of two: $(ask), not $want"
expect 0 ctl status
has "$out" 'sums over 2 devices'
has "$out" '2 copies divide prompts: (never|when a step computes [0-9]+ or more tokens of one prompt)'
expect 0 ctl config parallel.context_parallel_min_tokens
has "$out" 'auto: [0-9]+'
finish

# ---- two copies of four ranks, two of which share the tokens of a KV head
model --set device.list=cpu:8 --set parallel.tensor_parallel_size=4 --set device.threads=1 \
    --set parallel.prefill_context_parallel_size=2 --set parallel.decode_context_parallel_size=2 \
    --set parallel.context_parallel_min_tokens=100
[ "$(ask)" = "$want" ] || fail "other text on two copies that share tokens: $(ask), not $want"
expect 0 ctl model --json
n=$(json 'd["kv"]["decode_context_parallel_size"]' <<<"$out")
[ "$n" = 2 ] || fail "tokens are divided among $n ranks, not 2"
expect 0 ctl status
has "$out" '2 copies divide prompts: when a step computes 100 or more tokens of one prompt'
finish

# ---- copies that divide the tokens of the KV cache too: half the bytes a block
kv_of() { # C
    model --set device.list=cpu:2 --set parallel.prefill_context_parallel_size=2 --set kv.num_blocks=100 \
        --set parallel.decode_context_parallel_size="$1" --set parallel.context_parallel_min_tokens=100
    [ "$(ask)" = "$want" ] || fail "other text with KV on $1 copies: $(ask), not $want"
    expect 0 ctl model --json
    json 'd["kv"]["decode_context_parallel_size"], d["kv"]["block_bytes"]' <<<"$out"
    expect 0 ctl profile --batch 2 --prefill 120 --context 32 -n 2
    expect 0 ctl program
    finish
}
one=$(kv_of 1)
two=$(kv_of 2)
[ "${one% *}" = 1 ] && [ "${two% *}" = 2 ] && [ "${one#* }" = $((2 * ${two#* })) ] ||
    fail "a block of one copy: $one, of two: $two"

# ---- refusals
refused() { # PATTERN ARGS
    local pat=$1; shift
    expect 78 timeout $((30 * slow)) "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" \
        --set model.path="$DEMO" "$@"
    has "$out" "$pat"
}
refused '"cpu:2" has 2 devices, and parallel.prefill_context_parallel_size = 3 uses 3; add 1' \
    --set device.list=cpu:2 --set prefill_context_parallel_size=3
refused '"cpu:5" has 5 devices, and parallel.tensor_parallel_size = 2 times parallel.prefill_context_parallel_size = 2 uses 4; remove 1' \
    --set device.list=cpu:5 --set prefill_context_parallel_size=2 --set tensor_parallel_size=2
refused 'it is empty, and parallel.prefill_context_parallel_size = 2 needs 2 devices' \
    --set prefill_context_parallel_size=2
refused 'parallel.prefill_context_parallel_size = 4 times parallel.tensor_parallel_size = 4 are 16 devices; a group has at most 8' \
    --set device.list=cpu:16 --set prefill_context_parallel_size=4 --set tensor_parallel_size=4
refused 'decode_context_parallel_size = 3: with num_key_value_heads 2 and tensor_parallel_size = 1 a KV head is on 1 rank of each copy; 1, 2 are possible' \
    --set device.list=cpu:2 --set prefill_context_parallel_size=2 --set decode_context_parallel_size=3
exit 0
