#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G3 for /v1/responses: what the model sees of the input; numbered events in their order,
# which joined are the whole answer; what would need state is refused by its name.
. "$(dirname "$0")/lib.sh"
says hermes
py "$gw/g3_responses.py" || fail "see above"
gateway_stop
