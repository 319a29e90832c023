#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl profile: the steps of running requests, synthetic steps on an idle daemon,
# the file of the measured peak; refusals, wrong arguments, a client that
# disconnects, a daemon that ends.
. "$(dirname "$0")/lib.sh"
cache=$dir/new/cache # fdd makes both
start --set model.path="$DEMO" --set device.backend=cpu --set daemon.cache_dir="$cache" \
    --set ipc.admin_group= --set ipc.group= --set sched.max_num_seqs=32
python3 - "$dir" <<'PY'
import json, random, sys
random.seed(3)
with open(sys.argv[1] + "/reqs", "w") as f:
    for i in range(6):
        f.write(json.dumps({"ids": [random.randrange(300, 4000) for _ in range(150)],
            "max_tokens": 20, "temperature": i % 2, "seed": i, "ignore_eos": True}) + "\n")
PY
echo '[5,6,7]' >"$dir/ids"
answer() { # answers of requests, and the tokens they found in the cache
    ctl generate --batch "$dir/reqs" --json >"$dir/json" || fail "generate"
    json '[r["ids"] for r in d]' <"$dir/json"
}
cached() { json 'sum(r["cached_tokens"] for r in d)' <"$dir/json"; }
# The sum of the lines is the step, every operation is there, shares are floor by time. Behind
# the last keys and values (49) a step with a prompt has the operations of its output rows (50
# to 58), and computes no more than these rows there.
check() {
    local tail='range(59, 67)'
    case $1 in *prefill*) tail='range(50, 59)' ;; esac
    json '"ok" if abs(d["sum_us"] - d["profiled"]["us"]) <= 0.05 * d["profiled"]["us"] > 0
        and abs(sum(l["us"] for l in d["lines"]) - d["sum_us"]) < 0.01 * d["sum_us"]
        and [l["index"] for l in d["lines"] if l["index"] >= 0] == [*range(50), *'"$tail"', 67, 68]
        and all(l["flops"] == 2 * l["N"] * l["K"] * d["profiled"]["results"]
            for l in d["lines"] if l["index"] > 49 and l["kind"] in ("gemm", "logits"))
        and all(l["roofline_us"] > 0 and l["roofline_fraction"] > 0 for l in d["lines"] if l["kind"] == "gemm")
        and 0 < d["roofline_us"]
        and abs(d["roofline_us"] - sum(l["roofline_us"] for l in d["lines"])) < 0.01 * d["roofline_us"]
        else d' | grep -x ok >/dev/null || fail "sums of $1: $(head -c 1500 "$dir/prof")"
}

# no request runs: the answer comes within the time and names the fix
expect 65 ctl profile --within 0.3
has "$out" 'no step ran within 0.3 s'
has "$out" 'profile --batch 1'
# a --timeout that is given holds, however long the steps may take
expect 75 ctl --timeout 1 profile --within 100
has "$out" '[(]--timeout[)]'

# synthetic steps: the cache keeps what it has, and the answers are the same
answer >"$dir/want"
answer | cmp -s - "$dir/want" || fail "answers differ by themselves"
hits=$(cached)
[ "$hits" -gt 500 ] || fail "nothing is cached: $hits"
for shape in "--batch 6 --context 300 --prefill 50" "--prefill 120" "--batch 1 --context 1"; do
    # shellcheck disable=SC2086
    ctl profile $shape --steps 4 --within 300 --json >"$dir/prof" || fail "profile $shape"
    check "$shape" <"$dir/prof"
    json '(d["mode"], d["truncated"], d["profiled"]["steps"], d["unprofiled"]["steps"])' <"$dir/prof" |
        grep -qF "('synthetic', '', 4, 4)" || fail "profile $shape: $(head -c 600 "$dir/prof")"
    answer | cmp -s - "$dir/want" || fail "other answers after profile $shape"
    [ "$(cached)" = "$hits" ] || fail "other hits after profile $shape: $(cached), not $hits"
done
json '(d["profiled"]["tokens"], d["profiled"]["rows"], d["profiled"]["context"])' <"$dir/prof" |
    grep -qF '(1.0, 1.0, 1.0)' || fail "shape: $(head -c 600 "$dir/prof")"

# what the device can do is kept, and program uses it
[ "$(find "$cache" -name 'peaks-*.json' | wc -l)" = 1 ] || fail "no measured peak in $cache"
ctl program --json | json 'd["measured_peak"]["read_bytes_per_s"] > 0 and d["roofline_us"] > 0' |
    grep -q True || fail "program has no measured peak"
# the launches of every size, those that launch the same together: shares of one size add
# up, an operation is launched by itself
ctl program --json | json 'min(l["least_tokens"] for l in d["launches"]) == 1 and all(
    abs(sum(l["share"] for l in d["launches"] if (l["tokens"], l["outputs"]) == s) - 1) < 1e-6
    for s in {(l["tokens"], l["outputs"]) for l in d["launches"]}) and
    len({l["least_tokens"] for l in d["launches"]}) < 10 and
    {"gemm", "attention", "sample"} <= {l["launch"] for l in d["launches"] if not l["fused"]}' |
    grep -q True || fail "program does not say what steps launch: $(ctl program --json)"
