#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G3 for /v1/messages, which is Anthropic's: what the model sees of a conversation; events in
# their order, which joined are the whole answer; errors in that API's form.
. "$(dirname "$0")/lib.sh"
says hermes
py "$gw/g3_messages.py" || fail "see above"
gateway_stop
