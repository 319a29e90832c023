#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl chat: from a pipe, as JSON, in a pseudo-terminal; conversations are saved and
# loaded, and names of special tokens in messages are text; special tokens of an answer
# are its parser's.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
command -v python3 >/dev/null || skip "no python3"
start --set model.path="$DEMO"
t=$DEMO/chat_template.jinja
chat() { ctl chat --template "$t" --max-tokens 12 --seed 1 "$@"; }

out=$(printf 'In the beginning\n/regenerate\n/system Be brief.\n/save %s\n' "$dir/saved" | chat) || fail "exit $?"
[ "$(printf '%s\n' "$out" | sed -n 1p)" = "$(printf '%s\n' "$out" | sed -n 2p)" ] || fail "another answer of the same seed: $out"
[ "$(stat -c %a "$dir/saved")" = 600 ] || fail "others may read what was said"
roles=$(python3 -c 'import json,sys; print(*[m["role"] for m in json.load(open(sys.argv[1]))])' "$dir/saved")
[ "$roles" = "system user assistant" ] || fail "saved: $roles"
out=$(printf '/load %s\nAnd then\n' "$dir/saved" | chat --json) || fail "exit $?"
has "$out" '"finish_reason":"length"'
[ "$(printf '%s' "$out" | json 'd["output_tokens"]')" = 12 ] || fail "tokens: $out"
# rules of sampling hold for an answer too
[ "$(echo Hello | chat --json --allow-ids 40 | json 'd["content"]')" = "$(ctl detokenize 40 40 40 40 40 40 40 40 40 40 40 40)" ] || fail "--allow-ids has no effect"
# lines of a file made elsewhere
[ "$(printf 'Hello\r\n/regenerate\r\n' | chat)" = "$(printf 'Hello\n/regenerate\n' | chat)" ] || fail "a CR is said"
# one token as a name, some as text
[ "$(echo '<|endoftext|>' | chat --json | json 'd["prompt_tokens"] > 3')" = True ] || fail "a name in a line became its token"
expect 64 sh -c "echo /nonsense | '$FDCTL' --runtime-dir '$run' chat --template '$t'"
has "$out" "no such command"
expect 64 ctl chat --template "$t" --n 2
echo '[{"a":1}]' >"$dir/bad"
expect 65 sh -c "echo '/load $dir/bad' | '$FDCTL' --runtime-dir '$run' chat --template '$t'"
has "$out" "array of objects"
echo '{% nonsense %}' >"$dir/bad"
expect 65 sh -c "echo a | '$FDCTL' --runtime-dir '$run' chat --template '$dir/bad'"

HOME=$dir FDD_SLOW_FACTOR=$slow timeout $((120 * slow)) python3 "$FDD_SRC/tests/sys/055-chat.py" "$dir/said" \
    "$FDCTL" --runtime-dir "$run" chat --template "$t" || fail "terminal: see above"
grep -q Moses "$dir/.fdd-chat" || fail "no history"
[ "$(stat -c %a "$dir/.fdd-chat")" = 600 ] || fail "others may read the history"
stop

# a marker that is a special token begins the reasoning
cp -r "$DEMO" "$dir/think"
python3 - "$dir/think/tokenizer.json" <<'PY' || fail "no tokenizer"
import json, sys
t = json.load(open(sys.argv[1]))
i = t["model"]["vocab"].pop("".join(t["model"]["merges"].pop()))
assert i == 4094, i
t["added_tokens"].insert(0, dict(t["added_tokens"][0], id=i, content="[THINK]"))
json.dump(t, open(sys.argv[1], "w"))
PY
(echo '{# [TOOL_CALLS] -#}'; cat "$t") >"$dir/mistral"
start --set model.path="$dir/think"
# the token 4094 once, then the other one
one=(--json --max-tokens 6 --allow-ids 40,4094 --logit-bias 4094=100 --bad-ids 40,4094 --bad-ids 4094,4094)
out=$(echo Hello | ctl chat --template "$dir/mistral" "${one[@]}") || fail "exit $?"
[ "$(printf '%s' "$out" | json 'd["reasoning_content"]')" = "$(ctl detokenize 40 40 40 40 40)" ] ||
    fail "no reasoning: $out"
[ "$(printf '%s' "$out" | json 'd["content"]')" = "" ] || fail "content: $out"
out=$(echo Hello | ctl chat --template "$t" "${one[@]}") || fail "exit $?"
[ "$(printf '%s' "$out" | json 'd["content"]')" = "$(ctl detokenize 40 40 40 40 40)" ] ||
    fail "a special token shows: $out"
stop
# the token that ends an answer does not show, whether a parser looks for markers or not
CHAT=$FDD_SRC/conf/models/demo-chat
start --set model.path="$CHAT"
(echo '{# [TOOL_CALLS] -#}'; cat "$CHAT/chat_template.jinja") >"$dir/mistral"
ask() { printf 'Who built the ark?\n' | ctl chat --json --temperature 0 "$@" | json 'd["content"]'; }
has "$(ask)" 'Noah'
[ "$(ask)" = "$(ask --template "$dir/mistral")" ] || fail "another answer: $(ask --template "$dir/mistral")"
has "$(ask --template "$dir/mistral" --keep-special)" 'Noah.*<.im_end.>$'
stop
