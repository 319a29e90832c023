#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G3: the pieces of a stream, joined, equal the answer without streaming.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway --set chat.template="$(chat_template)"
# a daemon that does not give token texts refuses logprobs
lp=
post /v1/completions '{"prompt":"a","max_tokens":1,"logprobs":0}' | grep -q '"unsupported"' || lp=logprobs
py "$gw/g3_streams.py" $lp || fail "see above"
gateway_stop
stop
