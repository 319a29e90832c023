#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G12: a body of 32 MiB of "[{}," uses less than 64 MiB besides it.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "a sanitizer's memory is not the program's"
gateway_launch
py "$gw/g12_memory.py" || fail "see above"
gateway_stop
