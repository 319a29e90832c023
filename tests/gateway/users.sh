#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The user under which a request counts. Without keys: for TCP the client's address, whose
# connections are limited too; for the UNIX socket the peer's uid. With keys: the key's
# user, or a user for each key, and with delegate the request's field user. A daemon that
# does not trust the gateway counts all requests under the gateway.
. "$(dirname "$0")/lib.sh"
sum() { printf %s "$1" | sha256sum | cut -c 1-64; }
me=$(id -un)
start --set model.path="$DEMO" --set log.requests=all --set ipc.trusted_users="$me"
gateway --set http.socket="$dir/http.sock" --set http.max_per_address=20
chmod 666 "$dir/http.sock"
ask='{"prompt":"a","max_tokens":1}'
last_user() { sed -nE "s/.* request: done: .* user ([^ ]+) client fdd-http .*/user=\\1/p" "$dir/log" | tail -n 1; }
lines() { grep -cE "request: done: .* client fdd-http " "$dir/log"; }
more_than() { [ "$(lines)" -gt "$1" ]; }
logged_user() { # CURL ARGUMENTS: the user that the daemon logs for the request
    local n
    n=$(lines)
    curl -sS --max-time 30 -H 'Content-Type: application/json' -d "$ask" "$@" -o "$dir/body" || fail "curl $*"
    grep -q '"usage"' "$dir/body" || fail "$*: $(cat "$dir/body")"
    until_true 5 more_than "$n" || fail "no line of the request: $(tail -n 3 "$dir/log")"
    last_user
}
a=$(logged_user "http://127.0.0.1:$port/v1/completions")
b=$(logged_user --interface 127.0.0.2 "http://127.0.0.1:$port/v1/completions")
c=$(logged_user --interface 127.0.0.2 "http://127.0.0.1:$port/v1/completions")
[ "$a" != "$b" ] && [ "$b" = "$c" ] || fail "addresses: $a $b $c"
echo "addresses are users: $a, $b"
u=$(logged_user --unix-socket "$dir/http.sock" "http://localhost/v1/completions")
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    v=$(setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null && {
        n=$(lines)
        chmod 755 "$dir"
        setpriv --reuid 65534 --regid 65534 --clear-groups curl -sS --max-time 30 --unix-socket "$dir/http.sock" \
            -H 'Content-Type: application/json' -d "$ask" http://localhost/v1/completions >/dev/null
        until_true 5 more_than "$n"
        last_user
    })
    [ "$v" = user=65534 ] || [ "$v" = "user=$(id -nu 65534)" ] || fail "the uid of the UNIX socket: $v"
    echo "uids of the UNIX socket are users: $u, $v"
fi
py "$gw/users.py" 20 || fail "see above"
gateway_stop

{ echo "$(sum k-own) own"; echo "$(sum k-named) named user=4711"; echo "$(sum k-all) all user=4712 delegate"; } >"$dir/keys"
gateway --set keys.file="$dir/keys"
key() { logged_user -H "Authorization: Bearer $1" "$url/v1/completions"; }
own=$(key k-own)
[ "$(key k-named)" = user=4711 ] || fail "user=4711: $(last_user)"
[ "$(key k-all)" = user=4712 ] || fail "delegate without the field: $(last_user)"
ask='{"prompt":"a","max_tokens":1,"user":"ann"}'
ann=$(key k-all)
[ "$(key k-all)" = "$ann" ] || fail "ann is another user the second time"
[ "$(key k-own)" = "$own" ] || fail "a key without delegate lets the field user count"
ask='{"prompt":"a","max_tokens":1,"user":"bob"}'
bob=$(key k-all)
[ "$ann" != "$bob" ] && [ "$ann" != user=4712 ] && [ "$own" != "$ann" ] || fail "delegated users: $ann $bob $own"
echo "users of keys: $own, user=4711, user=4712; delegated: $ann, $bob"
gateway_stop
stop

# a daemon that does not let the gateway name users
: >"$dir/log"
start --set model.path="$DEMO" --set log.requests=all
ask='{"prompt":"a","max_tokens":1}'
gateway
u=$(logged_user --interface 127.0.0.2 "$url/v1/completions")
[ "$u" = "user=$me" ] || fail "without trust: $u"
gateway_stop
gateway --set keys.file="$dir/keys"
u=$(key k-own)
[ "$u" = "user=$me" ] || fail "a key without a user, without trust: $u"
for k in k-named k-all; do
    curl -sS "$url/v1/completions" -H 'Content-Type: application/json' -H "Authorization: Bearer $k" -d "$ask" >"$dir/body"
    grep -q trusted_users "$dir/body" || fail "$k: a user that the key names, without trust: $(cat "$dir/body")"
done
echo "without trust all counts under the gateway, and a user that a key names is refused"
gateway_stop
stop
