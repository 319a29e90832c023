#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G3 for /v1/messages, which is Anthropic's: the prompt made from a conversation; events
# in order, which joined give the whole answer; errors in the format of that API.
. "$(dirname "$0")/lib.sh"
says hermes
py "$gw/g3_messages.py" || fail "see above"
gateway_stop
