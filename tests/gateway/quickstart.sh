#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# tools/quickstart --serve on a machine without curl: it prints the gateway's address at
# once, its curl line gives text, a request without the key is refused, and SIGTERM leaves
# no process. It uses the programs of this build.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO-chat/model.safetensors" ] || skip "no demo-chat model"
tree=$dir/clone bin=$dir/bin
mkdir -p "$tree/tools/dev" "$bin"
cp "$FDD_SRC/tools/quickstart" "$tree/tools/"
cp "$FDD_SRC"/tools/dev/*.sh "$tree/tools/dev/"
printf '#!/bin/sh\n' >"$tree/tools/setup" # everything is built already
chmod +x "$tree/tools/setup"
ln -s "$FDD_SRC/conf" "$tree/conf"
for p in bash base64 basename cat cut dirname env head mktemp rm sed sha256sum sleep tr seq; do
    ln -s "$(command -v $p)" "$bin/" || fail "this machine has no $p"
done
printf '#!/bin/sh\necho >>"%s"\nexit 127\n' "$dir/curl-used" >"$bin/curl"
chmod +x "$bin/curl"
quickstart() { timeout 60 bash "$tree/tools/quickstart" "$@"; }
expect 64 quickstart --serve --port
has "$out" 'port: needs a number'
expect 64 quickstart --port x
has "$out" 'port x: not a number'
expect 64 quickstart In the beginning
has "$out" "unexpected 'the'.*quotes"
serve=$(free_port)
PATH=$bin FDD_BUILD_DIR=$FDD_BUILD TMPDIR=$dir bash "$tree/tools/quickstart" --serve --port "$serve" >"$dir/said" 2>&1 &
quick=$!
quick_end() { kill -TERM $quick 2>/dev/null; wait $quick 2>/dev/null; }
trap 'rc=$?; quick_end; (exit $rc); gateway_end' EXIT
ready() { grep -q '^Other programs:' "$dir/said" || ! kill -0 $quick 2>/dev/null; }
until_true 60 ready && kill -0 $quick 2>/dev/null || fail "quickstart: $(cat "$dir/said")"
for pid in $(cat /proc/$quick/task/*/children); do
    [ "$(cat "/proc/$pid/comm")" != fdd-http ] || break
done
[ "$(cat "/proc/$pid/comm")" = fdd-http ] || fail "no fdd-http below quickstart: $(cat "$dir/said")"
[ ! -e "$dir/curl-used" ] || fail "quickstart needs curl to see that fdd-http answers"
line=$(sed -nE '/^ +curl -N /,/^ +-d /p' "$dir/said")
bash -c "$line" >"$dir/text" 2>"$dir/curl" || fail "$line: $(cat "$dir/curl")"
grep -q '"content":"[^"]' "$dir/text" && grep -q '^data: \[DONE\]' "$dir/text" || fail "$line: $(cat "$dir/text")"
code=$(curl -sS -o /dev/null -w '%{http_code}' "http://127.0.0.1:$serve/v1/models")
[ "$code" = 401 ] || fail "without the key: $code"
kill -TERM $quick
wait $quick
! kill -0 "$pid" 2>/dev/null || fail "fdd-http runs on"
! compgen -G "$dir/fdd-quickstart.*" >/dev/null || fail "its folder is left: $(ls "$dir")"
