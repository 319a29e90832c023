#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Biases, allowed and banned tokens and words, logprobs of chosen ids and a bound of
# reasoning, from fdctl to the answer: the effect of each, equal tokens at every overlap
# depth with and without graphs, and precise errors.
. "$(dirname "$0")/lib.sh"
begin() {
    start --set model.path="$FDD_SRC/conf/models/demo" --set device.backend=cpu \
        --set device.threads=1 --set kv.num_blocks=64 "$@"
}
get() { # EXPRESSION OPTION...
    local e=$1
    shift
    ctl generate --max-tokens 24 --json "$@" | json "$e"
}
ids='" ".join(str(i) for i in d["ids"])'
p=(-p 'The fox and the hen' --ignore-eos)
begin --set device.overlap_depth=2
plain=$(get "$ids" "${p[@]}" --temperature 0)
read -r -a t <<<"$plain"
[ "${#t[@]}" = 24 ] || fail "not 24 tokens: $plain"

# a bias prevents the first token, or forces another one always
[ "$(get 'd["ids"][0]' "${p[@]}" --temperature 0 --logit-bias "${t[0]}=-100")" != "${t[0]}" ] ||
    fail "a bias of -100 changed nothing"
[ "$(get 'set(d["ids"]) == {77}' "${p[@]}" --temperature 0 --logit-bias 77=100)" = True ] ||
    fail "a bias of 100 did not make a token come"
# two biases of an id add up in the library; the daemon gets each id once
[ "$(get "$ids" "${p[@]}" --temperature 0 --logit-bias 77=60 --logit-bias 77=-60)" = "$plain" ] ||
    fail "biases of 60 and -60 are not 0"
# only allowed tokens come, and logprobs remain those of the model
[ "$(get 'set(d["ids"]) <= {5, 6, 7, 300}' "${p[@]}" --temperature 2 --seed 3 --allow-ids 5,6 \
    --allow-ids '7 300')" = True ] || fail "--allow-ids: other tokens came"
raw=$(get 'd["logprobs"][0]["logprob"]' "${p[@]}" --temperature 0 --logprobs 0 --max-tokens 1 \
    --logit-bias "${t[0]}=-5" --allow-ids "${t[0]}")
[ "$(get 'd["logprobs"][0]["logprob"]' "${p[@]}" --temperature 0 --logprobs 0 --max-tokens 1)" = "$raw" ] ||
    fail "a logprob has the bias or the mask in it: $raw"
# a banned id never appears; a banned sequence never appears, but each of its ids may
[ "$(get "${t[1]} in d['ids']" "${p[@]}" --temperature 0 --bad-ids "${t[1]}")" = False ] || fail "--bad-ids ID"
two=$(get "$ids" "${p[@]}" --temperature 0 --bad-ids "${t[4]},${t[5]}")
case " $two " in *" ${t[4]} ${t[5]} "*) fail "--bad-ids: the sequence came: $two" ;; esac
[ "${two% *}" != "${plain% *}" ] && [[ $two == "${t[0]} ${t[1]} ${t[2]} ${t[3]} ${t[4]} "* ]] ||
    fail "--bad-ids: more than the sequence was banned: $two"
# a word, at any position
word=$(ctl generate "${p[@]}" --temperature 0 --max-tokens 24 | tr -c 'a-zA-Z' '\n' | grep -m1 -E '^[a-z]{3,}$')
[ -n "$word" ] || fail "no word in the output"
ctl generate "${p[@]}" --temperature 0 --max-tokens 24 --bad-words "$word" >"$dir/text"
grep -qw -- "$word" "$dir/text" && fail "--bad-words $word: $(cat "$dir/text")"
# logprobs of chosen ids, after the alternatives
[ "$(get '[len(e["top"]) for e in d["logprobs"]] == [4, 4]' "${p[@]}" --max-tokens 2 --logprobs 2 \
    --logprob-ids 9,8)" = True ] || fail "--logprob-ids: $(ctl generate --json "${p[@]}" \
    --max-tokens 2 --logprobs 2 --logprob-ids 9,8)"
