#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Check that every line of tests/findings.tsv has three columns, an existing test that
# `make check` runs, and a patch of tests/mutants/ or "-"; that every patch names an
# existing test and is named by a line; and that tests/params.tsv has a test of each
# parameter.
# Usage: check_findings.sh [SRC]; exit 1 after messages.
cd "${1:-${FDD_SRC:-$(dirname "$0")/../..}}" || exit 1
bad=0
say() { echo "$*"; bad=1; }
# Patches older than the list: faults of the engine that its design names.
design="block_freed_early frozen_live_count host_decision_frozen kv_off_by_one_after_hit
late_token_to_next_owner missing_copy_wait missing_event_wait penalty_of_former_owner
recapture_skipped result_reused_early stale_work_tail"
test_exists() { # TEST: a script or a program's name
    case $1 in
    '') return 1 ;;
    *.sh|*.py) [ -e "$1" ] ;;
    *) [ -e "$1.c" ] || [ -x "$1" ] ;;
    esac
}
runs_in_check() {
    case $1 in
    tests/unit/*|tests/sim/*|tests/sys/*|tests/kernel/*|tests/parity/*|tests/fuzz/*)
        grep -qE "(^|[[:space:]])%D%/${1#tests/}([[:space:]]|\$)" tests/local.mk ;;
    esac
}
list=tests/findings.tsv n=0
while IFS= read -r line; do
    n=$((n + 1))
    case $line in '#'*|finding$'\t'*) continue ;; esac
    at="$list:$n"
    [ "$(printf '%s' "$line" | tr -cd '\t' | wc -c)" = 2 ] ||
        { say "$at: must be finding, test and mutant, tab separated"; continue; }
    IFS=$'\t' read -r finding t mutant <<<"$line"
    [ -n "${finding// }" ] || say "$at: the finding is empty"
    test_exists "${t%% *}" || say "$at: there is no test ${t%% *}"
    runs_in_check "${t%% *}" || say "$at: tests/local.mk does not have ${t%% *}"
    [ "$mutant" = - ] || [ -e "tests/mutants/$mutant.patch" ] ||
        say "$at: there is no tests/mutants/$mutant.patch; - where no code was at fault"
done <"$list"
twice=$(grep -v '^#' "$list" | sort | uniq -d)
[ -z "$twice" ] || say "$list: twice: $twice"
named=$(grep -v '^#' "$list" | cut -f 3 | tr '\n' ' ')
for p in tests/mutants/*.patch; do
    m=$(basename "$p" .patch)
    t=$(sed -n 's/^# Killed-by: //p' "$p" | head -n 1)
    test_exists "${t%% *}" || say "$p: names no test that exists: '$t'"
    grep -q '^# Breaks: ' "$p" || say "$p: does not say what it breaks (# Breaks: ...)"
    tr ' ' '\n' <<<"$named $design" | grep -qxF "$m" || say "$p: no line of $list names $m"
done
# Each parameter has a test that sees its effect; a mutant can make the daemon ignore it.
if command -v python3 >/dev/null; then tests/mutants/ignored --check || bad=1; fi
exit $bad
