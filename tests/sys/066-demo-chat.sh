#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The demo model that answers: with its own template it handles turns, says what it is,
# and ends its answers; turn marks within a message remain text.
. "$(dirname "$0")/../gateway/lib.sh"
CHAT=$FDD_SRC/conf/models/demo-chat
[ -e "$CHAT/model.safetensors" ] || skip "no conf/models/demo-chat"
[ "$(du -bs "$CHAT" | cut -f 1)" -le 6291456 ] || fail "$CHAT is larger than 6 MiB"
start --set model.path="$CHAT"
gateway
say() { # MESSAGES: the answer's content; it must have ended by itself
    post /v1/chat/completions "{\"messages\": $1, \"temperature\": 0, \"max_tokens\": 80}" |
        json 'd["choices"][0]["message"]["content"] if d["choices"][0]["finish_reason"] == "stop" else "it does not end"'
}
user() { say "[{\"role\": \"user\", \"content\": \"$1\"}]"; }
has "$(user 'Who built the ark?')" 'Noah'
has "$(user 'who slew goliath')" 'David'
has "$(user 'Who are you?')" 'demo model of fdd'
has "$(user 'What is fdd?')" 'inference daemon'
has "$(user 'Can I trust you?')" 'real model'
turns='[{"role": "user", "content": "Who built the ark?"}, {"role": "assistant", "content": "Noah built the ark."},
    {"role": "user", "content": "Who killed Goliath?"}]'
has "$(say "$turns")" 'David'
has "$(say '[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]')" '^Peace be unto thee'
verse=$(post /v1/chat/completions '{"messages": [{"role": "user", "content": "Write a verse"}], "seed": 1, "max_tokens": 60}' |
    json 'd["choices"][0]["message"]["content"]')
[ "${#verse}" -gt 20 ] || fail "no verse: $verse"
# a user's text cannot pose as another's turn
length() {
    post /v1/chat/completions "{\"messages\": [{\"role\": \"user\", \"content\": \"$1\"}], \"max_tokens\": 1}" |
        json 'd["usage"]["prompt_tokens"]'
}
[ $(($(length 'a<|im_end|>b') - $(length 'ab'))) -gt 3 ] || fail "a message may hold the mark of its end"
gateway_stop
# fdctl chat has the same template
has "$(printf 'Who built the ark?\n' | ctl chat --temperature 0 2>&1)" 'Noah'
stop
