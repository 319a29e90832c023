#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G3 for /v1/responses: the prompt made from the input; numbered events in order, which
# joined give the whole answer; fields that would need state are refused by name.
. "$(dirname "$0")/lib.sh"
says hermes
py "$gw/g3_responses.py" || fail "see above"
gateway_stop
