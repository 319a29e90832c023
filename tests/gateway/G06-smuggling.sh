#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G6: at least 40 inputs that smuggle a second request past a lenient parser get 400 and a
# closed connection, or count as one request.
. "$(dirname "$0")/lib.sh"
gateway_launch
py "$gw/g6_smuggling.py" || fail "see above"
