#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Optional outputs of a request, end to end: the model's files, separate special tokens,
# texts of tokens and prompt, a prompt that is only scored, the best of several samples.
. "$(dirname "$0")/lib.sh"

model=$dir/model
cp -r "$DEMO" "$model"
seq 400000 >"$model/chat_template.jinja" # 2.7 MB: in three pieces
cp "$model/chat_template.jinja" "$dir/template"
truncate -s 9M "$model/chat_parser.json"
start --set model.path="$model" --set device.backend=cpu --set device.threads=1 --set kv.num_blocks=64

# ---- files: as they were when the model was loaded
echo changed >"$model/chat_template.jinja"
for name in tokenizer_config.json generation_config.json; do
    ctl model --file $name >"$dir/file" || fail "model --file $name"
    cmp "$dir/file" "$model/$name" || fail "$name is not the model's"
done
ctl model --file chat_template.jinja >"$dir/file" || fail "model --file chat_template.jinja"
cmp "$dir/file" "$dir/template" || fail "the template is not the one at the start"
logged 1 'chat_parser.json: 9437184 bytes, the limit is 8388608; clients do not get it' || fail "no word of a large file"
expect 65 ctl model --file chat_parser.json
has "$out" 'E_NO_FILE'
expect 65 ctl model --file ../config.json
has "$out" 'E_NO_FILE'
expect 64 ctl model --file vocabulary --json
ctl model --json | json 'd["parameters"]' >/dev/null || fail "fdctl model shows no model"
ctl model --file vocabulary >"$dir/vocabulary" || fail "model --file vocabulary"
if command -v python3 >/dev/null; then
    python3 - "$dir/vocabulary" >"$dir/tokens" <<'PY' || fail "the vocabulary cannot be read"
import json, struct, sys
b, at, out = open(sys.argv[1], "rb").read(), 0, []
while at < len(b):
    n, kind = struct.unpack_from("<HB", b, at)
    out.append((kind, b[at + 3:at + 3 + n]))
    at += 3 + n
assert at == len(b) and len(out) == 4096, (at, len(b), len(out))
assert out[4095] == (3, b"<|endoftext|>"), out[4095]
assert sum(k == 0 for k, _ in out) > 4000
for i in range(300, 320):
    print(i, out[i][1].hex())
PY
    while read -r id hex; do
        [ "$(ctl detokenize "$id" --json | json 'd["text"].encode().hex()')" = "$hex" ] ||
            case $hex in *[89a-f]?*) ;; *) fail "id $id is not $hex" ;; esac
    done <"$dir/tokens"
fi

# ---- the prompt's text, for prompts in text and in ids; scored only
gen() { ctl generate --temperature 0 --json "$@"; }
text=$(ctl generate -p 'One day' --no-special --temperature 0 --max-tokens 8)
[ "$(ctl generate -p 'One day' --no-special --temperature 0 --max-tokens 8 --echo)" = "One day$text" ] ||
    fail "--echo is not the prompt and the text"
[ "$(ctl generate -p 'One day' --no-special --max-tokens 0 --echo)" = "One day" ] || fail "--max-tokens 0 --echo"
ctl tokenize -p 'One day, a girl' --no-special >"$dir/ids"
gen --ids-file "$dir/ids" --max-tokens 8 --prompt-logprobs 2 --logprobs 1 --token-text --echo >"$dir/a"
gen --ids-file "$dir/ids" --max-tokens 0 --prompt-logprobs 2 --token-text --echo >"$dir/b"
gen --ids-file "$dir/ids" --max-tokens 0 --prompt-logprobs 2 --prompt-from 3 --n 3 >"$dir/c"
command -v python3 >/dev/null || { stop; exit 0; }
python3 - "$dir/a" "$dir/b" "$dir/c" <<'PY' || fail "logprobs, texts or ends"
import json, sys
a, b, c = (json.load(open(f)) for f in sys.argv[1:])
assert a["prompt_text"] == b["prompt_text"] == "One day, a girl", (a["prompt_text"], b["prompt_text"])
assert len(a["ids"]) == 8 and a["usage"]["output_tokens"] == 8
assert "".join(t["text"] for t in a["logprobs"]) == a["text"], (a["logprobs"], a["text"])
assert all(len(p) == 3 and isinstance(p[2], str) for t in a["logprobs"] for p in t["top"])
assert a["prompt_logprobs"] == b["prompt_logprobs"] and len(b["prompt_logprobs"]) == len(b["prompt_ids"])
assert b["prompt_logprobs"][0] is None
assert "One day, a girl".endswith("".join(t["text"] for t in b["prompt_logprobs"][1:]))
assert b["ids"] == [] and b["text"] == "" and b["finish_reason"] == "length" and b["usage"]["output_tokens"] == 0
assert c["prompt_logprobs"][:3] == [None] * 3
assert [t["logprob"] for t in c["prompt_logprobs"][3:]] == [t["logprob"] for t in b["prompt_logprobs"][3:]]
assert len(c["choices"]) == 3 and all(x["finish_reason"] == "length" and x["ids"] == [] for x in c["choices"])
PY
expect 65 ctl generate -p x --max-tokens 0 --prompt-logprobs 1 --prompt-from 100
has "$out" 'prompt_from is 100, at most'
expect 65 ctl generate -p x --max-tokens 0 --min-tokens 1
has "$out" 'min_new is 1'

