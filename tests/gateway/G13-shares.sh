#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G13: keys have equal shares, however many requests they have: a key with one request at
# a time keeps at least half of its rate next to a key with 500; a key with 16 gets as
# much as one with 500. No key sees anything of another: neither prompts in the prefix
# cache nor answers.
. "$(dirname "$0")/lib.sh"
sum() { printf %s "$1" | sha256sum | cut -c 1-64; }
{ echo "$(sum k-one) one"; echo "$(sum k-many) many"; echo "$(sum k-few) few"; } >"$dir/keys"
start --set model.path=null --set device.step_delay_us=5000 --set sched.max_num_seqs=8 \
    --set sched.max_inflight_per_user=1000 --set sched.max_concurrency=1000 --set ipc.trusted_users="$(id -un)"
gateway --set keys.file="$dir/keys"
py "$gw/g13_shares.py" shares || fail "see above"
gateway_stop
stop
start --set model.path="$DEMO" --set ipc.trusted_users="$(id -un)"
gateway --set keys.file="$dir/keys"
py "$gw/g13_shares.py" apart || fail "see above"
gateway_stop
stop
