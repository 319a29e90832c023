#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Logs: levels and topics at run time, JSON lines, the rate limit of a call site, the
# request log, slow requests, and that no line has contents of requests.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
marker=Zyzzyva
prompt="In the beginning $marker created the $marker heaven"

# Every line's topic is in the table, and every topic of the table in the help.
python3 - "$FDD_SRC" <<'PY' || fail "topics"
import glob, re, sys
known = re.findall(r'^LOG_TOPIC\((\w+)', open(sys.argv[1] + "/daemon/tbl/log_topics.h").read(), re.M)
params = open(sys.argv[1] + "/daemon/tbl/params.h").read()
row = params[params.index("PAR_STR(log, levels"):]
text = "".join(re.findall(r'"([^"]*)"', row[:row.index("\nPAR_")]))
assert "topics are " + " ".join(known) + "." in text, text
bad = 0
for f in glob.glob(sys.argv[1] + "/daemon/**/*.c", recursive=True):
    if "/common/log" in f:
        continue
    for m in re.finditer(r'\blog_(?:error|warn|info|debug|trace|line|fields)\(([^"]*)"([^"]*)"', open(f).read()):
        topic = m.group(2).split(":")[0]
        if topic not in known:
            print(f"{f}: unknown topic in {m.group(0)!r}"); bad = 1
sys.exit(bad)
PY

start --set model.path="$DEMO" --set log.rate=0 --set device.step_delay_us=3000
log() { cat "$dir/log"; }
# Levels by set and by debug; all of it is seen in config and by the worker.
expect 0 ctl debug
has "$out" '^level +info'
has "$out" 'relay +info'
has "$out" 'selfcheck +no'
expect 0 ctl set log.levels=relay=debug,worker=warn
expect 0 ctl debug --topic worker=default --topic session=trace
expect 0 ctl config log.levels
has "$out" 'session=trace,relay=debug'
expect 0 ctl debug --level warn +sched
has "$out" '^level +warn'
has "$out" 'session +trace'
has "$out" 'relay +debug'
has "$out" 'control +warn'
has "$out" 'sched +yes'
expect 0 ctl ping
until_true 10 grep -q ' D fdd: session: ' "$dir/log" || fail "no debug line of topic session"
expect 0 ctl generate -p "$prompt" --max-tokens 8 --temperature 0
until_true 10 grep -q ' T fdd-worker: sched: step' "$dir/log" || fail "debug bit sched shows nothing"
ctl debug --json | json '(d["level"], d["bits"], [t["level"] for t in d["topics"] if t["name"] == "session"])' |
    grep -qF "('warn', 'sched', ['trace'])" || fail "fdctl debug --json"

# Errors name the unknown value and the known ones.
expect 65 ctl set log.levels=rellay=debug
has "$out" 'unknown log topic "rellay"; the topics are config, gate, .*runner'
expect 65 ctl debug --topic gate=loud
has "$out" 'unknown level "loud" of log topic gate; the levels are error, warn, info, debug, trace'
expect 65 ctl debug --topic gate
has "$out" 'write gate=debug'
expect 65 ctl debug --level loud
has "$out" 'loud.*error.*trace'
expect 65 ctl debug +nope
has "$out" 'unknown debug bit "nope"; the bits are sched batch kv ring selfcheck'
expect 64 ctl debug --topic
expect 65 ctl set log.format=yaml
has "$out" 'yaml.*text.*json'
expect 0 ctl config log.levels
has "$out" 'session=trace,relay=debug'
ctl debug --level info --topic session=default --topic relay=default -sched >/dev/null || fail "back to info"
expect 0 ctl config log.levels
[ -z "$out" ] || fail "log.levels is not empty again: $out"
expect 78 "$FDD" --check-config --set log.levels=nosuch=info
has "$out" 'unknown log topic "nosuch"'

# The request log, one line for each end.
expect 0 ctl set log.requests=all
expect 0 ctl generate -p "$prompt" --max-tokens 8 --temperature 0 --ignore-eos
until_true 10 grep -q 'I fdd: request: done: id ' "$dir/log" || fail "no line of a request that is done"
grep -qE "request: done: id [0-9]+ user [^ ]+ client fdctl client_pid [0-9]+ op submit n 1 max_new 8 prompt_tokens [1-9][0-9]* cached_tokens [0-9]+ output_tokens 8 finish length queue_ms [0-9.]+ ttft_ms [0-9.]+ total_ms [0-9.]+ preempted 0\$" \
    "$dir/log" || fail "fields of a done request"