# ---- separate special tokens: the end of the text is one
gen -p 'The end.' --max-tokens 300 --alone >"$dir/a"
gen -p 'The end.' --max-tokens 300 >"$dir/b"
python3 - "$dir/a" "$dir/b" <<'PY' || fail "--alone"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["ids"] == b["ids"] and a["text"] == b["text"]
eos = [[i, t, "<|endoftext|>"] for i, t in enumerate(a["ids"]) if t == 4095]
assert a["special"] == eos and "special" not in b, (a["special"], eos)
assert (b["finish_reason"] == "stop") == (len(eos) == 1)
print(b["finish_reason"])
PY
[ "$(ctl generate -p x --ignore-eos --max-tokens 4 --alone --json | json 'd["special"]')" = "[]" ] || fail "special is not []"

# ---- the best of samples: those of --n with the same seed, in order
best() { ctl generate -p 'One day' --seed 5 --temperature 1.2 --max-tokens 30 --json "$@"; }
best --n 6 --logprobs 0 >"$dir/a"
best --n 2 --best-of 6 >"$dir/b"
best --best-of 6 --logprobs 1 >"$dir/c"
python3 - "$dir/a" "$dir/b" "$dir/c" <<'PY' || fail "--best-of"
import json, sys
a, b, c = (json.load(open(f)) for f in sys.argv[1:])
def mean(x):
    return sum(t["logprob"] for t in x["logprobs"]) / len(x["ids"])
want = sorted(a["choices"], key=lambda x: -mean(x))
for x, y in zip(b["choices"], want):
    assert x["ids"] == y["ids"] and x["text"] == y["text"], (x, y)
    assert abs(x["mean_logprob"] - mean(y)) < 1e-5, (x["mean_logprob"], mean(y))
assert len(b["choices"]) == 2 and c["ids"] == want[0]["ids"]
assert [t["logprob"] for t in c["logprobs"]] == [t["logprob"] for t in want[0]["logprobs"]]
assert b["usage"]["output_tokens"] == c["usage"]["output_tokens"] == a["usage"]["output_tokens"]
assert len({tuple(x["ids"]) for x in a["choices"]}) > 3
PY
expect 65 ctl generate -p x --n 3 --best-of 2
has "$out" 'best_of is 2, at least 3'
expect 65 ctl generate -p x --best-of 65
has "$out" 'best_of is 65, at most 64'
ctl set output.enable_logprob=no >/dev/null || fail "set output.enable_logprob"
expect 65 ctl generate -p x --best-of 2
has "$out" 'E_UNSUPPORTED.*best_of.*output.enable_logprob is no'
expect 0 ctl generate -p x --n 2 --best-of 2 --max-tokens 1
stop

# ---- samples compute their prompt once, even without the prefix cache, and
# give the same tokens
seq 1 900 >"$dir/ids"
samples() { # CACHE: runs the samples; prints the number of computed prompt tokens
    start --set model.path="$model" --set device.backend=cpu --set device.threads=1 --set kv.num_blocks=64 \
        --set kv.enable_prefix_caching="$1"
    ctl generate --ids-file "$dir/ids" --n 8 --seed 3 --temperature 1 --max-tokens 6 --json |
        json '[c["ids"] for c in d["choices"]]' >"$dir/samples-$1"
    ctl stat -1 --json | json 'd["worker"]["prompt_tokens"]'
    stop
}
for cache in yes no; do
    samples $cache >"$dir/computed"
    [ "$(cat "$dir/computed")" = 907 ] || fail "8 samples of 900 tokens computed $(cat "$dir/computed"), prefix cache $cache"
done
cmp "$dir/samples-yes" "$dir/samples-no" || fail "the samples depend on the prefix cache"
