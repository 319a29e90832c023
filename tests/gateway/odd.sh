#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Odd requests to each API: wrong types, numbers without bounds, empty arrays, schemas and
# conversations that are none. Each is answered, or refused with the field's name, as the documents
# of OpenAI, Anthropic and vLLM have it; never is a model asked what a request does not say.
. "$(dirname "$0")/lib.sh"
says hermes
py "$gw/odd.py" || fail "see above"
gateway_stop
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
py "$gw/odd.py" ids || fail "see above"
gateway_stop
stop
