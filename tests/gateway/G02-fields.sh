#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G2: every field of a request is honoured or refused by its name.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
FDD_SRC=$FDD_SRC py "$gw/g2_fields.py" || fail "see above"
gateway_stop
stop
