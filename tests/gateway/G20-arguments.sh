#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G20: the client gets a call's arguments as the model writes them, at most one token
# late; joined they parse.
. "$(dirname "$0")/lib.sh"
for f in hermes qwen3-coder glm-4.5 mistral; do
    says "$f"
    py "$gw/g20_arguments.py" "$f" || fail "$f: see above"
    gateway_stop
done
