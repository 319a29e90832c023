#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G7: clients that send byte by byte end at their limit and delay no one. Here 200 of
# them; FDD_LONG: 1,000.
. "$(dirname "$0")/lib.sh"
gateway_launch --set http.header_timeout_ms=2000 --set http.max_per_address=2000
n=200; [ -z "${FDD_LONG:-}" ] || n=1000
ulimit -n 4096 2>/dev/null
py "$gw/g7_dribble.py" "$n" 2 || fail "see above"
# a body that dribbles: 10 s of grace, then the rate
gateway_stop