until_true 10 logged 1 'peak: .* reads' || fail "measured more than once"
ctl profile --batch 1 --steps 1 --measure >/dev/null || fail "profile --measure"
until_true 10 logged 2 'peak: .* reads' || fail "not measured again"

# as text, sizes by themselves and the largest step without a graph
ctl program >"$dir/text" || fail "program"
for w in "^1 tokens, .* outputs, graph: roofline bound" "^8 tokens, .*graph" "^64 tokens, .*graph" "^128 tokens, .*graph" \
    " tokens, .*eager: roofline bound" "gemm  .* rows  .* %  gemm: "; do
    grep -qE -- "$w" "$dir/text" || fail "fdctl program lacks $w: $(cat "$dir/text")"
done

# as text
for by in "" "--by op" "--by kind" "--by layer"; do
    # shellcheck disable=SC2086
    expect 0 ctl profile --batch 2 --context 64 --steps 2 --within 300 $by
    has "$out" 'measured peak: read [0-9.]+ GB/s, f32 [0-9.]+ GFLOP/s'
    has "$out" '^sum of lines +[0-9.]+ us +(9[5-9]|10[0-5])\.[0-9] % of the step'
    has "$out" '^roofline bound'
done
has "$out" '^none +[0-9]+ '
has "$out" '^5 +9 '

# bad words
expect 64 ctl profile --by bytes
has "$out" 'op, kind or layer'
expect 64 ctl profile --step 3
has "$out" 'did you mean --steps'
expect 64 ctl profile --steps x
expect 64 ctl profile --within 0
expect 64 ctl profile gemm
expect 65 ctl profile --steps 0
has "$out" '"steps" is 0; it takes a whole number from 1 to 10000'
expect 65 ctl profile --batch 33
has "$out" 'sched.max_num_seqs = 32'
expect 65 ctl profile --batch 1 --context 5000
has "$out" 'context 5000'
expect 65 ctl profile --prefill 100000
has "$out" 'max_num_batched_tokens'
expect 65 ctl profile --context 10
has "$out" 'batch \(rows that decode\) or prefill'

# running requests: their steps, and no synthetic ones
load() {
    while [ ! -e "$dir/enough" ]; do
        ctl generate --ids-file "$dir/ids" --max-tokens 900 --ignore-eos --n-requests 4 \
            --json >/dev/null 2>&1 || break
    done
}
load & l=$!
until_true 20 sh -c "'$FDCTL' --runtime-dir '$run' requests --json | grep -q running" ||
    fail "no load"
ctl profile --steps 8 --within 300 --json >"$dir/prof" || fail "profile of running requests"
check live <"$dir/prof"
json '(d["mode"], d["profiled"]["steps"], d["profiled"]["graph"])' <"$dir/prof" |
    grep -qF "('live', 8, 0)" || fail "live: $(head -c 600 "$dir/prof")"
# between two loads there is none for a moment
refused() { ctl profile --batch 1 --steps 1 2>&1 | grep -E '[0-9]+ requests? (is|are) running'; }
until_true 10 refused || fail "a synthetic step while requests run"
# a client that disconnects: the next command does not wait for its profile
"$FDCTL" --runtime-dir "$run" profile --steps 10000 --within 600 >/dev/null 2>&1 & p=$!
sleep 0.5
kill -KILL $p; wait $p 2>/dev/null
expect 0 ctl --timeout $((20 * slow)) model
# while one measures, the gate goes on, and the steps do
"$FDCTL" --runtime-dir "$run" profile --steps 10000 --within 600 >"$dir/gone" 2>&1 & p=$!
sleep 0.3
expect 0 ctl status
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4
kill -KILL $p; wait $p 2>/dev/null
touch "$dir/enough"; wait $l

# the worker, then the daemon, ends meanwhile
"$FDCTL" --runtime-dir "$run" profile --within 600 >"$dir/gone" 2>&1 & p=$!
sleep 0.5
ctl debug kill-worker >/dev/null || fail "kill-worker"
wait $p; rc=$?
[ $rc = 65 ] || fail "exit $rc when the worker died: $(cat "$dir/gone")"
grep -q 'worker ended' "$dir/gone" || fail "worker gone: $(cat "$dir/gone")"
ctl --wait $((20 * slow)) ping >/dev/null || fail "no second worker"
expect 0 ctl profile --batch 1 --context 8 --steps 1 --within 300
[ "$(grep -c 'peak: .* reads' "$dir/log")" = 2 ] || fail "the file was not used"
"$FDCTL" --runtime-dir "$run" profile --within 600 >"$dir/gone" 2>&1 & p=$!
sleep 0.5
stop
wait $p; rc=$?
{ [ $rc = 69 ] || [ $rc = 65 ]; } || fail "exit $rc when the daemon ended: $(cat "$dir/gone")"
[ -s "$dir/gone" ] || fail "no message when the daemon ended"
expect 69 ctl profile

# a device that computes nothing has no measured peak, and can still be profiled
start --set model.path=null --set device.backend=null --set daemon.cache_dir="$dir/reqs/cache"
logged 1 "load: folder $dir/reqs/cache cannot be made: Not a directory" || fail "the log does not name the folder"
expect 0 ctl profile --batch 4 --context 100 --steps 3
has "$out" 'measured peak: not known'
stop
