#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G8: a request is cancelled at once when its client disconnects: while it is queued,
# while its prompt is computed, and while text is sent.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO" --set sched.max_num_seqs=1
gateway
FDD_CTL="$FDCTL --runtime-dir $run" py "$gw/g8_leave.py" || fail "see above"
gateway_stop
stop
