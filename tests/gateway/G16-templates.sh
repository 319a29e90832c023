#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G16: a conversation's prompt, from the request to its tokens, equals Jinja's
# output of the template to the byte, or is an error where Jinja has one; unit
# tests cover each construct.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
for t in "$gw"/templates/*.jinja; do
    gateway --set chat.template="$t"
    py "$gw/g16_templates.py" "$(basename "$t" .jinja)" || fail "$t: see above"
    gateway_stop
done
stop