ctl generate -p "$prompt" --max-tokens 900 --ignore-eos >/dev/null 2>&1 &
gen=$!
until_true 20 sh -c "'$FDCTL' --runtime-dir '$run' requests --json | grep -q '\"state\": *\"running\"'" ||
    fail "the long request does not run"
id=$(ctl requests --json | json 'd["requests"][0]["id"]')
expect 0 ctl cancel "$id"
wait $gen
until_true 10 grep -q "I fdd: request: cancelled: id $id .* error E_CANCELLED code -31 " "$dir/log" ||
    fail "no line of the cancelled request"
ctl generate -p "$prompt" --max-tokens 900 --ignore-eos --timeout-ms 200 >/dev/null 2>&1
until_true 10 grep -q 'W fdd: request: failed: .* error E_DEADLINE code -30 ' "$dir/log" ||
    fail "no line of the request whose deadline passed"
ctl generate -p "$prompt" --max-tokens 99999999 >/dev/null 2>&1
until_true 10 grep -qE 'W fdd: request: rejected: user [^ ]+ client fdctl .* error E_TOO_LONG ' "$dir/log" ||
    fail "no line of the rejected request"
# errors alone
expect 0 ctl set log.requests=errors
before=$(grep -c 'request: done' "$dir/log")
expect 0 ctl generate -p "$prompt" --max-tokens 2
sleep 0.2
[ "$(grep -c 'request: done' "$dir/log")" = "$before" ] || fail "log.requests=errors shows what is done"

# Slow requests.
expect 0 ctl set log.slow_request_ms=1
expect 0 ctl generate -p "$prompt" --max-tokens 8 --ignore-eos
until_true 10 grep -qE 'W fdd: request: slow request: id .* queue_ms .* prefill_ms .* decode_ms .* tpot_ms .* ttft_ms .* total_ms .* concurrent_at_start 0 concurrent_at_end 0' \
    "$dir/log" || fail "no line of the slow request"
expect 0 ctl set log.slow_request_ms=0
n=$(grep -c 'slow request' "$dir/log")
expect 0 ctl set log.slow_first_token_ms=1
expect 0 ctl generate -p "$prompt" --max-tokens 2
more() { [ "$(grep -c 'slow request' "$dir/log")" -gt "$n" ]; }
until_true 10 more || fail "no line of the slow first token"
expect 0 ctl set log.slow_first_token_ms=0
[ "$(ctl stat -1 --json | grep -oE '"requests_slow": *[0-9]+' | grep -oE '[0-9]+$' | head -n 1)" -ge 2 ] ||
    fail "requests_slow is not counted"

# The rate limit of a call site: many refusals at once, then the summary.
expect 0 ctl set log.rate=5
for _ in $(seq 300); do echo '{"prompt": "x", "max_tokens": 99999999}'; done >"$dir/batch"
ctl generate --batch "$dir/batch" >/dev/null 2>&1
until_true 10 grep -qE 'W fdd: request: [0-9]+ lines like this were not shown: rejected' "$dir/log" ||
    fail "no summary of what was not shown"
