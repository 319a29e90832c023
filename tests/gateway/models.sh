#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Several daemons behind one gateway: the request's model selects the daemon, a daemon
# that is down gives 503 only for its own requests, and reloading the configuration
# adds and removes models without an effect on running streams. Errors found by a
# reload are logged.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_TEST_LOOPS:-}" ] || set -- --set http.loops="$FDD_TEST_LOOPS"
second=
both_end() { [ -z "$second" ] || kill -KILL "$second" 2>/dev/null; }
trap 'rc=$?; both_end; (exit $rc); gateway_end' EXIT
start --set model.path="$DEMO" --set model.name=one
launch_second() {
    "$FDD" --set daemon.runtime_dir="$dir/run2" --set daemon.worker="$WORKER" --set daemon.cache_dir="$dir/cache" \
        --set model.path=null --set model.name=echo 2>>"$dir/log2" &
    second=$!
}
launch_second
"$FDCTL" --runtime-dir "$dir/run2" --wait $((20 * slow)) ping >/dev/null || fail "the second daemon: $(cat "$dir/log2")"
section() { printf '[model %s]\nsocket = %s\n' "$1" "$2"; }
{ section one "$run/fdd.sock"; section two "$dir/run2/fdd.sock"; echo "name = two, deux"; } >"$dir/http.ini"
gateway -c "$dir/http.ini" --set daemon.socket= "$@"
code() { post /v1/completions "{\"model\":\"$1\",\"prompt\":\"ab\",\"max_tokens\":2}" -o "$dir/body" -w '%{http_code}'; }
code_is() { [ "$(code "$1")" = "$2" ]; }
# each of several loops rereads the file at its own time
ids_are() { [ "$(ids)" = "$1" ]; }
ids() { curl -sS "$url/v1/models" | json '" ".join(m["id"] for m in d["data"])'; }
for m in one two deux; do
    until_true 20 code_is $m 200 || fail "$m: $(cat "$dir/body")"
    grep -q "\"model\":\"${m/deux/two}\"" "$dir/body" || fail "$m was answered by another: $(cat "$dir/body")"
done
[ "$(ids)" = "one two deux" ] || fail "models: $(ids)"
curl -sS "$url/v1/models/deux" | grep -q '"root":"echo"' || fail "root of deux: $(curl -sS "$url/v1/models/deux")"
code_is three 404 && grep -q "there are one, two" "$dir/body" || fail "three: $(cat "$dir/body")"
out=$(post /v1/completions '{"prompt":"a","max_tokens":1}')
has "$out" '"param":"model"'
has "$(post /tokenize '{"model":"two","prompt":"ab"}')" '"count":2'
has "$(post /tokenize '{"model":"one","prompt":"ab"}')" '"tokens":\['

# the counters of both daemons, each metric once
both_show() {
    curl -fsS "$url/metrics" >"$dir/metrics" && grep -q '^fdd_up{daemon="one"} 1' "$dir/metrics" &&
        grep -q '^fdd_up{daemon="two"} 1' "$dir/metrics"
}
until_true 10 both_show || fail "counters of both: $(grep -E '^fdd_(up|http_daemon)' "$dir/metrics")"
for m in "one\",.*model_name=\"one" "two\",.*model_name=\"echo"; do
    grep -qE "^vllm:generation_tokens_total\{daemon=\"$m\"\} [1-9]" "$dir/metrics" ||
        fail "tokens of $m: $(grep vllm:generation_tokens "$dir/metrics")"
done
grep '^# HELP' "$dir/metrics" | cut -d ' ' -f 3 | sort | uniq -d >"$dir/twice"
[ ! -s "$dir/twice" ] || fail "metrics in two places: $(cat "$dir/twice")"
! grep -E '^(fdd_[^h]|vllm:)' "$dir/metrics" | grep -qv 'daemon="' || fail "a sample of no daemon"
curl -fsS "$url/fdd/live" | grep -q '"model":"one"' || fail "plots: $(curl -sS "$url/fdd/live")"

# one of them dies: only its own requests fail
kill -KILL "$second"; wait "$second" 2>/dev/null; second=
until_true 40 code_is two 503 || fail "two without its daemon: $(cat "$dir/body")"
grep -q '"code":"daemon_lost"\|"code":"model_loading"' "$dir/body" || fail "$(cat "$dir/body")"
code_is one 200 || fail "one, while two is away: $(cat "$dir/body")"
one_shows() {
    curl -fsS "$url/metrics" >"$dir/metrics" && grep -q '^fdd_http_daemon_metrics{daemon="two"} 0' "$dir/metrics"
}
until_true 10 one_shows || fail "counters of a daemon that is away"
grep -q '^fdd_http_daemon_metrics{daemon="one"} 1' "$dir/metrics" || fail "counters of the one that is there"
curl -fsS "$url/health" >/dev/null || fail "unhealthy although one answers"
launch_second
until_true 30 code_is two 200 || fail "two is not back: $(cat "$dir/body")"

# a model is removed while it writes, another is added
curl -sSN --max-time $((60 * slow)) "$url/v1/completions" -H 'Content-Type: application/json' \
    -d '{"model":"one","prompt":"In the","max_tokens":600,"ignore_eos":true,"stream":true}' >"$dir/stream" &
streaming=$!
until_true 20 grep -q '"text"' "$dir/stream" || fail "no stream"
{ section two "$dir/run2/fdd.sock"; section three "$run/fdd.sock"; } >"$dir/http.ini"
kill -HUP "$http_pid"
until_true 20 code_is three 200 || fail "three was not added: $(cat "$dir/body")"
until_true 10 code_is one 404 || fail "one is still there: $(cat "$dir/body")"
until_true 10 ids_are "two three" || fail "models: $(ids)"
wait $streaming || fail "the stream of a model that was removed: curl $?"
grep -q '"finish_reason":"length"' "$dir/stream" && tail -n 2 "$dir/stream" | grep -q DONE ||
    fail "the stream of a model that was removed was cut: $(tail -n 3 "$dir/stream")"

# an error in the file is reported, and nothing changes
section two "$dir/run2/fdd.sock" >"$dir/http.ini"
printf '[http]\nprot = 1\n' >>"$dir/http.ini"
kill -HUP "$http_pid"
until_true 10 grep -q 'nothing has changed' "$dir/http.log" || fail "no word of the error"
grep -qE '^[^ ]+ [^ ]+ E fdd-http: config: .*http\.ini:4: unknown parameter .http\.prot' "$dir/http.log" ||
    fail "an error is not logged as one: $(grep config: "$dir/http.log")"
[ "$(ids)" = "two three" ] || fail "an error in the file changed the models: $(ids)"
printf '[http]\nsockets = 1\n' >"$dir/http.ini"
expect 78 "$HTTP" -c "$dir/http.ini" --check-config
has "$out" " E fdd-http: config: .*unknown parameter"
section two "" >"$dir/http.ini"
expect 78 "$HTTP" -c "$dir/http.ini" --check-config
has "$out" "names no socket"
gateway_stop
kill -TERM "$second"; wait "$second"; second=
stop
