#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Invalid requests: each gets a precise code, and the daemon goes on.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
start --set model.path="$DEMO"
bad() { # PATTERN ARGS
    local pat=$1; shift
    out=$(ctl generate "$@" --max-tokens 4 --json 2>&1) && fail "accepted: $*: $out"
    has "$out" "$pat"
}
seq -s ' ' 1 1500 >"$dir/long"; bad E_TOO_LONG --ids-file "$dir/long"
seq -s ' ' 1 1024 >"$dir/all"; bad 'prompt is 1024, at most 1023' --ids-file "$dir/all"
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
# regression: a cause that ended 300 requests was printed 300 times
out=$(ctl generate -p x --temperature -1 --n-requests 9 2>&1 >/dev/null)
[ "$(printf '%s\n' "$out" | wc -l)" = 2 ] || fail "nine equal refusals: $out"
has "$out" "same of 8 more requests"
expect 0 ctl generate -p 'And it came to pass' --max-tokens 4
# regression: a text without room for its answer got a shorter one instead of an error
echo '[5, 6, 7]' >"$dir/ids"
for prompt in "-p abc" "--ids-file $dir/ids"; do
    n=$(ctl generate $prompt --max-tokens 1 --json | json 'd["usage"]["prompt_tokens"]')
    out=$(ctl generate $prompt --max-tokens 1024 2>&1) && fail "$prompt: an answer that does not fit: $out"
    has "$out" "E_TOO_LONG: .*: prompt and max_new are together $((n + 1024)) tokens, at most 1024"
done
stop
# Ids that were sent while a model without a tokenizer was loading: the same
# answer as afterwards. Regression: it was E_NO_MODEL, "flags", for a flag that
# fdctl had set itself.
mkdir "$dir/m"
cp "$DEMO/config.json" "$DEMO/model.safetensors" "$dir/m"
printf '#!/bin/sh\nuntil [ -e "%s/go" ]; do sleep 0.05; done\nexec "%s" "$@"\n' "$dir" "$WORKER" >"$dir/worker"
chmod 755 "$dir/worker"
launch --set daemon.worker="$dir/worker" --set model.path="$dir/m" --set device.backend=cpu
until_true 20 ctl ping || fail "no gate: $(cat "$dir/log")"
echo '[5, 6, 7]' >"$dir/ids"
printf '{"ids": [5, 6, 7]}\n%.0s' 1 2 3 >"$dir/batch"
ask=(--ids-file "$dir/ids" --max-tokens 4 --temperature 0 --ignore-eos)
ctl generate "${ask[@]}" >"$dir/out" 2>"$dir/err" &
one=$!
ctl generate --batch "$dir/batch" --max-tokens 4 --temperature 0 --ignore-eos --json >"$dir/out3" 2>"$dir/err3" &
batch=$!
ctl generate "${ask[@]}" --echo >"$dir/out4" 2>"$dir/err4" &
echo=$!
queued() { [ "$(ctl status --json | json 'd["requests"]["queued"]')" = "$1" ]; }
until_true 20 queued 5 || fail "the requests do not wait: $(ctl status)"
touch "$dir/go"
wait $one || fail "ids while loading: $(cat "$dir/err")"
wait $batch || fail "a batch while loading: $(cat "$dir/err3")"
wait $echo && fail "text that cannot be was not refused"
has "$(cat "$dir/err4")" E_NO_MODEL
expect 0 ctl generate "${ask[@]}"
[ "$out" = "$(cat "$dir/out")" ] || fail "while loading: $(cat "$dir/out"), then: $out"
[ "$(json "len(d) if all(' '.join(map(str, r['ids'])) == '$out' for r in d) else d" <"$dir/out3")" = 3 ] ||
    fail "a batch while loading: $(cat "$dir/out3")"
stop
