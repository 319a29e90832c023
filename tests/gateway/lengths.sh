#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A max_tokens that does not fit after the prompt is refused with the numbers,
# by every API, for prompts in text and in ids; without max_tokens the limit
# is the tokens that fit.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
py "$gw/lengths.py" || fail "see above"
gateway_stop
stop
