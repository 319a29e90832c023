#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Clients that violate the protocol: the session ends or the request is refused; other
# clients are not affected.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.backend=null --set ipc.handshake_timeout_ms=500 \
    --set ipc.connects_per_second=1000
echo '[1,2,3]' >"$dir/ids"
ctl ping >/dev/null
# Growing the kernel's descriptor table blocks the loop, so it is large enough for 256
# clients from the start.
size() { awk '/^FDSize:/ { print $2 }' "/proc/$fdd_pid/status"; }
[ "$(size)" -ge 1280 ] || fail "room for $(size) descriptors"
sleep 1 # what the ping above used is given back by then
before=$(fds_of "$fdd_pid")
for a in tail-jump tail-over tail-back head-lie blob-outside blob-odd reserved op hello-short \
    hello-magic hello-version hello-silent fds bell seals garbage; do
    out=$("$FDD_BUILD/tests/sys/hostile/lies" "$run/fdd.sock" $a 2>&1) || fail "$a: $out"
    kill -0 "$fdd_pid" 2>/dev/null || fail "the daemon died of $a"
    ctl generate --ids-file "$dir/ids" --max-tokens 3 --ignore-eos >/dev/null || fail "no service after $a"
done
all_closed() { [ "$(fds_of "$fdd_pid")" -le "$before" ]; }
until_true 5 all_closed ||
    fail "descriptors leak: $before before, $(fds_of "$fdd_pid") after"
stop
