#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl trace: table, events, filters, JSON and the viewer's file of a daemon
# under load; preempted requests; a worker and a daemon that were killed.
. "$(dirname "$0")/lib.sh"
check=$FDD_SRC/tests/sys/perfetto_check.py
json_all() { # an expression over d, the object in $dir/t.json
    python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print('"$1"')' "$dir/t.json"
}
true_of() { # EXPRESSION: must hold
    [ "$(json_all "$1")" = True ] || fail "not so: $1"
}
start --set model.path="$DEMO" --set device.backend=cpu --set kv.num_blocks=20 \
    --set kv.static_decode_blocks=0 --set device.step_delay_us=1000

# ---- nothing yet
expect 0 ctl trace
has "$out" 'nothing chosen; the trace has no steps yet'
expect 65 ctl trace --request 1
has "$out" 'request 1 is not in the trace, which has no requests yet'
expect 65 ctl trace --step 1
has "$out" 'step 1 is not in the trace, which has no steps yet'
expect 0 ctl trace --perfetto "$dir/p.json"
expect 0 "$check" "$dir/p.json"

# ---- more than the KV pool holds
python3 - >"$dir/batch" <<'PY'
import json
for i in range(6):
    print(json.dumps({"prompt": "In the beginning " * (1 + i), "max_tokens": 250 + i,
                      "ignore_eos": True, "n": 1 + i % 2, "seed": i}))
PY
# --foreground: one signal, only to the program; two interfered with the
# leak check at its end
timeout --foreground -s INT $((300 * slow)) "$FDCTL" --runtime-dir "$run" trace -f -n 4000 >"$dir/follow" 2>&1 &
f_steps=$!
timeout --foreground -s INT $((300 * slow)) "$FDCTL" --runtime-dir "$run" trace -f -n 4000 --events --json \
    >"$dir/follow.json" 2>&1 &
f_events=$!
ctl generate --batch "$dir/batch" --json >"$dir/json" 2>"$dir/err" &
g=$!
running() { # reading while the ring is written
    ctl trace --json >"$dir/t.json" && [ "$(json_all 'len(d["steps"])')" -gt 20 ]
}
until_true 20 running || fail "no steps while requests run"
ctl trace --perfetto >"$dir/p.json" 2>"$dir/perr"
expect 0 "$check" "$dir/p.json"
wait $g || fail "requests failed: $(cat "$dir/err")"

expect 0 ctl trace
has "$out" '^time +step +rows +tokens .* launch +ahead +device '
has "$out" '; picked ahead p50 [0-9.]+ us, p99 [0-9.]+ us, most [0-9.]+ us; graphs'
[ "$(printf '%s\n' "$out" | grep -cE '^[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6} ')" = 32 ] ||
    fail "not 32 steps: $out"
has "$out" '^32 steps in .* tokens/s, .*device busy [0-9.]+ %; device mean .* p99 .*graphs [0-9.]+ %$'
expect 0 ctl trace -n 3
[ "$(printf '%s\n' "$out" | wc -l)" = 5 ] || fail "not 3 steps: $out"
last=$(printf '%s\n' "$out" | sed -n 4p | awk '{print $2}')
[ "$(printf '%s\n' "$out" | sed -n 2p | awk '{print $2}')" = $((last - 2)) ] || fail "numbers: $out"
steps=$(ctl stat -1 | awk '$2 == "steps" { print $3; exit }')
[ "$last" = "$steps" ] || fail "the last step is $last, the counter says $steps"

# ---- JSON: checks of every step
ctl trace --json >"$dir/t.json" || fail "--json"
true_of 'd["daemon"] == "running" and d["steps_overwritten"] == 0'
true_of '[s["step"] for s in d["steps"]] == list(range(1, '"$last"' + 1))'
true_of 'all(s["state"] == "done" and s["rows"] == s["prefill"] + s["decode"] + s["verify"]
    and s["tokens"] <= s["padded_tokens"] and s["device_us"] > 0 for s in d["steps"])'
true_of 'all(s["t_pick_ns"] <= s["t_launch_ns"] <= s["t_queued_ns"] <= s["t_done_ns"] and
    s["t_begin_ns"] < s["t_end_ns"] <= s["t_collect_ns"] <= s["t_done_ns"] for s in d["steps"])'
