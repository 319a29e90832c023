#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G16: a conversation's prompt, from the request to its tokens, is to the byte what Jinja makes
# of the template, or an error where it has one; unit tests have each construct of its own.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
for t in "$gw"/templates/*.jinja; do
    gateway --set chat.template="$t"
    py "$gw/g16_templates.py" "$(basename "$t" .jinja)" || fail "$t: see above"
    gateway_stop
done
stop
