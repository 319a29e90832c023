#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The effect of each parameter, seen from outside: each case sets one to a value other
# than its default and checks its effect, not its listing (tests/params.tsv has the test
# of each parameter; tests/mutants/ignored builds daemons that ignore one). Usage:
# 018-parameters.sh [SECTION.KEY ...]
. "$(dirname "$0")/lib.sh"
NULL=(--set model.path=null --set device.backend=null)
CPU=(--set model.path="$DEMO" --set device.backend=cpu)
ids='[5,6,7]'
echo "$ids" >"$dir/ids"
worker() { pgrep -P "$fdd_pid" | head -n 1; }
# N prompts of LENGTH tokens each, as a batch: prompts LENGTH N [KEY:VALUE,...]
prompts() {
    python3 -c 'import json, sys
length, n, more = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for i in range(n):
    ids = [300 + (7 * i + k * k) % 3000 for k in range(length)]
    print(json.dumps(dict({"ids": ids, "max_tokens": 4, "temperature": 0, "ignore_eos": True},
        **json.loads("{" + more + "}"))))' "$1" "$2" "${3:-}"
}
# Evaluates an expression over s, the steps of the trace.
steps() { ctl trace -n 4000 --json | json "(lambda s: $1)(d['steps'])"; }
answer() { # of the demo model to a prompt, with these options: the ids
    ctl generate -p 'In the beginning' --max-tokens 20 --ignore-eos --json "$@" >"$dir/json" ||
        fail "generate $*"
    json 'd["ids"]' <"$dir/json"
}
is() { [ "$1" = "$2" ] || fail "$3: $1 instead of $2"; }
running() { # a request that lasts until the daemon ends
    ctl generate --ids-file "$dir/ids" --max-tokens 60000 --ignore-eos "$@" >/dev/null 2>&1 &
    until_true 10 sh -c "'$FDCTL' --runtime-dir '$run' requests --json | grep -q '\"running\"'" ||
        fail "the request does not run: $(ctl requests --json)"
}

# ---- daemon ---------------------------------------------------------------------

daemon_runtime_dir() {
    mkdir -m 755 "$dir/other"
    RUNTIME_DIRECTORY=$dir/other launch "${NULL[@]}"
    until_true 10 sh -c "ls $dir/*/fdd.sock" || fail "no socket"
    [ -S "$run/fdd.sock" ] || fail "the socket is $(ls "$dir"/*/fdd.sock)"
}
daemon_worker() {
    printf '#!/bin/sh\n: >%s/mine\nexec %s "$@"\n' "$dir" "$WORKER" >"$dir/worker"
    chmod +x "$dir/worker"
    start --set daemon.worker="$dir/worker" "${NULL[@]}"
    [ -e "$dir/mine" ] || fail "another worker was started"
}
daemon_drain_timeout_ms() { # default: 30 s
    start "${NULL[@]}" --set device.step_delay_us=20000 --set daemon.drain_timeout_ms=200
    running
    local t=$SECONDS
    stop
    [ $((SECONDS - t)) -lt 20 ] || fail "it waited $((SECONDS - t)) s for a request"
}
daemon_worker_start_timeout_ms() { # default: 10 minutes
    printf '#!/bin/sh\nexec sleep 1000\n' >"$dir/worker"
    chmod +x "$dir/worker"
    launch --set daemon.worker="$dir/worker" "${NULL[@]}" \
        --set daemon.worker_start_timeout_ms=1000
    until_true 20 grep -q 'not ready within daemon.worker_start_timeout_ms' "$dir/log" ||
        fail "a worker that is never ready is waited for"
}

# ---- ipc ------------------------------------------------------------------------

