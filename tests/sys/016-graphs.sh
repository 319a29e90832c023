#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Graphs are changed while requests run: every output equals that without overlap and
# graphs, nothing is lost, and in the end the worker uses the values that fdctl set
# accepted, however fast the changes came.
. "$(dirname "$0")/lib.sh"
python3 - >"$dir/batch" <<'PY'
import json
for i in range(30):
    r = {"prompt": ["In the beginning", "And it came to pass", "the LORD said " * (1 + i)][i % 3],
         "max_tokens": 10 + i, "ignore_eos": True}
    r.update([{"temperature": 0}, {"seed": i}, {"seed": i, "n": 3},
              {"temperature": 0, "repetition_penalty": 1.2}][i % 4])
    print(json.dumps(r))
PY
outputs() { # the ids of a result file
    json '"\n".join(str([c["ids"] for c in r.get("choices", [r])]) for r in d)'
}
start --set model.path="$DEMO" --set device.backend=cpu --set device.overlap_depth=0 \
    --set graph.use_cudagraph=no
ctl generate --batch "$dir/batch" --json >"$dir/json" || fail "reference"
outputs <"$dir/json" >"$dir/want"
[ "$(grep -c . "$dir/want")" = 30 ] || fail "reference: $(cat "$dir/want")"
stop

start --set model.path="$DEMO" --set device.backend=cpu --set device.overlap_depth=3 \
    --set device.step_delay_us=2000
ctl generate --batch "$dir/batch" --n-requests 3 --json >"$dir/json" 2>"$dir/err" &
g=$!
n=0
while kill -0 $g 2>/dev/null; do
    for v in graph.use_cudagraph=no graph.capture_sizes=1,8,64 graph.use_cudagraph=yes \
        graph.capture_sizes=5 graph.capture_sizes=; do
        expect 0 ctl set $v
    done
    n=$((n + 1))
done
wait $g || fail "requests failed: $(cat "$dir/err")"
[ $n -gt 0 ] || fail "the requests ended before a change"
outputs <"$dir/json" | awk 'NR == FNR { want[FNR] = $0; n = FNR; next }
    $0 != want[(FNR - 1) % n + 1] { print FNR ": " $0; bad = 1 }
    END { exit bad || FNR != 3 * n }' "$dir/want" - >"$dir/diff" ||
    fail "outputs differ: $(head -n 3 "$dir/diff")"
in_force() { ctl model --json | json 'd["graph"]' | grep -q "$1"; }
for i in $(seq 10); do
    expect 0 ctl set graph.use_cudagraph=yes
    expect 0 ctl set graph.use_cudagraph=no
done
until_true 5 in_force False || fail "graphs are on after the last change turned them off"
for i in $(seq 10); do
    expect 0 ctl set graph.use_cudagraph=no graph.use_cudagraph=yes
done
until_true 5 in_force True || fail "graphs are off after the last change turned them on"
grep -q 'graphs stay as they are' "$dir/log" && fail "a change was lost"
# The command refuses values that the worker could not use, and nothing changes.
expect 65 ctl set graph.capture_sizes=1,513
has "$out" '513 is more than graph.prefill_max_tokens = 512'
expect 0 ctl config graph.capture_sizes
[ -z "$out" ] || fail "graph.capture_sizes is $out"
stop

# Values accepted by fdctl set or a reload do not prevent the next worker from starting.
printf '[graph]\nprefill_max_tokens = 4000\n' >"$dir/x.ini"
start -c "$dir/x.ini" --set model.path="$DEMO"
expect 0 ctl set graph.capture_sizes=1,4000
printf '[graph]\ncapture_sizes = 1,5000\nprefill_max_tokens = 5000\n' >"$dir/x.ini"
expect 65 ctl reload
has "$out" 'with the values that need a restart: graph.capture_sizes: 5000 is more'
expect 0 ctl debug kill-worker
until_true 20 grep -q 'worker 0 started.*generation 2' "$dir/log" ||
    fail "no second worker"
expect 0 ctl --wait $((20 * slow)) generate -p 'In the beginning' --max-tokens 4
stop
