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
# a token that ends the answer is not in its text, whatever parser looks for markers in it
start --set model.path="$FDD_SRC/conf/models/demo-chat"
for parser in none hermes gpt-oss; do
    gateway --set chat.parser=$parser
    py "$gw/g18_ends.py" >"$dir/ends.$parser" || fail "ends, parser $parser: see above"
    cmp "$dir/ends.none" "$dir/ends.$parser" || fail "parser $parser: other answers"
    gateway_stop
done
stop