true_of 'all(b["t_begin_ns"] >= a["t_end_ns"] for a, b in zip(d["steps"], d["steps"][1:]))'
# microseconds of nanoseconds, printed with nine digits: 10 ns are missing beyond a second
us='float("%.9g" % (max(0, b - a) / 1e3))'
true_of 'all(b["gap_us"] == (lambda a, b: '"$us"')(a["t_end_ns"], b["t_begin_ns"]) if b["follows"]
    else b["gap_us"] is None for a, b in zip(d["steps"], d["steps"][1:]))'
true_of 'all(s["ahead_us"] == (lambda a, b: '"$us"')(s["t_pick_ns"], s["t_begin_ns"])
    for s in d["steps"]) and d["summary"]["ahead_max_us"] == max(s["ahead_us"] for s in d["steps"])'
true_of 'sum(s["outputs"] for s in d["steps"]) >= sum((250 + i) * (1 + i % 2) for i in range(6))'
true_of 'd["summary"]["steps"] == len(d["steps"]) and d["summary"]["tokens"] ==
    sum(s["tokens"] for s in d["steps"])'
# 9 sequences of up to 5 blocks do not fit into 20
true_of 'sum(s["preempted"] for s in d["steps"]) == sum(e["event"] == "preempt"
    for e in d["events"]) > 0'
true_of 'sum(e["event"] == "submit" for e in d["events"]) == 6 ==
    sum(e["event"] == "end" and e["result"] == "ok" for e in d["events"])'
true_of 'sum(e["event"] == "first token" for e in d["events"]) == 9'
preempted=$(json_all '[e["request"] for e in d["events"] if e["event"] == "preempt"][0]')
times=$(json_all 'sum(e["event"] == "preempt" and e["request"] == '"$preempted"' for e in d["events"])')

# ---- requests
expect 0 ctl trace --events -n 5
has "$out" '^5 events$'
expect 0 ctl trace --events --all
has "$out" " preempt +[0-9]+  had [0-9]+ tokens"
has "$out" " end +[0-9]+  ok, 25[0-9] output tokens"
expect 0 ctl trace --request "$preempted"
has "$out" "^request $preempted: queued [0-9.]+ ms, prefill [0-9.]+ ms, decode [0-9.]+ ms, preempted $times times? for [0-9.]+ ms, [0-9]+ output tokens, ok\$"
ctl trace --request "$preempted" --json >"$dir/t.json" || fail "--request --json"
true_of '{e["request"] for e in d["events"]} == {'"$preempted"'} and
    d["request"]["state"] == "ended" and d["request"]["preempted"] == '"$times"
true_of 'd["steps"][0]["prefill"] > 0 and [e["step"] for e in d["events"] if e["event"] ==
    "end"][0] == d["steps"][-1]["step"]'

# ---- filters
expect 0 ctl trace --step 10:15
[ "$(printf '%s\n' "$out" | wc -l)" = 8 ] || fail "--step 10:15: $out"
expect 0 ctl trace --step 10:100 -n 4
has "$out" '^4 steps'
expect 0 ctl trace --step 10: --since 10m --until 0ms --json
printf '%s\n' "$out" >"$dir/t.json"
true_of 'd["steps"][0]["step"] == 10 and len(d["steps"]) == '$((last - 9))
at=$(json_all 'd["steps"][50]["unix_ns"]')
day=$(TZ=UTC0 date -d "@$((at / 1000000000))" +%H:%M:%S).$(printf %09d $((at % 1000000000)))
# to the nanosecond, except that two clocks are read one after the other
TZ=UTC0 ctl trace --since "$day" --json >"$dir/t.json" || fail "--since $day"
true_of '40 <= d["steps"][0]["step"] <= 80'
slow_us=$(json_all 'sorted(s["device_us"] for s in d["steps"])[-5]')
ctl trace --slow "$slow_us" --json >"$dir/t.json" || fail "--slow"
true_of 'len(d["steps"]) >= 4 and all(max(s["device_us"], s["gap_us"] or 0) > '"$slow_us"'
    for s in d["steps"])'
expect 0 ctl trace --slow 1e11
has "$out" "nothing chosen; the trace has the steps 1 to $last, of [0-9:.]+ to [0-9:.]+"
expect 0 ctl trace --until 30m
has "$out" 'nothing chosen; the trace has the steps'

