#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The Python module when the daemon is not there, or dies while it answers, or its worker
# does: with and without reconnect.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/python/lib.sh"
have_python
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
py faults
