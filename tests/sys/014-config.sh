#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# What fdctl config shows of a default start is tests/unit/config.golden; to
# write it anew: FDD_GOLDEN=write tests/sys/014-config.sh. Names of another
# server's command line, in the file and by --set; the memory table.
. "$(dirname "$0")/lib.sh"
golden=$FDD_SRC/tests/unit/config.golden
start --set model.path=null --set device.backend=null
ctl config --json >"$dir/config.json" || fail "fdctl config --json"
# What the test itself must set is marked, not shown.
json '"\n".join("%s = %s" % (c["name"], c["value"] if c["origin"] == "default" else "(set)")
    for c in d["config"])' <"$dir/config.json" >"$dir/config"
if [ "${FDD_GOLDEN:-}" = write ]; then
    cp "$dir/config" "$golden"
fi
diff -u "$golden" "$dir/config" || fail "the defaults are not those of config.golden"
# The text form has the same values.
expect 0 ctl config
n=$(printf '%s\n' "$out" | grep -c .)
[ "$n" -ge "$(grep -c . "$golden")" ] || fail "fdctl config shows $n lines"
stop

# A command line of another server, most of it meaning what it meant there.
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
refused 78 'tensor-parallel-size = 2: not available in this build' --set tensor-parallel-size=2
refused 78 'speculative_config = .*not available in this build' \
    --set 'speculative_config={"method":"ngram"}'
refused 78 'unknown key .use_cudagrap.; nearest is use_cudagraph' \
    --set 'graph_optimization_config={"use_cudagrap":true}'
refused 78 'contradicts' --set use_cudagraph=no \
    --set 'graph_optimization_config={"use_cudagraph":true}'
refused 78 'max_long_partial_prefills = 2 is more than' --set max_long_partial_prefills=2
printf '[sched]\n\nguided_decoding_backend = xgrammar\n' >"$dir/y.ini"
refused 78 'y.ini:3: sched.guided_decoding_backend = xgrammar: not available' -c "$dir/y.ini"
# What only the worker can know: a block of the null model is 512 bytes, so
# these are 100 and the dummy, 2 of them beyond the prompt.
refused 78 'the largest model.max_model_len that fits is 6272' --set kv.memory_bytes=51712 \
    --set max_model_len=6273
start --set model.path=null --set device.backend=null --set kv.memory_bytes=51712 \
    --set max_model_len=6272
expect 0 ctl memory
has "$out" '6400 tokens: 1 requests of max_model_len 6272'
stop