# ---- wrong words name what is there
expect 65 ctl trace --request 999999
has "$out" 'request 999999 is not in the trace, which has the requests 1 to 6 in its last'
expect 65 ctl trace --step 999999
has "$out" "step 999999 is not in the trace, which has the steps 1 to $last"
bad() { # TEXT ARGS...
    local want=$1; shift
    expect 64 ctl trace "$@"
    has "$out" "$want"
}
bad "unexpected 'kind=prefill'; filters are --request ID" kind=prefill
bad 'unknown option --steps; did you mean --step\?' --steps 3
bad '--step 5:3: ends before it begins' --step 5:3
bad '--step 0: give a step' --step 0
bad '--step 1:x: give a step' --step 1:x
bad '--request x: not a whole number' --request x
bad '--request 0: requests count from 1' --request 0
bad '--since yesterday: not a time; give how long ago, such as 5s' --since yesterday
bad '--until 25:00:00: not a time' --until 25:00:00
bad '--since 1s is after --until 5s' --since 1s --until 5s
bad '--slow -1: must be 0 or more' --slow -1
bad '-n 2x: not a whole number' -n 2x
bad '-n 0: must be 1 or more' -n 0
bad '--json and --perfetto exclude each other' --json --perfetto
bad '--follow and --step exclude each other' --follow --step 3
expect 74 ctl trace --perfetto "$dir/none/p.json"
has "$out" "$dir/none/p.json: No such file"
[ ! -e /dev/full ] || { expect 74 eval 'ctl trace --perfetto >/dev/full'
    expect 74 eval 'ctl trace --json >/dev/full'
    expect 74 eval 'ctl trace --perfetto /dev/full'
    [ -c /dev/full ] || fail "/dev/full is gone"; }

# ---- the viewer's file
expect 0 ctl trace --perfetto "$dir/p.json"
expect 0 "$check" "$dir/p.json"
has "$out" "$last choose, $last collect, [0-9]+ decode, $last launch, .*; [0-9]+ flows; .* 9 asynchronous tracks"
grep -q '"name":"preempted"' "$dir/p.json" || fail "no request is shown as preempted"
for a in '--step 100:150' "--request $preempted" '--since 10m -n 20' '--slow 1e11'; do
    # shellcheck disable=SC2086
    ctl trace $a --perfetto >"$dir/q.json" || fail "$a --perfetto"
    expect 0 "$check" "$dir/q.json"
done
# The checker refuses each of these.
cat >"$dir/break.py" <<'PY'
import copy, json, subprocess, sys
check, path, out = sys.argv[1:]
good = json.load(open(path))
ev = good["traceEvents"]
def nth(ph, n=5, **kv):
    return [i for i, e in enumerate(ev) if e["ph"] == ph
            and all(e.get(k) == v for k, v in kv.items())][n]
def change(i, **kv):
    return lambda d: d["traceEvents"][i].update(kv)
def drop(i, key=None):
    return lambda d: d["traceEvents"].pop(i) if key is None else d["traceEvents"][i].pop(key)
def swap(i, k):
    def f(d):
        t = d["traceEvents"]
        t[i], t[k] = t[k], t[i]
    return f
x, b, e = nth("X"), nth("b"), nth("e")
dev, after = nth("X", 5, pid=1), nth("X", 6, pid=1)
broken = {
    "partly overlaps": change(dev, dur=ev[after]["ts"] - ev[dev]["ts"] + ev[after]["dur"] / 2),
    "no duration": change(x, dur=-1),
    "no time": change(x, ts=str(ev[x]["ts"])),
    "no time ": change(x, ts=True),
    "no name": drop(x, "name"),
    "back in time": swap(dev, after),
    "not known": change(x, ph="Q"),
    "did not begin|outside|the end of": drop(b),
    "did not end|the end of": drop(e),
    "the end of": change(e, name="other"),
    "ends before it begins": drop(nth("s")),
    "has one end": drop(nth("f")),
    "outside any slice": change(nth("s"), pid=3),
    "has two events|ends before it begins": change(nth("s"), id=ev[nth("s", 6)]["id"]),
    "is not a number": change(nth("C"), args={"rows": "3"}),
    "is negative": change(nth("C"), args={"rows": -3}),
    "process 1 has no name": drop(nth("M", 0, pid=1, name="process_name")),
    "has no name ": drop(nth("M", 0, pid=1, name="thread_name")),
    "named twice": change(nth("M", 0, pid=1, name="process_name"), pid=2),
    "whole number": change(nth("M", 0, name="process_sort_index"), args={"sort_index": "1"}),
    "is not known": change(nth("M", 0), name="colour"),
    "is not an object": lambda d: d["traceEvents"].append(3),
    "neither ms nor ns": lambda d: d.update(displayTimeUnit="s"),
    "no list": lambda d: d.update(traceEvents={}),
}
import re
for want, f in broken.items():
    d = copy.deepcopy(good)
    f(d)
    json.dump(d, open(out, "w"))
    p = subprocess.run([sys.executable, check, out], stdout=subprocess.PIPE, text=True)
    if p.returncode != 1 or not re.search(want.strip(), p.stdout):
        sys.exit(f"{want}: exit {p.returncode}, {p.stdout}")
