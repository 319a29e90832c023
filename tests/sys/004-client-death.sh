#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Clients killed at any moment: their requests end, blocks and sessions become free.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.backend=null --set max_model_len=4096
fds() { fds_of "$fdd_pid"; }
quiet() { [ "$(ctl requests --json | json 'len(d["requests"])')" = 0 ]; }
ctl ping >/dev/null
sleep 0.2
before=$(fds)
echo '[5,6,7]' >"$dir/ids"
for i in $(seq 12); do
    ctl generate --ids-file "$dir/ids" --max-tokens 4000 --ignore-eos --n-requests 4 >/dev/null 2>&1 &
    p=$!
    sleep 0.0$((RANDOM % 9 + 1))
    kill -KILL $p 2>/dev/null
    wait $p 2>/dev/null
done
until_true 10 quiet || fail "requests of dead clients stay: $(ctl requests)"
all_closed() { [ "$(fds)" -le "$before" ]; }
until_true 5 all_closed || fail "descriptors: $before before, $(fds) after"
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4 --ignore-eos
stop
