#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Requests of all kinds, many at a time and with cancels between them, get the same
# answers as alone: ids and log-probabilities, to the bit.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO" --set device.backend=cpu --set sched.max_inflight_per_client=64
"$FDD_BUILD/tests/gpu/g_mixed" "$run/fdd.sock" 4 24 4096 "$(few 300 60)" >"$dir/out" 2>&1 ||
    fail "$(cat "$dir/out")"
cat "$dir/out"
stop
