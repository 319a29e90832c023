#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Requests that cannot be: a precise code each, and the daemon goes on.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
start --set model.path="$DEMO"
bad() { # PATTERN ARGS
    local pat=$1; shift
    out=$(ctl generate "$@" --max-tokens 4 --json 2>&1) && fail "accepted: $*: $out"
    has "$out" "$pat"
}
seq -s ' ' 1 1500 >"$dir/long"; bad E_TOO_LONG --ids-file "$dir/long"
echo 999999 >"$dir/big"; bad E_BAD_TOKEN --ids-file "$dir/big"
: >"$dir/none"; bad 'E_BAD_PARAM|empty' --ids-file "$dir/none"
bad 'E_BAD_PARAM|temperature' -p x --temperature nan
bad 'E_BAD_PARAM|temperature' -p x --temperature -1
bad 'E_BAD_PARAM|top' -p x --top-p 0
bad 'E_BAD_PARAM|logprobs' -p x --logprobs 21
bad 'E_BAD_PARAM|n' -p x --n 1000
printf 'a\377b' | ctl generate - --max-tokens 2 --json >"$dir/out" 2>&1 && fail "invalid UTF-8 accepted"
has "$(cat "$dir/out")" 'UTF-8|E_BAD_TEXT'
printf '' | ctl generate - --max-tokens 2 --json >"$dir/out" 2>&1
printf 'a\0b' | ctl generate - --max-tokens 2 --json >"$dir/out" 2>&1 || fail "NUL is legal text: $(cat "$dir/out")"
# a cause that ended 300 requests was printed 300 times
out=$(ctl generate -p x --temperature -1 --n-requests 9 2>&1 >/dev/null)
[ "$(printf '%s\n' "$out" | wc -l)" = 2 ] || fail "nine equal refusals: $out"
has "$out" "same of 8 more requests"
expect 0 ctl generate -p 'And it came to pass' --max-tokens 4
stop
