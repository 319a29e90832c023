#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The device fails in the middle of a step while clients stream: the worker ends at once,
# every stream ends, the tokens they had are correct, no token of the failed step is
# delivered, and a new worker gives the same answers. tests/gpu/fault.sh runs this on a
# GPU: FAULT_ARGS are for fdd.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
read -ra more <<<"${FAULT_ARGS:---set model.path=$DEMO --set device.backend=cpu --set device.step_delay_us=1000}"
# that sanitizer sleeps a second in every _exit()
export TSAN_OPTIONS="${TSAN_OPTIONS:-}:atexit_sleep_ms=0"
start --set log.format=json --set log.rate=0 "${more[@]}"
clients=6 rounds=${FAULT_ROUNDS:-2} tokens=${FAULT_TOKENS:-$(few 900 300)}
for i in $(seq $clients); do echo "[$((i * 7)), $((i * 11 + 3)), 5]" >"$dir/ids$i"; done
worker() { pgrep -P "$fdd_pid" | head -n 1; }
ask() { # NAME [CMD...]: all clients at once, CMD meanwhile; exit codes in $codes
    local i pids=()
    for i in $(seq $clients); do
        timeout $((60 * slow)) "$FDCTL" --runtime-dir "$run" generate --ids-file "$dir/ids$i" \
            --max-tokens "$tokens" --temperature 0 --ignore-eos --stream-interval 1 --json \
            >"$dir/$1.$i" 2>"$dir/$1.$i.err" &
        pids+=($!)
    done
    [ $# = 1 ] || "${@:2}"
    codes=
    for i in "${pids[@]}"; do wait "$i"; codes+="$? "; done
}
# Records when it began to exit, by polling PF_EXITING in its flags.
watch_exit() { # PID FILE
    python3 - "$@" <<'PY' &
import sys, time
open(sys.argv[2] + ".on", "w")
try:
    while True:
        with open(f"/proc/{sys.argv[1]}/stat") as f:
            if int(f.read().rsplit(")", 1)[1].split()[6]) & 4:
                break
        time.sleep(0.001)
except OSError:
    pass
with open(sys.argv[2], "w") as f:
    print(time.time(), file=f)
PY
    watcher=$!
    until_true 10 test -e "$2.on" || fail "no watcher started"
}
count() { ctl stat -1 | awk '/generation_tokens/ { print $3 }'; }
more_than() { [ "$(count)" -gt "$1" ]; }
fault() { # ROUND
    watch_exit "$w" "$dir/exit$1"
    until_true 20 more_than $((before + clients * 20)) || fail "no tokens: $(ctl stat -1)"
    # the worker may be gone before it can answer
    ctl debug fail-device >"$dir/answer" 2>&1 || grep -q worker "$dir/answer" ||
        fail "fail-device: $(cat "$dir/answer")"
}
# only if the configuration or the operator says so
ctl debug fail-device >"$dir/answer" 2>&1 && fail "fails without the debug bit"
grep -q 'faults is not set' "$dir/answer" || fail "no reason: $(cat "$dir/answer")"
ask whole
[ "$codes" = "$(printf '0 %.0s' $(seq $clients))" ] || fail "exit $codes without a fault"
for round in $(seq "$rounds"); do
    w=$(worker); [ -n "$w" ] || fail "no worker process"
    before=$(count)
    expect 0 ctl debug +faults
    ask "cut$round" fault "$round"
    [ "$codes" = "$(printf '75 %.0s' $(seq $clients))" ] || fail "exit $codes: $(cat "$dir/cut$round".*)"
    grep -L E_GPU_RESET "$dir/cut$round".*.err | grep . && fail "an end that is not E_GPU_RESET"
    wait "$watcher"
    expect 0 ctl --wait $((30 * slow)) ping
    [ "$(worker)" != "$w" ] || fail "same worker"
    expect 0 ctl debug panic
    has "$out" 'device error in step [0-9]+ \([0-9]+ rows'
done
ask whole2
[ "$codes" = "$(printf '0 %.0s' $(seq $clients))" ] || fail "exit $codes after the faults"
cp "$dir/log" "$dir/log.seen"
python3 - "$dir" "$clients" "$rounds" $((2000 * slow)) $((100 * slow)) <<'PY' || fail "not as it should be"
import datetime, json, sys
d, clients, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
most_reap, most_exit = float(sys.argv[4]), float(sys.argv[5])
bad = 0
def ids(name):
    with open(f"{d}/{name}") as f:
        text = f.read().strip()
    return json.loads(text)["ids"] if text else []
cut = 0
for c in range(1, clients + 1):
    whole = ids(f"whole.{c}")
    if ids(f"whole2.{c}") != whole:
        print(f"client {c}: another answer after the faults")
        bad += 1
    for r in range(1, rounds + 1):
        part = ids(f"cut{r}.{c}")
        cut += len(part)
        if part != whole[:len(part)] or len(part) >= len(whole):
            print(f"client {c}, round {r}: {len(part)} tokens that are no beginning")
            bad += 1
print(f"{cut} tokens had come before the faults, all of them right")
seen = []
for line in open(f"{d}/log.seen"):
    if not line.startswith("{"):
        continue
    o = json.loads(line)
    o["t"] = datetime.datetime.fromisoformat(o["time"]).timestamp()
    seen.append(o)
errors = [o for o in seen if o["topic"] == "engine" and o["msg"].startswith("device error")]
reaped = [o for o in seen if o["topic"] == "supervise" and "exited with 70" in o["msg"]]
ready = [o for o in seen if o["topic"] == "supervise" and " ready after " in o["msg"]]
if len(errors) != rounds or len(reaped) != rounds:
    print(f"{len(errors)} device errors and {len(reaped)} workers that ended with 70")
    sys.exit(1)
for r in range(rounds):
    # the log's times are whole milliseconds, cut off
    t0 = errors[r]["t"]
    ex = (float(open(f"{d}/exit{r + 1}").read()) - t0) * 1e3
    gone = (reaped[r]["t"] - t0) * 1e3
    back = [o["t"] for o in ready if o["t"] > reaped[r]["t"]]
    print(f"round {r + 1}: exits {ex:.1f} ms after the error is seen, reaped after {gone:.0f} ms, "
        f"ready after {(back[0] - t0) * 1e3:.0f} ms; {errors[r]['msg']}")
    bad += ex > most_exit or gone > most_reap
sys.exit(1 if bad else 0)
PY
stop
