#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G5: refusals have the right status, param, code and retry time; keys are
# reread at SIGHUP; a daemon that is down gives 503, and works again without a
# restart of the gateway.
. "$(dirname "$0")/lib.sh"
sum() { printf %s "$1" | sha256sum | cut -c 1-64; }
start --set model.path="$DEMO"
echo "$(sum k-one) one priority" >"$dir/keys"
echo "$(sum k-two) two inflight=2" >>"$dir/keys"
gateway --set chat.template="$(chat_template)" --set keys.file="$dir/keys"
py "$gw/g5_status.py" || fail "see above"

code() { post /v1/completions '{"prompt":"a","max_tokens":1}' -o "$dir/body" -w '%{http_code}' -H "Authorization: Bearer $1"; }
# keys are reread: one removed, one added; a file with an error changes nothing
echo "$(sum k-three) three" >"$dir/keys"
kill -HUP "$http_pid"
until_true 5 test "$(code k-three)" = 200 || until_true 5 sh -c "[ \"\$(curl -s -o /dev/null -w '%{http_code}' $url/version -H 'Authorization: Bearer k-three')\" = 200 ]" ||
    fail "the new key is not taken"
[ "$(code k-one)" = 401 ] || fail "the old key is taken"
echo "nonsense" >>"$dir/keys"
kill -HUP "$http_pid"
until_true 5 grep -q "line 2 does not begin" "$dir/http.log" || fail "no word of the error"
[ "$(code k-three)" = 200 ] || fail "an error in the file took the keys away"

# a user for whom the gateway may not act is an error of the administrator; root, who runs
# this test, is trusted
if [ "$(id -u)" != 0 ]; then
    echo "$(sum k-user) user user=4711" >"$dir/keys"
    kill -HUP "$http_pid"
    until_true 5 sh -c "curl -s $url/version -H 'Authorization: Bearer k-user' | grep -q fdd-http"
    [ "$(code k-user)" = 500 ] && grep -q trusted_users "$dir/body" || fail "user: $(cat "$dir/body")"
fi

# parameters read only at the start are reported: otherwise an administrator who sets
# keys.file and reloads would believe that keys are required
gateway_stop
printf '[http]\nkeep_alive_s = 75\n' >"$dir/http.ini"
gateway -c "$dir/http.ini"
printf '[http]\nkeep_alive_s = 74\n[keys]\nfile = %s\n' "$dir/keys" >"$dir/http.ini"
kill -HUP "$http_pid"
until_true 5 grep -q "config: read again, 1 values changed, 1 wait for a restart, 0 keys" "$dir/http.log" ||
    fail "read again: $(cat "$dir/http.log")"
grep -q "config: keys.file: (nothing) -> $dir/keys waits for a restart" "$dir/http.log" || fail "$(cat "$dir/http.log")"
gateway_stop
echo "$(sum k-three) three" >"$dir/keys"
gateway --set chat.template="$(chat_template)" --set keys.file="$dir/keys"

# without a daemon
stop
until_true 5 sh -c "[ \"\$(curl -s -o /dev/null -w '%{http_code}' $url/health)\" = 503 ]" || fail "healthy without fdd"
start --set model.path="$DEMO"
until_true 20 curl -fsS "$url/health" || fail "not back: $(curl -sS "$url/health")"
until_true 5 sh -c "curl -s $url/v1/models -H 'Authorization: Bearer k-three' | grep -q demo" || fail "no model"
[ "$(code k-three)" = 200 ] || fail "no answer after fdd is back: $(cat "$dir/body")"
gateway_stop

# without keys: host names of other machines, and addresses other than this machine's
gateway
[ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Host: evil.example' "$url/version")" = 403 ] || fail "a foreign Host was served"
[ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Host: localhost' "$url/version")" = 200 ] || fail "localhost was refused"
gateway_stop
expect 78 "$HTTP" -c /dev/null --check-config --set http.host=0.0.0.0
has "$out" "keys.file names no keys"
expect 0 "$HTTP" -c /dev/null --check-config --set http.host=0.0.0.0 --set keys.file=/dev/null
expect 78 "$HTTP" -c /dev/null --check-config --set keys.file="$dir/keys2"
has "$out" "No such file"
expect 78 "$HTTP" -c /dev/null --check-config --set chat.parser=x --set http.root_path=a/
has "$out" "no such format"
has "$out" "root_path"
expect 78 "$HTTP" -c /dev/null --check-config --set http.prot=1
has "$out" "nearest is http.port"
expect 64 "$HTTP" --nonsense
stop
