#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Attacks by one user next to a client of another: two seconds each
# (FDD_ATTACK_SECONDS, 5 in CI), judged by results that do not depend on the machine's
# load. tests/check-long compares times.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "bounds of time mean nothing under a sanitizer"
python3 -c '' 2>/dev/null || skip "needs python3"
"$FDD_SRC/tests/sys/hostile/run" --seconds "${FDD_ATTACK_SECONDS:-2}" --runs 1 --no-burners --shared --tries 5 --quiet \
    ${FDD_BOOT_HERE:+--no-times} "$@"
rc=$?
[ $rc != 77 ] || exit 77
[ $rc = 0 ] || fail "an attack was felt"
