#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G1: unmodified third-party clients with the demo model. Each is installed from
# PyPI into its own environment; without network it is left out. The versions of
# those that ran are printed.
#   FDD_CLIENTS="openai anthropic langchain"   which; "all" has vllm, guidellm and aiperf
#               too, which take gigabytes: `tests/check-long clients`
#   FDD_CLIENT_VENVS=DIR   keep the environments there and use existing ones
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "the clients are the same with sanitizers"
light="openai anthropic langchain" heavy="vllm guidellm aiperf"
clients=${FDD_CLIENTS:-$light}
[ "$clients" != all ] || clients="$light $heavy"
declare -A packages=([openai]=openai [anthropic]=anthropic [langchain]=langchain-openai [vllm]='vllm[bench]'
    [guidellm]=guidellm [aiperf]=aiperf)
venvs=${FDD_CLIENT_VENVS:-$dir/venvs}
mkdir -p "$venvs"
model=$(basename "$DEMO")

sum() { printf %s "$1" | sha256sum | cut -c 1-64; }
echo "$(sum k-one) one" >"$dir/keys"
echo "$(sum k-two) two inflight=1" >>"$dir/keys"
start --set model.path="$DEMO"
gateway --set chat.template="$DEMO/chat_template.jinja" --set keys.file="$dir/keys"
export FDD_MODEL=$model OPENAI_API_KEY=k-one HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HOME=$dir

venv() { # CLIENT: makes it; returns 1, with the reason printed, if that is impossible
    local v=$venvs/$1 limit=300
    [ ! -e "$v/made" ] || return 0
    case " $heavy " in *" $1 "*) limit=3000 ;; esac
    python3 -m venv "$v" >/dev/null 2>&1 || { echo "$1: no python3-venv"; return 1; }
    timeout $limit "$v/bin/pip" install -q --retries 1 --timeout 15 "${packages[$1]}" >"$dir/pip" 2>&1 ||
        { echo "$1: PyPI cannot be reached: $(tail -n 1 "$dir/pip")"; return 1; }
    touch "$v/made"
}
version() { "$venvs/$1/bin/pip" list 2>/dev/null | sed -nE "s/^(${packages[$1]%[*}) +/\1 /p"; }
script() { timeout 300 "$venvs/$1/bin/python" "$gw/g1_$1.py" || fail "$1: see above"; }
run_openai() { script openai; }
run_langchain() { script langchain; }
run_anthropic() {
    if [ "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer k-one' -H 'Content-Type: application/json' \
        -d '{}' "$url/v1/messages")" = 404 ]; then
        echo "anthropic: the gateway has no /v1/messages"
        return 1
    fi
    script anthropic
}
run_vllm() {
    local kind path
    for kind in openai openai-chat; do
        path=/v1/completions
        [ $kind = openai ] || path=/v1/chat/completions
        timeout 900 "$venvs/vllm/bin/vllm" bench serve --backend $kind --base-url "$url" --endpoint $path \
            --model "$model" --tokenizer "$DEMO" --dataset-name random --random-input-len 40 \
            --random-output-len 20 --num-prompts 20 --max-concurrency 4 --ignore-eos >"$dir/vllm" 2>&1 ||
            fail "vllm bench serve, $kind: $(tail -n 20 "$dir/vllm")"
        grep -qE '^Successful requests: +20 *$' "$dir/vllm" || fail "vllm bench serve, $kind: $(tail -n 40 "$dir/vllm")"
        # every token is counted, however tokens are spread over events
        grep -qE '^Total generated tokens: +400 *$' "$dir/vllm" || fail "vllm bench serve, $kind: $(tail -n 40 "$dir/vllm")"
    done
}
run_guidellm() {
    timeout 900 "$venvs/guidellm/bin/guidellm" run \
        --backend "kind=openai_http,target=$url,model=$model,api_key=k-one" \
        --profile kind=concurrent,streams=4 --constraint kind=max_requests,count=20 \
        --tokenizer "kind=huggingface_auto,model=$DEMO" \
        --data kind=synthetic_text,prompt_tokens=40,output_tokens=20 \
        --output "kind=json,path=$dir/guidellm.json" --disable-console-interactive >"$dir/guidellm" 2>&1 ||
        fail "guidellm: $(tail -n 40 "$dir/guidellm")"
    python3 - "$dir/guidellm.json" <<'P' || fail "guidellm: $(tail -n 40 "$dir/guidellm")"
import json, sys
b = json.load(open(sys.argv[1]))["benchmarks"][0]
n = b["metrics"]["request_totals"]
assert n["successful"] == 20 and n["errored"] == 0, n
tokens = b["metrics"]["output_token_count"]["successful"]
assert tokens["min"] == tokens["max"] == 20, tokens
P
}
run_aiperf() {
    # aiperf finds a tokenizer in a folder only if it may ask the hub; it does not ask it
    # then
    timeout 900 env -u HF_HUB_OFFLINE -u TRANSFORMERS_OFFLINE "$venvs/aiperf/bin/aiperf" profile --model "$model" --url "$url" --endpoint-type chat --streaming \
        --tokenizer "$DEMO" --concurrency 4 --request-count 20 --synthetic-input-tokens-mean 40 \
        --output-tokens-mean 20 --api-key k-one --ui none --output-artifact-dir "$dir/aiperf.d" >"$dir/aiperf" 2>&1 ||
        fail "aiperf: $(tail -n 40 "$dir/aiperf")"
    python3 - "$dir"/aiperf.d/profile_export_aiperf.json <<'P' || fail "aiperf: $(tail -n 40 "$dir/aiperf")"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["request_count"]["avg"] == 20 and not d.get("error_summary"), (d["request_count"], d.get("error_summary"))
P
}

done=0
for c in $clients; do
    [ -n "${packages[$c]:-}" ] || fail "FDD_CLIENTS: no client $c; there are $light $heavy"
    venv $c || continue
    run_$c || continue
    echo "ran: $(version $c)"
    done=$((done + 1))
done
gateway_stop
stop
[ $done -gt 0 ] || skip "no client could be installed"
