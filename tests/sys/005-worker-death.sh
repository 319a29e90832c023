#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The worker dies: requests in flight end with a retryable error, the gate
# starts another, and new requests work.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.backend=null
worker() { pgrep -P "$fdd_pid" | head -n 1; }
echo '[5,6,7]' >"$dir/ids"
w=$(worker); [ -n "$w" ] || fail "no worker process"
ctl generate --ids-file "$dir/ids" --max-tokens 60000 --ignore-eos --n-requests 64 --json >"$dir/out" 2>&1 &
g=$!
until_true 5 sh -c "'$FDCTL' --runtime-dir '$run' requests --json | grep -q state" || fail "request not seen"
kill -SEGV "$w"
wait $g; rc=$?
[ $rc = 75 ] || fail "exit $rc instead of 75: $(cat "$dir/out")"
grep -q E_GPU_RESET "$dir/out" || fail "no E_GPU_RESET: $(head -c 600 "$dir/out")"
expect 0 ctl --wait $((10 * slow)) ping
[ "$(worker)" != "$w" ] || fail "same worker?"
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4 --ignore-eos
expect 0 ctl debug panic
has "$out" 'SIGSEGV|signal 11'
stop
# a worker that dies at each start stops the daemon with 75 in the end
printf '#!/bin/sh\nexit 3\n' >"$dir/bad"; chmod +x "$dir/bad"
expect 75 timeout $((60 * slow)) "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$dir/bad" \
    --set model.path=null --set daemon.crash_max=2
