#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The name of a special token in a prompt is text, unless the request wants the token; for
# fdctl tokenize the default is the opposite. Both give the ids of the reference library,
# with and without split_special_tokens (tests/parity/tok/llama3.vec). Also: daemon and
# client of different protocol versions give one error, which names both.
. "$(dirname "$0")/lib.sh"
eot='<|endoftext|>' id=4095
start --set model.path="$FDD_SRC/conf/models/demo" --set device.backend=cpu --set device.threads=1 \
    --set kv.num_blocks=16
ids() { ctl "$@" --json | json '" ".join(str(i) for i in d["ids"])'; }

text=$(ids tokenize -p "In$eot" --no-special --literal)
token=$(ids tokenize -p "In$eot" --no-special)
[ "${token##* }" = $id ] || fail "tokenize: no token $id in: $token"
case " $text " in *" $id "*) fail "tokenize --literal: token $id in: $text" ;; esac
# shellcheck disable=SC2086
[ "$(ctl detokenize $text)" = "In$eot" ] || fail "not the text: $text"

# a prompt, and one of a batch
gen() { ctl generate --max-tokens 1 --no-special --json "$@" |
    json '" ".join(str(i) for i in d["prompt_ids"])'; }
[ "$(gen -p "In$eot")" = "$text" ] || fail "a prompt's text became a special token"
[ "$(gen -p "In$eot" --parse-special)" = "$token" ] || fail "generate --parse-special: no special token"
batch() { printf '{"prompt": "In%s"%s}\n' "$eot" "$1" >"$dir/batch"; gen --batch "$dir/batch"; }
[ "$(batch '')" = "$text" ] || fail "--batch: a prompt's text became a special token"
[ "$(batch ', "parse_special": true')" = "$token" ] || fail "--batch: parse_special: no special token"
# special tokens added by the tokenizer remain
[ "$(ids tokenize -p In --literal)" = "$id $(ids tokenize -p In --no-special)" ] ||
    fail "tokenize --literal: no begin-of-text token"
expect 64 ctl generate -p x --raw-special
has "$out" 'raw-special'

# A client of protocol 1, and one that sets a flag bit of that version
# which no longer exists.
command -v python3 >/dev/null || { stop; exit 0; }
python3 - "$run/fdd.sock" <<'PY' || fail "the daemon's answer to a client of protocol 1"
import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(struct.pack("<IHHIIQQIIII32s", 0x31444446, 1, 0, 80, 0, 0, 0, 0, 0, 0, 0, b"old"))
magic, major, minor, size, err = struct.unpack_from("<IHHIi", s.recv(4096))
assert (magic, major, minor, err) == (0x31444446, 3, 0, -2), (magic, major, minor, err)
PY
until_true 5 logged 1 'session: .* protocol 1\.0, this daemon 3\.0' || fail "the log does not name both versions"
stop

# Compared with the reference: all texts through TOKENIZE; those with a special token's
# name also as prompts.
start --set model.path="$FDD_SRC/conf/models/demo" --set model.tokenizer="$FDD_SRC/tests/parity/tok/llama3" \
    --set device.backend=cpu --set device.threads=1 --set kv.num_blocks=16
python3 - "$FDD_SRC/tests/parity/tok/llama3.vec" "$dir" "$FDCTL" --runtime-dir "$run" <<'PY' || fail "not the reference's ids"
import json, subprocess, sys
want, text = {f: {} for f in range(4)}, ""
for line in open(sys.argv[1]):
    if line.startswith("e "):
        _, flags, raw, ids = line.split()
        if raw != "=":
            text = "" if raw == "-" else bytes.fromhex(raw).decode()
        for f in flags.split(","):
            want[int(f)][text] = [] if ids == "-" else [int(i) for i in ids.split(",")]
def fdctl(words, lines):
    with open(sys.argv[2] + "/in", "w") as f:
        f.writelines(json.dumps(l) + "\n" for l in lines)
    r = subprocess.run(sys.argv[3:] + words, capture_output=True, text=True, check=True)
    return [json.loads(l) for l in r.stdout.splitlines() if l]
n = differ = 0
for f, texts in want.items():  # 1: add special tokens, 2: parse their names
    words = ["tokenize", sys.argv[2] + "/in", "--json-lines", "--json"]
    words += [] if f & 1 else ["--no-special"]
    words += [] if f & 2 else ["--literal"]
    for text, got in zip(texts, fdctl(words, texts), strict=True):
        assert got["ids"] == texts[text], (f, text, got["ids"], texts[text])
        n += 1
    named = [t for t in texts if "<|" in t]
    for text, got in zip(named, fdctl(["generate", "--batch", sys.argv[2] + "/in", "--max-tokens", "1", "--json"],
            [{"prompt": t, "no_special": not f & 1, "parse_special": bool(f & 2)} for t in named]), strict=True):
        assert got["prompt_ids"] == texts[text], (f, text, got["prompt_ids"], texts[text])
        differ += text in want[f & 1] and texts[text] != want[f & 1][text]
assert n > 700 and differ >= 10, (n, differ)
PY
stop

# A daemon of protocol 1.
python3 - "$dir/old.sock" <<'PY' & old=$!
import socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
s.listen()
c = s.accept()[0]
c.recv(4096)
c.send(struct.pack("<IHHIi", 0x31444446, 1, 0, 192, -2) + bytes(176))
PY
until_true 5 test -S "$dir/old.sock"
expect 76 "$FDCTL" --socket "$dir/old.sock" ping
has "$out" 'protocol 1\.0.*fdctl 3\.0'
wait $old
