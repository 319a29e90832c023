#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of fdd-http, which are named after the acceptance criteria that
# they check. In addition to tests/sys/lib.sh it has:
#   gateway [fdd-http arguments]   start fdd-http on a port of its own and wait until it
#                                  answers; sets $port, $url, $http_pid
#   post PATH JSON [curl arguments]
#   py SCRIPT [ARGS]               a Python program with tests/gateway in its path; it
#                                  finds the gateway in $FDD_HTTP_PORT
#   says FORMAT [arguments]        fdd-http for a daemon whose model says what it is told
#                                  (says.c, wire.say()), with answers in this format
. "$(dirname "${BASH_SOURCE[0]}")/../sys/lib.sh"
HTTP=${FDD_BIN:-$FDD_BUILD}/fdd-http
gw=$FDD_SRC/tests/gateway
http_pid= port= url=
command -v curl >/dev/null || skip "no curl"
command -v python3 >/dev/null || skip "no python3"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
gateway_end() {
    local rc=$?
    if [ -n "$http_pid" ] && kill -0 "$http_pid" 2>/dev/null; then
        kill -KILL "$http_pid" 2>/dev/null
        wait "$http_pid" 2>/dev/null
    fi
    [ $rc = 0 ] || [ $rc = 77 ] || { echo "--- gateway log"; tail -n 40 "$dir/http.log" 2>/dev/null; }
    (exit $rc); cleanup
}
trap gateway_end EXIT
gateway_launch() {
    : >"$dir/http.log"
    "$HTTP" -c /dev/null --set http.port=0 --set daemon.socket="$run/fdd.sock" "$@" 2>>"$dir/http.log" &
    http_pid=$!
    until_true 10 grep -q "listening on http" "$dir/http.log" || fail "fdd-http: $(cat "$dir/http.log")"
    port=$(sed -nE 's/.*listening on http:\/\/[^ ]*:([0-9]+)$/\1/p' "$dir/http.log" | tail -n 1)
    url=http://127.0.0.1:$port
    export FDD_HTTP_PORT=$port FDD_HTTP_PID=$http_pid
}
gateway() {
    gateway_launch "$@"
    until_true 20 curl -fsS "$url/health" || fail "not healthy: $(curl -sS "$url/health")"
}
gateway_stop() {
    kill -TERM "$http_pid"
    wait "$http_pid"
    local rc=$?
    http_pid=
    [ $rc = 0 ] || fail "fdd-http exited $rc on SIGTERM: $(cat "$dir/http.log")"
}
says() {
    local format=$1; shift
    if [ ! -e "$dir/says.in" ]; then
        mkfifo "$dir/says.in"
        "$FDD_BUILD/tests/gateway/says" <"$dir/says.in" >"$dir/says.out" 2>>"$dir/says.log" &
        exec 9>"$dir/says.in"
        until_true 5 test -s "$dir/says.out" || fail "says: $(cat "$dir/says.log")"
    fi
    # the text that the model is told to output, else all variables of the template
    cat >"$dir/says.jinja" <<'T'
{% if text is defined %}
{{- how | default('say') }} {{ each | default(1) }} {{ most | default(0) }} {{ bytes }}
{{ text }}{{ tail | default('') }}
{%- else %}
{%- set seen = {'messages': messages, 'tools': tools | default(none), 'thinks': enable_thinking | default(none),
    'effort': reasoning_effort | default(none)} | tojson %}
{{- 'say' }} 50 0 {{ seen | length }}
{{ seen }}
{%- endif %}
T
    gateway --set daemon.socket="$(cat "$dir/says.out")" --set chat.template="$dir/says.jinja" \
        --set chat.parser="$format" "$@"
}
post() {
    local path=$1 body=$2; shift 2
    curl -sS --max-time $((60 * slow)) "$url$path" -H 'Content-Type: application/json' -d "$body" "$@"
}
py() {
    PYTHONPATH=$gw PYTHONDONTWRITEBYTECODE=1 FDD_SLOW_FACTOR=$slow \
        timeout -k 5 $((300 * slow)) python3 "$@"
}
chat_template() { # a template for the demo model, which has none; prints its path
    cat >"$dir/chat.jinja" <<'T'
{% for m in messages %}<|endoftext|>{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}
T
    echo "$dir/chat.jinja"
}
