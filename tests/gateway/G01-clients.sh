#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G1: OpenAI's Python SDK, unmodified, on the demo model. It comes from PyPI into a folder of
# the test's own; without network the test is skipped.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "the SDK is the same with sanitizers"
python3 -m venv "$dir/venv" >/dev/null 2>&1 || skip "no python3-venv"
timeout 120 "$dir/venv/bin/pip" install -q --retries 1 --timeout 10 openai >"$dir/pip" 2>&1 ||
    skip "PyPI cannot be reached: $(tail -n 1 "$dir/pip")"
sum() { printf %s "$1" | sha256sum | cut -c 1-64; }
echo "$(sum k-one) one" >"$dir/keys"
echo "$(sum k-two) two inflight=1" >>"$dir/keys"
start --set model.path="$DEMO"
gateway --set chat.template="$DEMO/chat_template.jinja" --set keys.file="$dir/keys"
timeout 120 "$dir/venv/bin/python" "$gw/g1_openai.py" || fail "see above"
gateway_stop
stop