ipc_socket() {
    launch --set ipc.socket="$dir/clients" "${NULL[@]}"
    until_true 10 test -S "$run/admin.sock" || fail "no socket"
    expect 0 "$FDCTL" --socket "$dir/clients" --admin "$run/admin.sock" --wait $((20 * slow)) ping
    [ ! -e "$run/fdd.sock" ] || fail "another socket too"
}
ipc_admin_socket() {
    launch --set ipc.admin_socket="$dir/admins" "${NULL[@]}"
    until_true 10 test -S "$run/fdd.sock" || fail "no socket"
    expect 0 "$FDCTL" --socket "$run/fdd.sock" --admin "$dir/admins" status
    [ ! -e "$run/admin.sock" ] || fail "another socket too"
}
# A group other than that of new files.
other_group() {
    if [ "$(id -u)" = 0 ]; then echo daemon; return; fi
    id -Gn | tr ' ' '\n' | grep -vx "$(id -gn)" | head -n 1
}
ipc_group() {
    local g; g=$(other_group)
    [ -n "$g" ] || skip "this user has one group"
    start "${NULL[@]}" --set ipc.group="$g"
    is "$(stat -c '%G %a' "$run/fdd.sock")" "$g 660" "group of the client socket"
}
ipc_admin_group() { # a user of that group may end requests
    [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || skip "not root, or no setpriv"
    local gid; gid=$(getent group daemon | cut -d : -f 3)
    setpriv --reuid 4242 --regid "$gid" --clear-groups test -x "$FDCTL" ||
        skip "others cannot run $FDCTL"
    start "${NULL[@]}" --set ipc.admin_group=daemon
    expect 0 setpriv --reuid 4242 --regid "$gid" --clear-groups "$FDCTL" \
        --admin "$run/admin.sock" set log.level=debug
}
loops() { # loop iterations of the gate while a client sends a request now and then
    start "${NULL[@]}" --set ipc.spin_us="$1"
    local i; for i in $(seq 10); do expect 0 ctl ping; sleep 0.02; done
    n=$(ctl stat -1 --json | json 'd["gate"]["loops"]')
    stop
}
ipc_spin_us() { # after traffic the gate polls instead of sleeping
    local n few
    loops 0
    few=$n
    loops 10000
    [ "$n" -gt $((10 * few)) ] || fail "$n loops of the gate, without polling $few"
}

# ---- sched ----------------------------------------------------------------------

sched_max_num_seqs() {
    start "${NULL[@]}" --set sched.max_num_seqs=3 --set device.step_delay_us=1000
    prompts 3 12 '"ids": [5, 6, 7]' >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps 'max(x["rows"] for x in s)')" 3 "sequences of a step"
}
sched_max_num_batched_tokens() {
    start "${CPU[@]}" --set sched.max_num_batched_tokens=96 --set sched.max_num_seqs=16
    prompts 500 1 >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps 'max(x["tokens"] for x in s)')" 96 "tokens of a step"
}
sched_enable_chunked_prefill() { # without: a step has room for a whole prompt
    start "${CPU[@]}" --set sched.enable_chunked_prefill=no
    prompts 700 1 >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps 's[0]["tokens"]')" 700 "tokens of the first step"
}
# Four prompts of 300 tokens come together, a step has 200, however long it takes: prints
# how many of them have tokens in the same step.
split_together() {
    start "${CPU[@]}" --set sched.max_num_batched_tokens=200 --set sched.max_num_seqs=16 \
        --set sched.max_num_partial_prefills=4 --set sched.max_long_partial_prefills=4 \
        --set sched.itl_target_ms=0 "$@"
    prompts 300 4 >"$dir/batch"
    expect 0 ctl pause
    ctl generate --batch "$dir/batch" --json >/dev/null &
    until_true 10 sh -c "'$FDCTL' --runtime-dir '$run' status | grep -q '4 queued'" ||
        fail "not queued: $(ctl status)"
    expect 0 ctl pause --off
    wait $! || fail "generate"
    together=$(steps 'max(x["prefill"] for x in s)')
}
sched_max_long_partial_prefills() { # long prompts share a step
    local together
    split_together
    [ "$together" -ge 3 ] || fail "at most $together prompts in a step"
}
sched_long_prefill_token_threshold() { # short ones go one after the other
    local together
    split_together --set sched.long_prefill_token_threshold=800
    [ "$together" -le 2 ] || fail "$together short prompts in a step"
}
sched_itl_target_ms() { # a prompt is computed in chunks while an answer runs
    local most
    start "${CPU[@]}" --set sched.itl_target_ms=1 --set kv.enable_prefix_caching=no \
        --set device.step_delay_us=2000
    prompts 600 1 >"$dir/batch"
    # step times are learnt from some 30 steps
    ctl generate --batch "$dir/batch" --json >/dev/null && answer --max-tokens 60 >/dev/null ||
        fail "generate"
    running --max-tokens 1000
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    most=$(steps 'max([x["tokens"] for x in s if x["prefill"] and x["decode"]] or [0])')
    [ "$most" -gt 0 ] || fail "no prompt was computed while an answer ran"
    [ "$most" -lt 200 ] || fail "a step of $most tokens while an answer ran"
    stop
    # the automatic target is shown once steps were measured
    start "${CPU[@]}"
    answer --max-tokens 60 >/dev/null
    expect 0 ctl config sched.itl_target_ms
    has "$out" 'auto: '
    expect 0 ctl status
    has "$out" 'prompts leave running answers'
    logged 1 'sched.itl_target_ms is '
}
# A prompt of 20 tokens arrives while one of 1,000 is computed: prints after how many
# percent of the long one's steps the short one's answer begins.
short_behind_long() {
    local at
    start "${CPU[@]}" --set sched.max_num_batched_tokens=16 --set sched.max_num_seqs=16 \
        --set sched.long_prefill_token_threshold=1010 --set sched.itl_target_ms=0 \
        --set kv.enable_prefix_caching=no --set kv.block_size=16 \
        --set device.step_delay_us=30000 "$@"
    prompts 1000 1 >"$dir/long"
    prompts 20 1 >"$dir/short"
    ctl generate --batch "$dir/long" --json >"$dir/l" &
    until_true 10 sh -c "'$FDCTL' --runtime-dir '$run' requests --json | grep -q '\"running\"'" ||
        fail "the long prompt does not run"
    ctl generate --batch "$dir/short" --json >"$dir/s" || fail "generate"
    steps 'sum(1 for x in s if x["prefill"])' >"$dir/at"
    wait $! || fail "generate"
    at=$(cat "$dir/at")
    passed=$((at * 100 / $(steps 'sum(1 for x in s if x["prefill"])')))
}
sched_max_overtake_ms() { # a short prompt's answer does not wait for a long prompt
    local passed
    short_behind_long --set sched.max_overtake_ms=60000
    [ "$passed" -lt 70 ] || fail "a short prompt was answered after $passed % of a long one"
    stop
    short_behind_long --set sched.max_overtake_ms=0
    [ "$passed" -ge 98 ] || fail "with 0 a short prompt was answered after $passed %"
}
sched_max_num_partial_prefills() { # a short prompt shares a long one's steps, or waits
    short_behind_long --set sched.max_overtake_ms=0 --set sched.long_prefill_token_threshold=500 \
        --set sched.max_num_partial_prefills=2
    [ "$passed" -lt 70 ] || fail "with 2 a short prompt was answered after $passed % of a long one"
    stop
    short_behind_long --set sched.max_overtake_ms=0 --set sched.long_prefill_token_threshold=500 \
        --set sched.max_num_partial_prefills=1
    [ "$passed" -ge 98 ] || fail "with 1 a short prompt was answered after $passed %"
}
sched_max_penalty_seqs() {
    start "${CPU[@]}" --set sched.max_penalty_seqs=0
    expect 65 ctl generate -p In --max-tokens 4 --repetition-penalty 1.2
    has "$out" 'sched.max_penalty_seqs'
}
sched_seed() { # requests that name no seed
    local a b
    start "${CPU[@]}" --set sched.seed=5
    a=$(answer)
    stop
    start "${CPU[@]}" --set sched.seed=5
    b=$(answer)
    is "$b" "$a" "sched.seed = 5"
}

