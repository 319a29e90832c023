#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G8: a client that leaves is cancelled at once, whether its request is queued, its prompt
# computed or its text under way.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO" --set sched.max_num_seqs=1
gateway
FDD_CTL="$FDCTL --runtime-dir $run" py "$gw/g8_leave.py" || fail "see above"
gateway_stop
stop
