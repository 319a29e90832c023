#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A max_tokens that does not fit behind the prompt is refused with the numbers, by every API and
# whether the prompt is text or ids; one that is left out is what fits.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
py "$gw/lengths.py" || fail "see above"
gateway_stop
stop
