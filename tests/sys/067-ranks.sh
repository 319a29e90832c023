#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A group of two and of four virtual devices: the same text as one device, the output of
# the tools, and a rank that fails or stops: the worker ends and names the rank.
. "$(dirname "$0")/lib.sh"
test_device=()
prompt='In the beginning'
ask() { ctl generate -p "$prompt" --max-tokens 48 --temperature 0; }
model() { start --set model.path="$DEMO" --set daemon.worker_hang_ms=60000 "$@"; }
two() { model --set device.list=cpu:2 --set tensor_parallel_size=2 "$@"; }
worker_pid() { ctl status --json | json 'd["worker"]["pid"]'; }

model --set device.backend=cpu
want=$(ask) || fail "no text of one device"
[ ${#want} -gt 40 ] || fail "short text: $want"
finish

# ---- two ranks, and the tools' output
two
[ "$(ask)" = "$want" ] || fail "other text on two devices: $(ask), not $want"
expect 0 ctl status
has "$out" 'rank 0: device cpu-0'
has "$out" 'rank 1: device cpu-1'
has "$out" 'sums over 2 devices: own, in the memory of this process, (whole|in shares|whole up to [0-9.]+ [KM]iB), limit 2000 ms'
expect 0 ctl status --json
ranks=$(json 'd["worker"]["tensor_parallel_size"], [e["rank"] for e in d["worker"]["devices"]]' <<<"$out")
[ "$ranks" = "2 [0, 1]" ] || fail "ranks: $ranks"
expect 0 ctl memory
has "$out" 'each of 2 devices'
has "$out" 'rank 1, cpu-1: .* planned'
has "$out" 'collectives +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB .*what ranks write to each other'
expect 0 ctl program
has "$out" 'all_reduce_rmsnorm'
has "$out" 'all_gather'
expect 0 ctl config parallel.custom_all_reduce
has "$out" 'auto: yes'
expect 0 ctl profile --batch 2 --context 32 -n 2
has "$out" 'allreduce +12 '
has "$out" 'allgather +1 '
ctl trace --all --perfetto "$dir/trace.json" || fail "no trace"
grep -q 'device of rank 1' "$dir/trace.json" || fail "no track of rank 1"
has "$(cat "$dir/log")" 'load: device cpu-1, rank 1'

# ---- steps in two halves
finish
two --set parallel.overlap_min_tokens=2 --set graph.use_cudagraph=no
[ "$(ask)" = "$want" ] || fail "other text in halves: $(ask), not $want"
[ "$(ctl stat -1 --json | json 'd["worker"]["steps_halved"]')" -gt 0 ] || fail "no step went in halves"
finish
model --set device.backend=cpu --set parallel.overlap_min_tokens=2
logged 1 'parallel.overlap_min_tokens = 2 is without use: steps go in halves where two devices' ||
    fail "one device says nothing of parallel.overlap_min_tokens"
finish
two

# ---- a device that fails, a launch thread that stops
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }
# The worker ends; until then, and a while longer, status answers: half of the times in
# 100 ms, as the machine may be busy.
status_answers() { # PID
    local t0 n=0 late=0 end
    end=$(($(now_ms) + 20000 * slow))
    while [ $n -lt 6 ] || test -e "/proc/$1"; do
        t0=$(now_ms)
        [ "$t0" -lt "$end" ] || fail "the worker goes on"
        ctl status >/dev/null || fail "status: no answer"
        [ $(($(now_ms) - t0)) -lt $((100 * slow)) ] || late=$((late + 1))
        n=$((n + 1))
    done
    [ $((2 * late)) -le $n ] || fail "status: $late of $n answers took more than 100 ms"
}
for fault in fail-device stop-rank; do
    w=$(worker_pid)
    expect 0 ctl debug +faults
    expect 0 ctl debug "$fault"
    ask >"$dir/cut" 2>&1 &
    cut=$!
    status_answers "$w"
    wait $cut && fail "$fault: no error"
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

# ---- four; refusals
model --set device.list=cpu:4 --set parallel.tensor_parallel_size=4 --set graph.use_cudagraph=no \
    --set device.overlap_depth=0 --set parallel.custom_all_reduce=yes
[ "$(ask)" = "$want" ] || fail "other text on four devices: $(ask), not $want"
# each may use its quarter of the free memory, less what others have taken since
expect 0 ctl memory --json
[ "$(json 'all(d["limit_bytes"] > 0.5 * e["device_free_bytes"] for e in d["devices"])' <<<"$out")" = True ] ||
    fail "four devices may use little of the free memory: $out"
finish

# ---- two ranks without access to each other's memory
model --set device.list=cpu:2 --set parallel.tensor_parallel_size=2 \
    --set disable_custom_all_reduce=yes
[ "$(ask)" = "$want" ] || fail "other text through the host's memory: $(ask), not $want"
expect 0 ctl status
has "$out" "sums over 2 devices: through the host's memory"
expect 0 ctl memory
has "$out" 'shared by ranks'
expect 0 ctl config parallel.custom_all_reduce
has "$out" 'no'
finish

# ---- two groups of two: what is planned for the host is for both ranks, the sums are of four devices
two --set device.list=cpu:4 --set parallel.data_parallel_size=2 --set kv.swap_space=0.01 \
    --set kv.num_blocks=100 --set device.shared=yes
both() { [ "$(ctl status --json | json 'd["groups"]["ready"]')" = 2 ]; }
until_true 20 both || fail "not two groups: $(ctl status)"
expect 0 ctl memory --json
json '"ok" if all(0.008 * 2**30 < r["bytes"] < 0.01 * 2**30 and r["bytes"] == g["blocks"]["host_total"] * g["blocks"]["host_block_bytes"] for g in d["groups"] for r in g["rows"] if r["name"] == "swap space") and d["sum"]["device_bytes"] == sum(e["bytes"] for g in d["groups"] for e in g["devices"]) else d["sum"]' <<<"$out" >"$dir/sums"
[ "$(cat "$dir/sums")" = ok ] || fail "sums: $(cat "$dir/sums"), $out"
finish

# ---- four, with two KV heads: who has the same ones divides their tokens
kv_of() { # C: tokens and shares
    model --set device.list=cpu:4 --set parallel.tensor_parallel_size=4 --set kv.num_blocks=100 \
        --set decode_context_parallel_size="$1"
    [ "$(ask)" = "$want" ] || fail "other text with $1 owners: $(ask), not $want"
    expect 0 ctl model --json
    json 'd["kv"]["decode_context_parallel_size"], d["kv"]["block_bytes"]' <<<"$out"
    finish
}
one=$(kv_of 1)
two=$(kv_of 0)
has "$(cat "$dir/log")" 'load: a KV head is on 2 ranks: each has [0-9]+ tokens of a block'
[ "${one%% *} ${two%% *}" = "1 2" ] || fail "owners: $one, $two"
[ "${one#* }" = $((2 * ${two#* })) ] || fail "bytes of a block: $one, $two"
refused() { # PATTERN ARGS
    local pat=$1; shift
    expect 78 timeout $((30 * slow)) "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" \
        --set model.path="$DEMO" "$@"
    has "$out" "$pat"
}
refused 'tensor_parallel_size = 3: num_attention_heads [0-9]+ is not divisible' \
    --set device.list=cpu:3 --set tensor_parallel_size=3
refused 'has 2 devices, and parallel.tensor_parallel_size = 1 uses one' --set device.list=cpu:2
refused 'decode_context_parallel_size = 3: with num_key_value_heads 2 and tensor_parallel_size = 4 a KV head is on 2 ranks; 1, 2 are possible' \
    --set device.list=cpu:4 --set tensor_parallel_size=4 --set decode_context_parallel_size=3
refused 'parallel.custom_all_reduce = no: parallel.prefill_context_parallel_size = 2 copies' \
    --set device.list=cpu:2 --set prefill_context_parallel_size=2 --set disable_custom_all_reduce=yes
exit 0
