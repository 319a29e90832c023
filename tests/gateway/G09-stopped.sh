#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G9: a reader that stops uses at most http.max_unsent_bytes, delays no other stream, and
# is disconnected when that is full or after http.send_timeout_ms.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "a sanitizer's memory is not the program's"
start --set model.path="$DEMO"
gateway --set http.send_timeout_ms=3000 --set http.max_unsent_bytes=64k
py "$gw/g9_stopped.py" || fail "see above"
gateway_stop
stop