for text in ('{"traceEvents":[', '{"traceEvents":[],"displayTimeUnit":"ms","x":NaN}', "[]"):
    open(out, "w").write(text)
    if subprocess.run([sys.executable, check, out], stdout=subprocess.PIPE).returncode != 1:
        sys.exit(f"taken: {text}")
PY
expect 0 python3 "$dir/break.py" "$check" "$dir/p.json" "$dir/bad.json"

# ---- follow has seen every step and every event
kill -INT "$f_steps" "$f_events" 2>/dev/null
wait "$f_steps" "$f_events"
has "$(tail -n 1 "$dir/follow")" "^$last steps\$"
missing=$(awk 'NR > 1 && NF > 5 { if ($2 != ++n) { print n; exit } }' "$dir/follow")
[ -z "$missing" ] || fail "--follow left out step $missing"
ctl trace --json >"$dir/t.json"
[ "$(grep -c . "$dir/follow.json")" = "$(json_all 'len(d["events"])')" ] ||
    fail "--follow --events: $(wc -l <"$dir/follow.json") events"

# ---- the worker dies over its steps
# long enough for a slow machine to kill it meanwhile
ctl generate -p 'In the beginning' --max-tokens 900 --ignore-eos --n-requests 8 --json \
    >"$dir/json" 2>&1 &
g=$!
runs() {
    ctl trace -n 1 --json >"$dir/t.json" && [ "$(json_all 'd["steps"][0]["step"]')" -gt $((last + 10)) ]
}
until_true 20 runs || fail "the request does not run"
kill -KILL "$(ctl status --json | json 'd["worker"]["pid"]')"
second() { [ "$(ctl status --json | json 'd["worker"]["generation"]')" = 2 ]; }
until_true 20 second || fail "the worker is not replaced"
ctl cancel --all >/dev/null
wait $g
ctl --wait $((20 * slow)) generate -p 'In the beginning' --max-tokens 4 --ignore-eos \
    >"$dir/out" 2>&1 || fail "after the worker's death: $(cat "$dir/out")"
ctl trace --json >"$dir/t.json" || fail "--json"
true_of '[s["step"] for s in d["steps"]] == list(range(1, len(d["steps"]) + 1))'
true_of '{s["generation"] for s in d["steps"]} == {1, 2}'
true_of 'all(s["generation"] == 1 for s in d["steps"][:'"$last"' + 10])'
true_of 'all(s["state"] == ("done" if s["device_us"] else "lost") for s in d["steps"])'
true_of 'all(s["step"] - s["epoch"] == (0 if s["generation"] == 1 else
    max(t["step"] for t in d["steps"] if t["generation"] == 1)) for s in d["steps"])'
lost=$(json_all 'sorted({e["request"] for e in d["events"] if e["event"] == "start"} -
    {e["request"] for e in d["events"] if e["event"] == "end" or e["generation"] == 2})[0]')
expect 0 ctl trace --all
has "$out" '^time +step +gen +rows'
expect 0 ctl trace --request "$lost"
has "$out" "^request $lost: queued .*, lost with its worker\$"
ctl trace --request "$lost" --json >"$dir/t.json"
true_of 'd["request"]["state"] == "lost" and {s["generation"] for s in d["steps"]} == {1}'
ctl trace --perfetto >"$dir/p.json" 2>/dev/null
expect 0 "$check" "$dir/p.json"
grep -q '"name":"worker 2"' "$dir/p.json" || fail "the viewer does not show the second worker"

# ---- the daemon is killed: its trace ends, and is no longer followed
rm -f "$dir/follow" # an earlier follower's lines would be taken for this one's
ctl trace -f >"$dir/follow" 2>&1 &
f_steps=$!
until_true 10 grep -q time "$dir/follow" || true
kill -KILL "$fdd_pid"
wait "$fdd_pid" 2>/dev/null
fdd_pid=
wait "$f_steps"; rc=$?
[ $rc = 69 ] || fail "--follow: exit $rc: $(cat "$dir/follow")"
has "$(cat "$dir/follow")" 'the daemon (has )?ended'
expect 69 ctl trace --follow
expect 69 ctl trace
has "$out" "no daemon with the runtime folder $run"
