#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Start on the null model, one request by ids and one by text, stop cleanly.
. "$(dirname "$0")/lib.sh"
start --set model.path=null --set device.backend=null
echo '[1,2,3,4]' >"$dir/ids"
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 8 --ignore-eos --json
has "$out" '"finish_reason": ?"length"'
n=$(echo "$out" | json 'len(d["ids"])')
[ "$n" = 8 ] || fail "$n ids instead of 8"
[ "$(echo "$out" | json 'd["prompt_ids"]')" = "[1, 2, 3, 4]" ] || fail "prompt ids: $out"
a=$out
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 8 --ignore-eos --json
[ "$(echo "$a" | json 'd["ids"]')" = "$(echo "$out" | json 'd["ids"]')" ] ||
    fail "the same request gave other tokens"
expect 0 ctl status
has "$out" ready
stop
[ ! -e "$run/fdd.sock" ] || fail "socket left behind"
expect 69 ctl status
has "$out" "$run"
