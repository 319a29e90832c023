#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G17: templates that never end fail within seconds, and other requests are
# answered meanwhile.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
try() { # NAME TEMPLATE WORD
    printf '%s' "$2" >"$dir/t.jinja"
    gateway --set chat.template="$dir/t.jinja"
    local from=$(date +%s%N)
    post /v1/chat/completions '{"messages":[{"role":"user","content":"ab"}],"max_tokens":1}' \
        -o "$dir/body" -w '%{http_code}' >"$dir/code" || fail "$1: no answer"
    local ms=$((($(date +%s%N) - from) / 1000000))
    [ "$(cat "$dir/code")" = 400 ] || fail "$1: $(cat "$dir/code" "$dir/body")"
    has "$(cat "$dir/body")" "$3"
    [ $ms -lt $((3000 * slow)) ] || fail "$1: $ms ms"
    echo "$1: $ms ms"
    [ "$(post /v1/completions '{"prompt":"a","max_tokens":1}' -o /dev/null -w '%{http_code}')" = 200 ] || fail "$1: dead"
    gateway_stop
}
try loops '{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}' steps
try recursion '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}' 'nested too deeply'
try doubling '{% set ns = namespace(x=messages[0].content) %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}' memory
try output '{% set x = "x" * 10000 %}{% for i in range(3000) %}{{ x }}{% endfor %}' 'longer than'
try raised '{{ raise_exception("no such role") }}' 'no such role'
stop
