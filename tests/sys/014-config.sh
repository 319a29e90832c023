#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The output of fdctl config after a default start is tests/unit/config.golden; to write
# it again: FDD_GOLDEN=write tests/sys/014-config.sh. Names of another server's command
# line, in the file and by --set; the memory table; all errors at once; --check-config;
# more files; output of config and reload.
. "$(dirname "$0")/lib.sh"
golden=$FDD_SRC/tests/unit/config.golden
start --set model.path=null --set device.backend=null
ctl config --json >"$dir/config.json" || fail "fdctl config --json"
# Values that the test itself must set are marked, not shown.
json '"\n".join("%s = %s" % (c["name"], c["value"] if c["origin"] == "default" else "(set)")
    for c in d["config"])' <"$dir/config.json" >"$dir/config"
if [ "${FDD_GOLDEN:-}" = write ]; then
    cp "$dir/config" "$golden"
fi
not=$([ ${#test_device[@]} = 0 ] || echo '^device.(list|test_entry|shared) ')
diff -u <(grep -vE "${not:-^\$}" "$golden") <(grep -vE "${not:-^\$}" "$dir/config") || fail "the defaults are not those of config.golden"
# The text form has the same values.
expect 0 ctl config
n=$(printf '%s\n' "$out" | grep -c .)
[ "$n" -ge "$(grep -c . "$golden")" ] || fail "fdctl config shows $n lines"
stop

# A command line of another server; most of it has the same meaning.
cat >"$dir/x.ini" <<'INI'
port = 8188
max-num-seqs = 8
[sched]
enable-chunked-prefill = True
max_num_partial_prefills = 2
[kv]
kv-cache-ratio = 0.75
[parallel]
tensor_parallel_size = 1
[compat]
splitwise_role = mixed
INI
start -c "$dir/x.ini" --set model=null --set device.backend=null --set max-model-len=2048 \
    --set 'graph-optimization-config={"use_cudagraph":true,"graph_opt_level":1,"cudagraph_capture_sizes":[4,2,1]}' \
    --set speculative_config=null --set num-gpu-blocks-override=100 --set engine_worker_queue_port=8002
until_true 10 grep -q 'x.ini:1: port is accepted and has no effect' "$dir/log" || fail "no warning of the port"
until_true 10 grep -q 'graph_opt_level accepted without effect' "$dir/log" || fail "no note of graph_opt_level"
expect 0 ctl config graph.capture_sizes
has "$out" '1,2,4'
expect 0 ctl config --origin kv.kv_cache_ratio
has "$out" '0.75'
expect 0 ctl memory
has "$out" '100 blocks of 64 tokens'
has "$out" '6400 tokens: 3 requests of max_model_len 2048'
ctl memory --json | json 'sum(r["bytes"] for r in d["rows"] if r["where"] == "device") ==
    d["device_bytes"] and sum(r["bytes"] for r in d["rows"] if r["where"] == "host") ==
    d["host_bytes"] and d["blocks"]["total"] == 100 and d["blocks"]["free"] == 100' |
    grep -q True || fail "the rows of fdctl memory are not their sums"
echo '[5,6,7]' >"$dir/ids"
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4
stop

refused() { # EXIT PATTERN FDD-ARGUMENTS
    local rc=$1 pat=$2; shift 2
    expect "$rc" "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" \
        --set model.path=null --set device.backend=null "$@"
    has "$out" "$pat"
}
refused 78 'parallel.tensor_parallel_size = 2 needs 2 devices' --set tensor-parallel-size=2
refused 78 'pipeline-parallel-size = 2: not available in this build' --set pipeline-parallel-size=2
refused 78 'speculative_config = .*not available in this build' \
    --set 'speculative_config={"method":"ngram"}'
refused 78 'unknown key .use_cudagrap.; nearest is use_cudagraph' \
    --set 'graph_optimization_config={"use_cudagrap":true}'
refused 78 'contradicts' --set use_cudagraph=no \
    --set 'graph_optimization_config={"use_cudagraph":true}'
refused 78 'max_long_partial_prefills = 2 is more than' --set max_long_partial_prefills=2 \
    --set max_num_partial_prefills=1
printf '[sched]\n\nguided_decoding_backend = xgrammar\n' >"$dir/y.ini"
refused 78 'y.ini:3: sched.guided_decoding_backend = xgrammar: not available' -c "$dir/y.ini"
# Only the worker can check this: a block of the null model is 512 bytes, so these are 100
# blocks and the dummy, 2 of them after the prompt.
refused 78 'the largest model.max_model_len that fits is 6272' --set kv.memory_bytes=51712 \
    --set max_model_len=6273
start --set model.path=null --set device.backend=null --set kv.memory_bytes=51712 \
    --set max_model_len=6272
expect 0 ctl memory
has "$out" '6400 tokens: 1 requests of max_model_len 6272'
stop

# All errors at once: those of files, of --set and of inconsistent values.
printf '[sched]\nmax_num_seqs = many\n[kv]\nblock_size = 48\n' >"$dir/e.ini"
mkdir -p "$dir/e.ini.d" "$dir/m.ini.d"
printf '[log]\nlevel = loud\n' >"$dir/e.ini.d/a.ini"
check() { expect "$1" "$FDD" --check-config "${@:2}"; }
check 78 -c "$dir/e.ini" --set log.levels=nosuch=info --set port=1 --set ipc.sq_slots=100 \
    --set model.path="$dir/none"
has "$out" 'e.ini:2: sched.max_num_seqs = many: not a whole number'
has "$out" 'e.ini.d/a.ini:2: log.level = loud'
has "$out" 'kv.block_size = 48: must be .*e.ini:4'
has "$out" 'ipc.sq_slots = 100: must be a power of two \(ipc.sq_slots: --set\)'
has "$out" 'unknown log topic "nosuch"'
has "$out" 'port is accepted'
has "$out" "model.path: $dir/none: No such file or directory \\(model.path: --set\\); fix: .*$dir/none"
expect 78 "$FDD" -c "$dir/e.ini" --set model.path=null
has "$out" 'max_num_seqs = many'
has "$out" 'level = loud'

# --check-config looks at the model's folder as the worker would find it.
check 78
has "$out" 'model.path is not set'
check 0 --set model.path="$DEMO"
check 0 --set model.path=null
mkdir "$dir/model"
check 78 --set model.path="$dir/model"
has "$out" "$dir/model/config.json: No such file or directory"
has "$out" "$dir/model/\*.safetensors: No such file or directory"
has "$out" 'tokenizer.json is not there: requests by token ids only'
cp "$DEMO/config.json" "$dir/model"
check 0 --set model.path="$dir/model" --set model.load_format=dummy
check 78 --set model.path="$dir/model" --set model.load_format=dummy --set model.tokenizer="$dir"
has "$out" "model.tokenizer: $dir/tokenizer.json is not there"
check 78 --set model.path="$dir/model/config.json"
has "$out" 'not a folder'
if [ "$(id -u)" != 0 ]; then
    chmod 0 "$dir/model/config.json"
    check 78 --set model.path="$dir/model" --set model.load_format=dummy
    has "$out" "config.json: Permission denied; fix: "
fi

# Groups and users that the system lacks.
names="--set model.path=null --set ipc.group=no-such-group --set ipc.trusted_users=no-such-user,0"
# shellcheck disable=SC2086
check 0 $names --set ipc.admin_group=no-such-admins
has "$out" 'ipc.group = no-such-group: this system has no such group'
has "$out" 'ipc.admin_group = no-such-admins: this system has no such group'
has "$out" 'ipc.trusted_users: this system has no user "no-such-user"'
# shellcheck disable=SC2086
start $names --set device.backend=null
grep -q 'ipc.trusted_users: this system has no user "no-such-user"' "$dir/log" || fail "no warning at start"
stop

# More files; units; values that need a restart; what automatic values became; other names.
cat >"$dir/m.ini" <<INI
[model]
path = null
[device]
backend = null
[kv]
memory_bytes = 1MiB
[ipc]
trusted_users = 70001
INI
printf '[ipc]\ntrusted_users = 70002,70001\n[daemon]\ndrain_timeout_ms = 5s\n' >"$dir/m.ini.d/20.ini"
printf '[daemon]\ndrain_timeout_ms = 6s\ncrash_window_s = 5min\n' >"$dir/m.ini.d/10.ini"
start -c "$dir/m.ini" --set model.max_model_len=1k
row() { ctl config --json "$1" | json "d['config'][0]$2"; }
[ "$(row ipc.trusted_users "['value']")" = 70002,70001 ] || fail "lists do not add up"
[ "$(row ipc.trusted_users "['where']")" = "$dir/m.ini:8, $dir/m.ini.d/20.ini:2" ] || fail "where a list is from"
[ "$(row daemon.drain_timeout_ms "['value']")" = 5000 ] || fail "order of files, or 5s"
[ "$(row daemon.crash_window_s "['value']")" = 300 ] || fail "5min"
[ "$(row model.max_model_len "['value']")" = 1024 ] || fail "1k"
ctl config --json | json 'len(d["files"]) == 3 and d["file"] == d["files"][0]' | grep -q True || fail "files"
expect 0 ctl config --origin kv.memory_bytes
has "$out" "kv.memory_bytes = 1048576    \(file $dir/m.ini:6\)"
expect 0 ctl config
has "$out" 'sched.max_num_batched_tokens = 0    \(auto: 512\)'
has "$out" 'kv.num_blocks = 0    \(auto: [1-9][0-9]*\)'
has "$out" 'daemon.runtime_dir = '"$run"'$'
has "$out" "ipc.socket =     \(auto: $run/fdd.sock\)"
has "$out" 'ipc.spin_us = -1    \(auto: [0-9]+\)'
has "$out" 'sched.max_queued_tokens = 0    \(auto: 524288\)'
has "$out" 'model.name =     \(auto: null\)'
expect 0 ctl config max-model-len
[ "$out" = "model.max_model_len = 1024" ] || fail "max-model-len shows $out"
expect 0 ctl config max_waiting_time
has "$out" 'sched.max_waiting_time_ms = 0'
expect 0 ctl config tensor-parallel-size
has "$out" 'parallel.tensor_parallel_size = 1'
expect 0 ctl config pipeline-parallel-size
has "$out" 'pipeline_parallel_size is a name of another server: refused unless 1'
expect 0 ctl config enable-overlap-schedule
has "$out" 'device.overlap_depth = 2'
expect 65 ctl config max_model_le
has "$out" 'nearest is model.max_model_len'
expect 0 ctl set daemon.drain_timeout_ms=7s
[ "$out" = "daemon.drain_timeout_ms = 7000" ] || fail "set says $out"
expect 65 ctl set daemon.drain_timeout_ms=7GB
has "$out" "the unit 'GB' does not fit; write a number of ms, or one with us, ms, s, min, h or d"
printf '[daemon]\ndrain_timeout_ms = 8s\n[sched]\nmax_num_seqs = 7\n' >"$dir/m.ini.d/30.ini"
expect 0 ctl reload
has "$out" 'daemon.drain_timeout_ms: 7000 -> 8000'
has "$out" "sched.max_num_seqs: 256 -> 7 waits for a restart \($dir/m.ini.d/30.ini:4\)"
has "$out" '^1 changed'
grep -q 'I fdd: config: daemon.drain_timeout_ms: 7000 -> 8000' "$dir/log" || fail "the log does not say what changed"
grep -q 'sched.max_num_seqs: 256 -> 7 waits for a restart' "$dir/log" || fail "the log does not name the pending value"
expect 0 ctl config
has "$out" "sched.max_num_seqs = 256    \(after a restart: 7, $dir/m.ini.d/30.ini:4\)"
[ "$(row sched.max_num_seqs "['waiting']['value']")" = 7 ] || fail "config --json does not name the pending value"
printf '[daemon]\ndrain_timeout_ms = x\ncrash_max = y\n' >"$dir/m.ini.d/30.ini"
expect 65 ctl reload
has "$out" '30.ini:2: '
has "$out" '30.ini:3: '
[ "$(row daemon.drain_timeout_ms "['value']")" = 8000 ] || fail "a bad file changed something"
rm "$dir/m.ini.d/30.ini"
expect 0 ctl reload
expect 0 ctl config sched.max_num_seqs
[ "$out" = 256 ] || fail "max_num_seqs still waits: $out"
stop

# A step larger than all sequences is reduced, and a length reduced for lack of
# memory is reported.
start --set model.path="$DEMO" --set sched.max_num_seqs=2 --set sched.max_num_batched_tokens=100k \
    --set kv.num_blocks=6 --set kv.static_decode_blocks=0
len=$(ctl status --json | json 'd["model"]["model_len"]')
grep -q "sched.max_num_batched_tokens = 102400 is more than the model's length of $len tokens times sched.max_num_seqs = 2" \
    "$dir/log" || fail "no warning of a step that is too large"
expect 0 ctl config
has "$out" "sched.max_num_batched_tokens = 102400    \(in force: $((2 * len))\)"
has "$out" 'model.max_model_len = 0    \(auto: 384\)'
has "$out" 'device.backend = auto    \(auto: (cpu|cuda)\)'
has "$out" 'kv.dtype = auto    \(auto: (fp32|bf16)\)'
case $out in *'(auto: cpu)'*) has "$out" 'device.threads = 0    \(auto: [1-9][0-9]*\)' ;; esac
grep -q "W fdd-worker: load: requests have at most 384 tokens, not the model's $len: the KV cache has 6 blocks" \
    "$dir/log" || fail "no warning of the shorter length"
expect 0 ctl status
has "$out" "384 tokens at most \(the model itself: $len\)"
expect 0 ctl model
has "$out" "model_len +$len"
stop

# ipc.max_clients may be raised while fdd runs, beyond the descriptors it had at its start
(ulimit -Sn 4096) 2>/dev/null || exit 0
ulimit -Sn 1024
start --set model.path=null --set device.backend=null --set ipc.max_clients=10 \
    --set ipc.connects_per_second=1000 --set ipc.handshake_timeout_ms=60000
expect 0 ctl set ipc.max_clients=400
expect 0 ctl set ipc.max_clients_per_user=400
python3 -c 'import select, socket, sys, time
poll = select.poll()
socks = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for i in range(300)]
for s in socks:
    s.connect(sys.argv[1])
    poll.register(s, select.POLLIN)
end = [fd for fd, what in poll.poll(1500)]
sys.exit("%d of 300 sessions are refused or closed" % len(end) if end else 0)' \
    "$run/fdd.sock" >"$dir/sessions" 2>&1 || fail "$(cat "$dir/sessions")"
stop
