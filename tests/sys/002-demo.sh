#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The shipped model: the same seed gives the same text, streamed text equals the decoded
# ids; stop strings, logprobs, parallel samples.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
start --set model.path="$DEMO"
gen() { ctl generate -p 'In the beginning' --max-tokens 24 --json "$@"; }
a=$(gen --temperature 0.8 --seed 7) || fail "generate: $a"
b=$(gen --temperature 0.8 --seed 7)
c=$(gen --temperature 0.8 --seed 8)
[ "$(echo "$a" | json 'd["ids"]')" = "$(echo "$b" | json 'd["ids"]')" ] || fail "seed 7 twice differs"
[ "$(echo "$a" | json 'd["ids"]')" != "$(echo "$c" | json 'd["ids"]')" ] || fail "seed has no effect"
g=$(gen --temperature 0)
echo "$g" | json '" ".join(map(str,d["ids"]))' >"$dir/ids"
t=$(ctl detokenize --ids-file "$dir/ids" --json | json 'd["text"]')
[ "$t" = "$(echo "$g" | json 'd["text"]')" ] || fail "streamed text is not the ids decoded"
word=$(echo "$g" | json 'd["text"][10:14]')
s=$(gen --temperature 0 --stop "$word")
[ "$(echo "$s" | json 'd["finish_reason"]')" = stop ] || fail "stop string not found: $s"
[ "$(echo "$s" | json 'd["text"]')" = "$(echo "$g" | json 'd["text"]["".join(d["text"]).find('"'$word'"')*0:d["text"].find('"'$word'"')]')" ] ||
    fail "text up to the stop string: $s"
l=$(gen --temperature 0 --logprobs 3 --prompt-logprobs 2)
echo "$l" | json 'all(len(x["top"])==3 and x["top"][0][0]==x["id"] and x["logprob"]<=0 for x in d["logprobs"]) or 1/0' >/dev/null ||
    fail "logprobs: $l"
echo "$l" | json '(len(d["prompt_logprobs"])==len(d["prompt_ids"]) and d["prompt_logprobs"][0] is None) or 1/0' >/dev/null ||
    fail "prompt logprobs: $l"
n=$(gen --temperature 1 --seed 3 --n 4 | json 'len(d["choices"])')
[ "$n" = 4 ] || fail "$n choices instead of 4"
gen --temperature 0 --n-requests 9 | json 'len(set(tuple(x["ids"]) for x in d))' | grep -qx 1 ||
    fail "nine equal greedy requests differ"
# regression: detokenize refused the empty list that tokenize gives for an empty line
printf 'one\n\n  two\n' >"$dir/lines"
ctl tokenize --no-special --lines --file "$dir/lines" >"$dir/line-ids" || fail "tokenize --lines"
ctl detokenize --lines --ids-file "$dir/line-ids" >"$dir/lines-again" || fail "detokenize --lines"
cmp "$dir/lines" "$dir/lines-again" || fail "lines are not what they were"
stop