# ---- model ----------------------------------------------------------------------

model_name() {
    start "${NULL[@]}" --set model.name=my-own-name
    is "$(ctl model --json | json 'd["name"]')" my-own-name "name of the model"
}
model_tokenizer() {
    mkdir "$dir/m"
    cp "$DEMO/config.json" "$DEMO/model.safetensors" "$dir/m"
    start --set model.path="$dir/m" --set device.backend=cpu --set model.tokenizer="$DEMO"
    expect 0 ctl tokenize -p 'In the beginning'
}
model_generation_config() { # what a request does not set is the model's
    local a b
    mkdir "$dir/m"
    cp "$DEMO"/* "$dir/m"
    echo '{"do_sample": false, "top_p": 0.5, "top_k": 7, "repetition_penalty": 3}' \
        >"$dir/m/generation_config.json"
    start --set model.path="$dir/m" --set device.backend=cpu
    is "$(ctl model --json | json 'd["sampling"]["temperature"]')" 0.0 "temperature"
    is "$(ctl model --json | json 'd["sampling"]["top_p"]')" 0.5 "top_p"
    is "$(ctl model --json | json 'd["sampling"]["top_k"]')" 7 "top_k"
    is "$(ctl model --json | json 'd["sampling"]["repetition_penalty"]')" 1.0 \
        "a penalty beyond its range"
    grep -q 'repetition_penalty = 3 is not in .0.001, 2. and not taken' "$dir/log" ||
        fail "no warning"
    a=$(ctl generate -p 'In the' --max-tokens 24 --seed 1)
    b=$(ctl generate -p 'In the' --max-tokens 24 --seed 2)
    is "$b" "$a" "greedy by do_sample: false"
    a=$(ctl generate -p 'In the' --max-tokens 24 --temperature 2 --top-p 1 --top-k 0 --seed 2)
    [ "$a" != "$b" ] || fail "a temperature that is set does not count"
    stop
    start --set model.path="$dir/m" --set device.backend=cpu \
        --set model.generation_config=off
    is "$(ctl model --json | json 'd["sampling"]["temperature"]')" 1.0 "temperature, off"
    a=$(ctl generate -p 'In the' --max-tokens 24 --seed 1)
    b=$(ctl generate -p 'In the' --max-tokens 24 --seed 2)
    [ "$a" != "$b" ] || fail "greedy with model.generation_config = off"
}
model_max_model_len() {
    start "${CPU[@]}" --set model.max_model_len=64
    prompts 70 1 >"$dir/batch"
    expect 65 ctl generate --batch "$dir/batch"
    prompts 50 1 >"$dir/batch"
    expect 0 ctl generate --batch "$dir/batch"
}
dummy() { # the answer of random weights
    if [ ! -e "$dir/m" ]; then
        mkdir "$dir/m"
        cp "$DEMO"/*.json "$dir/m"
    fi
    start --set model.path="$dir/m" --set device.backend=cpu --set model.load_format=dummy "$@"
    a=$(answer --temperature 0)
    stop
}
model_load_format() { local a; dummy; [ -n "$a" ] || fail "no answer"; }
model_dummy_seed() {
    local a b
    dummy
    b=$a
    dummy --set model.dummy_seed=2
    [ "$a" != "$b" ] || fail "the same weights of another seed"
}
# ---- device ---------------------------------------------------------------------

device_backend() { # without a device, auto is cpu
    start --set model.path="$DEMO" --set device.backend=null
    is "$(ctl model --json | json 'd["backend"]')" null backend
}
device_threads() { # of the worker: those of the backend differ
    local a b
    start "${CPU[@]}" --set device.threads=1
    a=$(ls "/proc/$(worker)/task" | wc -l)
    stop
    start "${CPU[@]}" --set device.threads=6
    b=$(ls "/proc/$(worker)/task" | wc -l)
    is $((b - a)) 5 "more threads with 6 than with 1"
}
device_nice() { # of the worker's threads that compute: above that of the others
    local own v t
    own=$(ps -o ni= -p $$ | tr -d ' ')
    for v in 0 2; do
        start "${CPU[@]}" --set device.threads=2 --set device.nice=$v
        for t in fdk-pool fdk-stream; do
            is "$(ps -L -o ni=,comm= -p "$(worker)" | awk -v t=$t '$2 == t { print $1; exit }')" \
                $((own + v > 19 ? 19 : own + v)) "nice value of $t with $v"
        done
        is "$(ps -L -o ni=,comm= -p "$(worker)" | awk '$2 == "fdd-engine" { print $1 }')" "$own" engine
        stop
    done
}
device_overlap_depth() { # steps launched that are not collected, with the launched one
    local n most
    for n in 0 1 3 4; do
        start "${NULL[@]}" --set device.step_delay_us=2000 --set device.overlap_depth=$n
        ctl generate --ids-file "$dir/ids" --max-tokens 60 --ignore-eos >/dev/null ||
            fail generate
        most=$(steps 'max(sum(y["t_launch_ns"] <= x["t_launch_ns"] < y["t_collect_ns"]
            for y in s) for x in s)')
        is "$most" $((n + 1)) "steps on their way with depth $n"
        stop
    done
}
device_step_delay_us() {
    start "${NULL[@]}" --set device.step_delay_us=30000
    ctl generate --ids-file "$dir/ids" --max-tokens 3 --ignore-eos >/dev/null || fail generate
    is "$(steps 'min(x["device_us"] for x in s) >= 30000')" True "a step of 30 ms or more"
}

# ---- graph ----------------------------------------------------------------------

graph_use_cudagraph() {
    start "${CPU[@]}" --set graph.use_cudagraph=no
    answer >/dev/null
    is "$(steps 'sum(x["graph"] for x in s)')" 0 "steps by graphs"
}
graph_capture_sizes() {
    start "${CPU[@]}" --set graph.capture_sizes=24,40
    prompts 19 1 >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps 'sorted({x["padded_tokens"] for x in s})')" '[24]' "padded sizes"
}
graph_prefill_max_tokens() {
    start "${CPU[@]}" --set graph.prefill_max_tokens=64
    prompts 100 1 >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps '[x["graph"] for x in s if x["prefill"]]')" '[False]' "a step of 100 tokens by graph"
}
recorded() { grep -c 'recorded a graph of' "$dir/log"; }
graph_capture() { # lazy: nothing is recorded before a request comes
    start "${CPU[@]}" --set graph.capture=lazy --set log.level=debug
    is "$(recorded)" 0 "graphs recorded at the start"
    answer >/dev/null
    until_true 10 grep 'recorded a graph of 1 tokens' "$dir/log" || fail "none is recorded"
}

# ---- kv -------------------------------------------------------------------------

kv_block_size() {
    start "${CPU[@]}" --set kv.block_size=16 --set kv.static_decode_blocks=0
    prompts 100 1 >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps 's[0]["blocks_used"]')" 7 "blocks of 100 tokens"
}
kv_num_blocks() {
    start "${NULL[@]}" --set kv.num_blocks=100
    ctl generate --ids-file "$dir/ids" --max-tokens 3 --ignore-eos >/dev/null || fail generate
    is "$(steps 's[0]["blocks_used"] + s[0]["blocks_free"]')" 100 "blocks"
}
kv_memory_bytes() { # the KV of a token is 6 KiB
    start "${CPU[@]}" --set kv.memory_bytes=10m
    answer >/dev/null
    is "$(steps '20 < s[0]["blocks_used"] + s[0]["blocks_free"] < 28')" True "blocks in 10 MiB"
}
kv_kv_cache_ratio() { # half of 20 blocks: two prompts of 6 do not come together
    start "${CPU[@]}" --set kv.num_blocks=20 --set kv.kv_cache_ratio=0.5 \
        --set kv.static_decode_blocks=0 --set model.max_model_len=600
    prompts 380 2 >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps 'max(x["rows"] for x in s)')" 1 "prompts at a time"
}
kv_static_decode_blocks() {
    start "${CPU[@]}" --set kv.num_blocks=26 --set kv.static_decode_blocks=9 --set device.overlap_depth=0
    prompts 20 3 '"max_tokens": 500' >"$dir/batch"
    ctl generate --batch "$dir/batch" --json >/dev/null || fail "generate"
    is "$(steps 'max(x["rows"] for x in s)')" 2 "prompts at a time"
}
kv_enable_prefix_caching() {
    start "${CPU[@]}" --set kv.enable_prefix_caching=no
    prompts 300 1 >"$dir/batch"
    for _ in 1 2; do
        ctl generate --batch "$dir/batch" --json >"$dir/json" || fail "generate"
    done
    is "$(json 'd["cached_tokens"]' <"$dir/json")" 0 "cached tokens"
}
kv_dtype() {
    local a b
    start "${CPU[@]}"; a=$(answer --temperature 0 --logprobs 1 >/dev/null
        json 'd["logprobs"]' <"$dir/json"); stop
    start "${CPU[@]}" --set kv.dtype=int8; b=$(answer --temperature 0 --logprobs 1 >/dev/null
        json 'd["logprobs"]' <"$dir/json")
    [ "$a" != "$b" ] || fail "int8 keys and values change no bit"
}

# ---- quant, output, log ---------------------------------------------------------

weights_bytes() { # of the demo model
    start "${CPU[@]}" "$@"
    n=$(ctl memory --json | json 'sum(r["bytes"] for r in d["rows"] if "weights" in r["name"])')
    stop
}
quant_weights() {
    local n all
    weights_bytes
    all=$n
    weights_bytes --set quant.weights=wint4
    [ "$n" -lt $((all * 3 / 5)) ] || fail "$n bytes of weights, not quantized $all"
}
quant_group_size() { # scales take room
    local n few
    weights_bytes --set quant.weights=wint8
    few=$n
    weights_bytes --set quant.weights=wint8 --set quant.group_size=32
    [ "$n" -gt $((few + few / 20)) ] || fail "$n bytes with a scale for 32, $few with one a row"
}
output_default_max_tokens() {
    start "${NULL[@]}" --set output.default_max_tokens=7
    ctl generate --ids-file "$dir/ids" --ignore-eos --json >"$dir/json" || fail generate
    is "$(json 'len(d["ids"])' <"$dir/json")" 7 "tokens of an answer"
}

output_enable_logprob() {
    start "${CPU[@]}" --set output.enable_logprob=no
    expect 65 ctl generate -p In --max-tokens 2 --logprobs 3
}
output_max_logprobs() {
    start "${CPU[@]}" --set output.max_logprobs=2
    expect 65 ctl generate -p In --max-tokens 2 --logprobs 3
    expect 0 ctl generate -p In --max-tokens 2 --logprobs 2
}
log_rate() { # 0: every line is shown
    start "${NULL[@]}" --set log.rate=0 --set log.requests=errors
    local i; for i in $(seq 300); do echo '{"ids": [5], "max_tokens": 99999999}'; done >"$dir/batch"
    ctl generate --batch "$dir/batch" >/dev/null 2>&1
    stop
    is "$(grep -c 'request: rejected' "$dir/log")" 300 "refused requests that were logged"
}

if [ $# = 1 ]; then
    declare -F "${1/./_}" >/dev/null || fail "no case $1"
    "${1/./_}"
    exit
fi
cases=("$@")
[ $# -gt 0 ] || mapfile -t cases < <(
    sed -n 's!.*\ttests/sys/018-parameters.sh !!p' "$FDD_SRC/tests/params.tsv")
[ ${#cases[@]} -gt 0 ] || fail "tests/params.tsv names no case"
# a sample, another each time
if [ -n "${FDD_SAN_RUN:-}" ] && [ $# = 0 ] && [ -z "${FDD_LONG:-}" ]; then
    mapfile -t cases < <(printf '%s\n' "${cases[@]}" | shuf -n 8)
    echo "a sample: ${cases[*]}"
fi
for c in "${cases[@]}"; do
    "$0" "$c"
    rc=$?
    [ $rc = 0 ] || echo "case $c: exit $rc"
    [ $rc = 0 ] || [ $rc = 77 ] || exit 1
done
