#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The Python module and the demo model: README's example, requests and their parameters,
# errors, 10,000 requests; with a slow model every way to end a request early, threads,
# fork, Ctrl-C, and asyncio with 64 streams at a time.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/python/lib.sh"
have_python
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"

start --set model.path="$DEMO"
sed -n '/^## A program$/,/^## [^A]/p' "$FDD_SRC/README.md" | sed -n '/^```python$/,/^```$/p' | sed '/^```/d' >"$dir/hello.py"
[ "$(wc -l <"$dir/hello.py")" -ge 6 ] || fail "no Python program in README.md"
[ "$(wc -l <"$dir/hello.py")" -le 15 ] || fail "README.md's Python program is longer than 15 lines"
FDD_SOCKET=$run/fdd.sock timeout $((60 * slow)) python3 -X dev -W error "$dir/hello.py" >"$dir/out" 2>&1 ||
    fail "README's program: exit $?: $(cat "$dir/out")"
[ "$(wc -c <"$dir/out")" -gt 100 ] || fail "README's program printed: $(cat "$dir/out")"
# without a daemon the error names the socket
expect 1 env FDD_SOCKET="$dir/none.sock" python3 "$dir/hello.py"
has "$out" "$dir/none.sock: No such file or directory"
py api
stop
start --set model.path="$DEMO" --set device.step_delay_us=20000
py cancel
stop
start --set model.path="$DEMO" --set device.step_delay_us=2000
py loop
stop
