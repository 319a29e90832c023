#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The prefix cache as a client sees it: the same output cold, warm and with the cache off;
# hits are reported; users are separate; samples and duplicates compute a prompt once;
# prompt logprobs of all tokens; a pool that is too small, with host memory.
. "$(dirname "$0")/lib.sh"
n_ids=$(few 500 180) n_cached=$(few 448 128) # blocks of 64, and a token is left to compute
python3 - "$dir" "$n_ids" "$(few 40 12)" <<'PY'
import json, random, sys
random.seed(1)
ids = [random.randrange(300, 4000) for _ in range(int(sys.argv[2]))]
def put(name, reqs):
    with open(sys.argv[1] + "/" + name, "w") as f:
        for r in reqs:
            f.write(json.dumps(dict({"ids": ids, "max_tokens": 20, "temperature": 0,
                "ignore_eos": True}, **r)) + "\n")
put("one", [{}])
put("user", [{"user": 4242}])
put("scores", [{"prompt_logprobs": 1}])
other = [i + 1 for i in ids]
put("samples", [{"ids": other, "n": 4, "temperature": 1, "seed": 5}])
dup = [i + 2 for i in ids]
put("dups", [{"ids": dup}] * 6)
many = [[random.randrange(300, 4000) for _ in range(random.choice([70, 200, 450]))]
    for _ in range(6)]
put("many", [{"ids": many[i % 6], "max_tokens": 5 + i, "seed": i, "temperature": i % 2}
    for i in range(int(sys.argv[3]))])
PY
ask() { ctl generate --batch "$dir/$1" --json >"$dir/json" || fail "$1"; }
show() { ask "$1"; json "$2" <"$dir/json"; }
ids='[[c["ids"] for c in r.get("choices", [r])] for r in (d if isinstance(d, list) else [d])]'
computed() { ctl stat -1 --json | json 'd["worker"]["prompt_tokens"]'; }

start --set model.path="$DEMO" --set device.backend=cpu --set kv.enable_prefix_caching=no
for f in one scores samples many; do
    show $f "$ids" >"$dir/$f.want"
done
show scores 'd["prompt_logprobs"]' >"$dir/logprobs.want"
[ "$(show one 'd["cached_tokens"]')" = 0 ] || fail "cached tokens without a cache"
stop

start --set model.path="$DEMO" --set device.backend=cpu --set ipc.trusted_users="$(id -u)"
for want in 0 "$n_cached"; do
    show one "$ids" | cmp -s - "$dir/one.want" || fail "other output with $want cached"
    n=$(json 'd["cached_tokens"]' <"$dir/json")
    [ "$n" = $want ] || fail "$n tokens cached instead of $want"
done
[ "$(show user 'd["cached_tokens"]')" = 0 ] || fail "a user found another's blocks"
[ "$(show user 'd["cached_tokens"]')" = "$n_cached" ] || fail "a user did not find its own blocks"
show scores 'd["prompt_logprobs"]' | cmp -s - "$dir/logprobs.want" || fail "prompt logprobs"
n=$(computed)
show samples "$ids" | cmp -s - "$dir/samples.want" || fail "samples differ"
n=$(($(computed) - n))
[ $n -lt $((2 * n_ids)) ] || fail "four samples of $n_ids tokens computed $n"
n=$(computed)
ask dups
n=$(($(computed) - n))
# five of them compute only the tokens after the last whole block
[ $n -lt $((n_ids + 6 * (n_ids - n_cached))) ] || fail "six duplicates of $n_ids tokens computed $n"
stop

start --set model.path="$DEMO" --set device.backend=cpu --set kv.num_blocks=20 \
    --set kv.swap_space=0.01 --set device.overlap_depth=4
for pass in 1 2; do
    show many "$ids" | cmp -s - "$dir/many.want" || fail "a small pool changes outputs ($pass)"
done
n=$(ctl stat -1 --json | json 'd["worker"]["kv_swapped_in"] * d["worker"]["prefix_evictions"]')
[ "$n" -gt 0 ] || fail "no block was evicted and copied back"
stop
