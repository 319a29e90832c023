#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Odd requests to each API: wrong types, huge numbers, empty arrays, invalid schemas and
# conversations. Each is answered, or refused with the field's name, as documented by
# OpenAI, Anthropic and vLLM; the model never gets anything that is not in the request.
. "$(dirname "$0")/lib.sh"
says hermes
py "$gw/odd.py" || fail "see above"
gateway_stop
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
py "$gw/odd.py" ids || fail "see above"
gateway_stop
stop
