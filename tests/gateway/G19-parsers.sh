#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G19: answers of each format give the same result over HTTP however the model's text
# arrives: at once, in characters, in random pieces, and (one answer of each format) split
# in two at every place.
. "$(dirname "$0")/lib.sh"
formats=$(python3 -c 'import json,sys
print(" ".join(dict.fromkeys(json.loads(l)[0] for l in list(open(sys.argv[1]))[1:])))' "$FDD_SRC/tests/chat/answers.jsonl")
for f in $formats; do
    says "$f"
    FDD_SRC=$FDD_SRC py "$gw/g19_parsers.py" "$f" || fail "$f: see above"
    gateway_stop
done
