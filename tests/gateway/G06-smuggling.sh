#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G6: at least 40 requests that smuggle another past a lenient reader get 400 and a
# closed connection, or are one request.
. "$(dirname "$0")/lib.sh"
gateway_launch
py "$gw/g6_smuggling.py" || fail "see above"
