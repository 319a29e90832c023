#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A waiting request ends after sched.max_waiting_time_ms, however long the steps of the
# busy worker are: in the gate's queue, and queued by the worker and not begun. A request
# that has begun goes on. Also: logprobs are allowed or not by the current configuration.
. "$(dirname "$0")/lib.sh"

# Each step takes 4 s, and one sequence runs.
start --set model.path=null --set device.backend=null --set device.step_delay_us=4000000 \
    --set sched.max_num_seqs=1 --set sched.max_waiting_time_ms=500
now() { date +%s%3N; }
ctl generate -p abc --max-tokens 2 --ignore-eos --json >"$dir/first" 2>&1 & first=$!
until_true 20 sh -c "'$FDCTL' --runtime-dir '$run' stat -1 --json | grep -q '\"seqs_running\": *1'" ||
    fail "the first request does not run"
t0=$(now)
pids=()
for i in 1 2 3 4 5; do
    ( "$FDCTL" --runtime-dir "$run" generate -p abc --max-tokens 2 >"$dir/late.$i" 2>&1
      now >"$dir/end.$i" ) & pids+=($!)
done
wait "${pids[@]}"
for i in 1 2 3 4 5; do
    has "$(cat "$dir/late.$i")" 'E_DEADLINE'
    ms=$(($(cat "$dir/end.$i") - t0))
    # half a second plus the delay of a busy machine; a step takes four
    [ $ms -ge 450 ] || fail "request $i ended after $ms ms"
    [ $ms -lt $((3000 * slow)) ] || fail "request $i waited $ms ms of at most 500: as long as a step"
done
wait $first || fail "the request that had begun: $(cat "$dir/first")"
stop

start --set model.path=null --set device.backend=null --set output.max_logprobs=2
logprobs() { ctl generate -p abc --max-tokens 2 --ignore-eos --json "$@"; }
none='E_UNSUPPORTED: .*logprobs; output.enable_logprob is no'
expect 0 logprobs --logprobs 2
expect 65 logprobs --logprobs 3
# more than at the start, at once
expect 0 ctl set output.max_logprobs=5
expect 0 logprobs --logprobs 5 --prompt-logprobs 4
ctl status --json | json 'd["model"]["max_logprobs"]' | grep -qx 5 || fail "status still says $(ctl status --json)"
expect 0 ctl set output.max_logprobs=1
expect 65 logprobs --logprobs 2
expect 65 logprobs --prompt-logprobs 2
expect 0 logprobs --logprobs 1
for how in logprobs prompt-logprobs; do
    expect 0 ctl set output.enable_logprob=no
    for k in 0 1; do
        expect 65 logprobs --$how $k
        has "$out" "$none"
    done
    expect 0 logprobs
    expect 0 ctl set output.enable_logprob=yes
    expect 0 logprobs --$how 0
done
stop
start --set model.path=null --set device.backend=null --set output.enable_logprob=no
expect 65 logprobs --logprobs 0
has "$out" "$none"
expect 0 ctl set output.enable_logprob=yes
expect 0 logprobs --logprobs 20
stop
