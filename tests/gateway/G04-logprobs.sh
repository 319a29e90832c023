#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G4: logprobs, also those of an echoed prompt, equal those of libfdclient
# to the last digit.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway
ask='{"prompt":"In the beginning","max_tokens":8,"seed":3,"logprobs":2,"echo":true}'
post /v1/completions "$ask" >"$dir/http.json"
! grep -q '"code":"unsupported"' "$dir/http.json" || skip "this daemon gives no texts of tokens"
ctl generate -p 'In the beginning' --max-tokens 8 --seed 3 --logprobs 2 --prompt-logprobs 2 --json >"$dir/lib.json" ||
    fail "fdctl: $?"
python3 - "$dir/http.json" "$dir/lib.json" <<'T' || fail "see above"
import json, struct, sys
http, lib = (json.load(open(p)) for p in sys.argv[1:])
f32 = lambda x: struct.unpack("f", struct.pack("f", x))[0]
c = http["choices"][0]
got = [None if v is None else f32(v) for v in c["logprobs"]["token_logprobs"]]
o = lib  # with one sample its members are at the top level
# fdctl prints 9 digits, enough to restore a float
first = lambda e: f32(e["logprob"] if "logprob" in e else e["logprobs"][0]["logprob"])
want = [None] + [first(e) for e in lib["prompt_logprobs"] if e is not None] + [first(e) for e in o["logprobs"]]
assert got == want, (got, want)
assert c["text"] == "In the beginning" + o["text"], (c["text"], o["text"])
print(f"{len(got)} logprobs are the same")
T
gateway_stop
stop