# reasoning: from the first token, 3 tokens, then the closing one
ctl generate "${p[@]}" --temperature 0 --max-tokens 24 --json --reasoning "3,${t[0]},99" >"$dir/r"
[ "$(json 'd["ids"][4] == 99 and d["reasoning_tokens"]' <"$dir/r")" = 3 ] || fail "--reasoning: $(cat "$dir/r")"

# a batch has them as keys
cat >"$dir/batch" <<JSON
{"prompt": "The fox and the hen", "temperature": 0, "max_tokens": 24, "logit_bias": {"77": 100}}
{"prompt": "The fox and the hen", "temperature": 1.5, "seed": 5, "max_tokens": 30, "n": 3, "allow_ids": [5, 6, 7, 8, 9, 10, 300], "bad_ids": [[5, 6], [7]], "logprobs": 2, "logprob_ids": [3, 5], "logit_bias": {"9": 1.5}, "repetition_penalty": 1.2}
{"prompt": "The fox and the hen", "temperature": 0.9, "seed": 6, "max_tokens": 30, "bad_words": ["the", "and"], "reasoning": [4, 260, 261], "logit_bias": {"260": 4}, "min_tokens": 20, "min_p": 0.01}
{"prompt": "Once", "temperature": 0.7, "seed": 7, "max_tokens": 30}
JSON
batch() {
    ctl generate --batch "$dir/batch" --json | python3 -c 'import json, sys
for line in sys.stdin:
    d = json.loads(line)
    print([(c["ids"], c["logprobs"] if "logprobs" in c else 0, c.get("reasoning_tokens"))
           for c in d.get("choices") or [d]])' >"$1"
    [ "$(wc -l <"$1")" = 4 ] || fail "a batch of 4: $(cat "$1")"
}
batch "$dir/want"

# ---- errors: the value, the bound, and nothing lost
refused() { # PATTERN OPTION...
    local what=$1
    shift
    out=$(ctl generate "${p[@]}" "$@" 2>&1) && fail "not refused: $*"
    has "$out" "$what"
}
refused 'logit_bias.* is 101, at most 100' --logit-bias 5=101
refused 'E_BAD_TOKEN.*logit_bias ids.* is 999999, at most 4095' --logit-bias 999999=1
refused 'E_BAD_TOKEN.*allowed_ids is 4096, at most 4095' --allow-ids 1,4096
refused 'E_BAD_PARAM.*bad_words.* is 33, at most 32' --bad-ids "$(seq -s, 33)"
refused 'E_BAD_PARAM.*bad_words is 0, at least 1' --bad-words '  '
refused 'E_BAD_PARAM.*logprob_ids needs logprobs' --logprob-ids 5
refused 'E_BAD_PARAM.*open_id and close_id of reasoning are both 7' --reasoning 1,7,7
# no token is left: an error that names the parameter, and other requests go on
refused 'E_BAD_PARAM.*allowed_ids' --allow-ids 5,6 --bad-ids 5 --bad-ids 6
expect 64 ctl generate "${p[@]}" --logit-bias 5
has "$out" 'logit-bias 5: must be ID=X'
expect 64 ctl generate "${p[@]}" --reasoning 1,2
has "$out" 'must be N,OPEN,CLOSE'
[ "$(get "$ids" "${p[@]}" --temperature 0)" = "$plain" ] || fail "not the same as before"
stop

# ---- the same tokens at every depth, with graphs and without
for way in 0:no 1:yes 2:no 3:yes 4:no 4:yes; do
    begin --set device.overlap_depth="${way%:*}" --set graph.use_cudagraph="${way#*:}"
    batch "$dir/got"
    cmp "$dir/want" "$dir/got" || fail "other tokens at depth ${way%:*}, graphs ${way#*:}"
    stop
done

begin --set sched.max_penalty_seqs=0
refused 'E_UNSUPPORTED.*allowed_ids; sched.max_penalty_seqs is 0' --allow-ids 5
stop
