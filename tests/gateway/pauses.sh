#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A reader that pauses until its stream has ended, with less than http.max_unsent_bytes
# unread, still gets the whole stream when it reads on.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.step_delay_us=200 --set ipc.trusted_users="$(id -un)"
gateway --set http.socket="$dir/http.sock"
py "$gw/pauses.py" "$dir/http.sock" || fail "see above"
gateway_stop
stop
