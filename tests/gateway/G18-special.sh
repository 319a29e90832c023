#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G18: names of special tokens in a request's text are plain text, unless
# chat.special_in_content is parse; in the template they are always tokens.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
py "$gw/g18_special.py" literal || fail "literal: see above"
gateway_stop
gateway --set chat.template="$(chat_template)" --set chat.special_in_content=parse
py "$gw/g18_special.py" parse || fail "parse: see above"
gateway_stop
stop