[ "$(ctl debug --json | json 'd["dropped"]')" -gt 0 ] || fail "dropped lines are not counted"
# The worker's lines too: those shown and those told of are all its steps, though
# it has nothing more to say.
steps() { ctl stat -1 | awk '$2 == "steps" { print $3; exit }'; }
expect 0 ctl debug +sched
before=$(steps)
from=$(($(wc -l <"$dir/log") + 1))
expect 0 ctl generate -p "$prompt" --max-tokens 200 --ignore-eos
told() {
    [ "$(tail -n +"$from" "$dir/log" | awk '/fdd-worker: sched: step / { n++ }
        /fdd-worker: sched: [0-9]+ lines like this/ { n += $6 } END { print n }')" = \
        $(($(steps) - before)) ]
}
until_true 10 told || fail "dropped lines of steps that no line counts: $(tail -n +"$from" "$dir/log")"
expect 0 ctl debug -sched

# JSON: every line from here on is an object, the worker's too, whatever is
# asked to be shown; nothing of the contents is in it.
expect 0 ctl set log.rate=0
expect 0 ctl set log.requests=all
expect 0 ctl set log.slow_request_ms=1
expect 0 ctl set log.format=json
sleep 0.3
from=$(($(wc -l <"$dir/log") + 1))
expect 0 ctl debug --level trace sched,batch,kv,ring,selfcheck
# regression: of two changes in one command only one was made
for two in "kill-worker --level debug" "panic kill-worker" "selfcheck +kv" "--topic gate=debug selfcheck"; do
    # shellcheck disable=SC2086
    expect 64 ctl debug $two
    has "$out" 'can only be combined with --group'
done
expect 0 ctl debug --group 0 selfcheck --json
ids=$(ctl tokenize -p "$prompt" --json | json '" ".join(map(str, d["ids"]))') || fail "tokenize"
answer=$(ctl generate -p "$prompt" --max-tokens 12 --temperature 0 --json --stop "$marker$marker") || fail "generate"
echo "$answer" | json '" ".join(map(str, d["ids"]))' >"$dir/out.ids"
echo "$answer" | json 'd["text"]' >"$dir/out.text"
echo "[${ids// /,}]" >"$dir/ids"
expect 0 ctl generate --ids-file "$dir/ids" --max-tokens 4
ctl generate -p "$marker" --max-tokens 99999999 >/dev/null 2>&1
kill -HUP "$fdd_pid"
reloaded() { [ "$(ctl config log.format --json | json 'd["config"][0]["value"]')" = text ]; }
until_true 10 reloaded || fail "SIGHUP did not take the runtime values back"
expect 0 ctl set log.format=json
expect 0 ctl debug --level trace
expect 0 ctl generate -p "$prompt" --max-tokens 2
stop
tail -n +"$from" "$dir/log" >"$dir/json"
python3 - "$dir/json" <<'PY' || fail "JSON lines"
import datetime, json, sys
progs, topics, done = set(), set(), 0
text = 0
for line in open(sys.argv[1], encoding="utf-8"):
    # after SIGHUP the file's and the command line's values are in force
    if not line.startswith("{"):
        text += 1
        continue
    o = json.loads(line)
    t = datetime.datetime.fromisoformat(o["time"])
    assert t.tzinfo is not None and len(o["time"]) == 29, o
    assert o["level"] in ("error", "warn", "info", "debug", "trace") and o["pid"] > 0, o
    assert o["topic"] and o["msg"], o
    progs.add(o["prog"]); topics.add(o["topic"])
    if o["topic"] == "request" and o["msg"] == "done" and o["op"] == "submit":
        done += 1
        assert o["client"] == "fdctl" and o["output_tokens"] > 0 and o["total_ms"] > 0, o
        assert o["finish"] in ("stop", "length"), o
assert progs == {"fdd", "fdd-worker"}, progs
assert {"request", "session", "sched", "gate"} <= topics, topics
assert done >= 2, done
PY
! grep -qF "$marker" "$dir/log" || fail "the prompt is in the log: $(grep -F "$marker" "$dir/log" | head -n 2)"
for list in "$ids" "$(cat "$dir/out.ids")"; do
    set -- $list
    pat=$(printf '%s[^0-9]+%s[^0-9]+%s' "$1" "$2" "$3")
    ! grep -qE "\b$pat\b" "$dir/log" || fail "token ids are in the log: $(grep -E "\b$pat\b" "$dir/log" | head -n 2)"
done
text=$(head -c 24 "$dir/out.text" | head -n 1)
[ -z "$text" ] || ! grep -qF -- "$text" "$dir/log" || fail "the answer is in the log"

# From the first line on, with the format on the command line; log_dropped and
# the levels of the file.
: >"$dir/log"
printf '[log]\nlevel = info\nlevels = gate=debug, control=warn\nformat = json\n' >"$dir/x.ini"
start -c "$dir/x.ini" --set model.path=null --set device.backend=null
expect 0 ctl set log.rate=50
stop
while IFS= read -r line; do
    printf '%s' "$line" | python3 -m json.tool >/dev/null || fail "no JSON: $line"
done <"$dir/log"
grep -q '"prog":"fdd-worker"' "$dir/log" || fail "the worker's lines are not JSON"
! grep -q '"topic":"control"' "$dir/log" || fail "topic control is above its level"
