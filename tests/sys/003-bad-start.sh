#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A start that fails prints the reason and the fix.
. "$(dirname "$0")/lib.sh"
try() { # RC PATTERN ARGS
    local rc=$1 pat=$2; shift 2
    expect "$rc" timeout $((30 * slow)) "$FDD" --set daemon.runtime_dir="$run" \
        --set daemon.worker="$WORKER" "$@"
    has "$out" "$pat"
}
try 78 'max_num_seq.*max_num_seqs' --set sched.max_num_seq=4
try 78 '0.*1\.\.1024|1.*1024' --set sched.max_num_seqs=0
try 78 'block_size' --set kv.block_size=48
try 78 'not available' --set pipeline_parallel_size=2
try 78 'device.list: it is empty, and parallel.tensor_parallel_size = 2 needs 2 devices' \
    --set tensor_parallel_size=2
try 78 '"cpu:3" has 3 devices, and parallel.tensor_parallel_size = 2 uses 2; remove 1' \
    --set tensor_parallel_size=2 --set device.list=cpu:3
printf '[sched]\nmax_num_seqs = 8\nmax_num_seqz = 8\n' >"$dir/a.ini"
try 78 'a\.ini:3.*max_num_seqz.*max_num_seqs' -c "$dir/a.ini"
printf '[sched]\nmax_num_seqs = \0008\n' >"$dir/b.ini"
try 78 'b\.ini:2' -c "$dir/b.ini"
try 78 'nothere\.ini' -c "$dir/nothere.ini"
try 66 '/nowhere/model' --set model.path=/nowhere/model
mkdir "$dir/m"
sed 's/"hidden_size": [0-9]*/"hidden_size": -4/' "$DEMO/config.json" >"$dir/m/config.json"
try 78 'hidden_size.*-4' --set model.path="$dir/m"
echo '{"model_type":"mamba"}' >"$dir/m/config.json"
try 78 'mamba' --set model.path="$dir/m"
if [ -e "$DEMO/model.safetensors" ]; then
    cp "$DEMO"/*.json "$dir/m/"
    head -c 5000000 "$DEMO/model.safetensors" >"$dir/m/model.safetensors"
    try 78 'W_(LAYOUT|TRUNC|SHAPE).*model\.safetensors|model\.safetensors.*W_(LAYOUT|TRUNC|SHAPE)' --set model.path="$dir/m"
    head -c 4 "$DEMO/model.safetensors" >"$dir/m/model.safetensors"
    try 78 'W_' --set model.path="$dir/m"
    rm "$dir/m/model.safetensors"
    try 66 'model\.safetensors' --set model.path="$dir/m"
    # a tokenizer of an unsupported kind: the unsupported component, and how
    # to go on without it
    cp "$DEMO/model.safetensors" "$dir/m/"
    echo '{"pre_tokenizer":{"type":"UnicodeScripts"},"model":{"type":"BPE","vocab":{},"merges":[]}}' \
        >"$dir/m/tokenizer.json"
    try 78 'tokenizer\.json.*"UnicodeScripts".*only token ids' --set model.path="$dir/m"
    # errors of a start are errors of --check too
    expect 65 "$WORKER" --check "$dir/m"
    has "$out" "$dir/m/tokenizer\.json.*\"UnicodeScripts\""
    echo '{' >"$dir/m/tokenizer.json"
    expect 65 "$WORKER" --check "$dir/m"
    # an added token beyond vocab_size, as of a tokenizer that models share
    sed 's/"added_tokens": \[/&{"id": 4096, "content": "<more>", "special": true},/' \
        "$DEMO/tokenizer.json" >"$dir/m/tokenizer.json"
    expect 0 "$WORKER" --check "$dir/m"
    try 78 '"<more>" has id 4096.*prompts with it are refused' --set model.path="$dir/m" \
        --set max_model_len=4096
    # another model's: an id in the vocabulary that the model does not have
    sed 's/"vocab": {/&"<more>": 4096,/' "$DEMO/tokenizer.json" >"$dir/m/tokenizer.json"
    other='"<more>" has id 4096, config.json says vocab_size = 4096'
    try 78 "$dir/m/tokenizer\.json.*$other.*model\.tokenizer" --set model.path="$dir/m"
    try 78 "$dir/m/tokenizer\.json.*$other" --set model.path="$DEMO" \
        --set model.tokenizer="$dir/m"
    expect 65 "$WORKER" --check "$dir/m"
    has "$out" "$dir/m/tokenizer\.json.*$other"
    expect 0 "$WORKER" --check "$DEMO"
    has "$out" 'tokenizer   ids below 4096'
    try 78 '1024' --set model.path="$DEMO" --set max_model_len=4096
fi
# the path of a socket: a file that is no socket stays there
echo x >"$dir/file"
try 73 "$dir/file: a file that is no socket is there; fix: another ipc.socket" \
    --set model.path=null --set ipc.socket="$dir/file"
[ -s "$dir/file" ] || fail "the file at the path of the socket was removed"
try 78 'ipc.admin_socket: it is the path of ipc.socket' --set model.path=null \
    --set ipc.socket="$dir/s" --set ipc.admin_socket="$dir/s"
# a socket of another type, at which another program listens
python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.bind(sys.argv[1])
s.listen()
time.sleep(60)' "$dir/t" >"$dir/other" 2>&1 &
other=$!
until_true 10 test -S "$dir/t" || fail "no other socket"
try 73 "$dir/t is in use by another program; fix" --set model.path=null --set ipc.socket="$dir/t"
kill "$other"
# a worker that is no program of this machine
echo text >"$dir/text"
chmod 755 "$dir/text"
for worker in "$dir" "$dir/text"; do
    try 78 "the program $worker cannot be executed: .*; fix: set daemon.worker" \
        --set model.path=null --set daemon.worker="$worker"
done
# the socket is busy
start --set model.path=null --set device.backend=null
try 73 "$run" --set model.path=null
has "$out" "another fdd \\(pid $fdd_pid, user $(id -un)\\) runs in $run.*fdctl --runtime-dir $run stop"
ctl status >/dev/null || fail "the first daemon suffered"
stop
