#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdbench: a report with every metric, a log that gives the same numbers, a page with
# plots that a browser shows, the other commands, and errors for bad input.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
FDBENCH=${FDD_BIN:-$FDD_BUILD}/fdbench
[ -x "$FDBENCH" ] || skip "no fdbench in ${FDD_BIN:-$FDD_BUILD}"
recompute=$FDD_SRC/tests/bench/recompute
holds() { # FILE EXPRESSION over d
    python3 -c 'import json,sys
d=json.load(open(sys.argv[1]))
sys.exit(not ('"$2"'))' "$1" || fail "not so: $2: $(head -c 3000 "$1")"
}
bench() { timeout $((120 * slow)) "$FDBENCH" --runtime-dir "$run" "$@"; }

# --- without a daemon
expect 69 bench serve -n 1
has "$out" "no daemon at $run/fdd.sock"
expect 69 bench ipc
has "$out" "no daemon at"
expect 64 bench ipcc
has "$out" "did you mean fdbench ipc"
expect 64 bench ipc --clients 0
has "$out" "--clients 0: must be a whole number from 1 to"
expect 64 bench ipc --tockens 3
has "$out" "did you mean --tokens"
expect 64 bench start
has "$out" "--model DIR is missing"
expect 66 bench start --model "$dir/none"
has "$out" "--model $dir/none: No such file"
expect 66 bench start --model "$DEMO/config.json"
has "$out" "not a folder"
expect 64 bench start --model "$DEMO" --set daemon.runtime_dir=/x
has "$out" "a folder of its own"
expect 64 bench start --model "$DEMO" --set nonsense
has "$out" "write --set section.key=value"
for c in serve latency ipc start; do
    expect 0 bench $c --help
    has "$out" "usage: fdbench $c"
done

# --- start: times, and nothing left behind
export TMPDIR=$dir/tmp
mkdir "$TMPDIR"
expect 0 bench start --model "$DEMO" --fdd "$FDD" --set daemon.worker="$WORKER" --repeats 1
has "$out" "cold +socket there +[0-9.]+"
has "$out" "warm +socket there +[0-9.]+"
has "$out" "first token +[0-9.]+ +[0-9.]+ +[0-9.]+"
bench start --model "$DEMO" --fdd "$FDD" --set daemon.worker="$WORKER" --repeats "$(few 2 1)" \
    --json >"$dir/start.json" || fail "start --json"
holds "$dir/start.json" 'all(0 < r["socket_ms"] < r["ready_ms"] < r["first_token_ms"] for r in d["runs"]) and
    len(d["runs"]) == '"$(few 4 2)"' and
    d["cold"]["starts"] == '"$(few 2 1)"
expect 69 bench start --model "$DEMO" --fdd "$FDD" --set sched.no_such=1
has "$out" "unknown parameter"
mkdir "$dir/empty"
expect 69 bench start --model "$dir/empty" --fdd "$FDD" --set daemon.worker="$WORKER"
has "$out" "its last lines"
has "$out" "config.json"
# if interrupted, its daemon ends with it
"$FDBENCH" start --model "$DEMO" --fdd "$FDD" --set daemon.worker="$WORKER" -r 1000 \
    >"$dir/int" 2>&1 &
pid=$!
until_true 20 compgen -G "$TMPDIR/fdbench.*/run/fdd.sock" || fail "start made no daemon"
kill -TERM $pid
wait $pid; rc=$?
[ $rc = 130 ] || fail "start exited $rc when interrupted: $(cat "$dir/int")"
[ -z "$(ls -A "$TMPDIR")" ] || fail "start left $(ls -A "$TMPDIR")"
pgrep -f "daemon.runtime_dir=$TMPDIR" >/dev/null && fail "start left a daemon"
unset TMPDIR

# --- serve
start --set model.path="$DEMO"
n_serve=$(few 96 32)
bench serve -c 16 -n "$n_serve" -i 16:64 -o 24 --ttft-ms 60000 --tpot-ms 10000 --csv "$dir/a.csv" \
    --json "$dir/a.json" --html "$dir/a.html" >"$dir/a.txt" || fail "serve: $(cat "$dir/a.txt")"
text=$(cat "$dir/a.txt")
for m in TTFT TPOT ITL E2E queue "request throughput" "output throughput" \
    "total throughput" goodput "within the limits" p50 p90 p95 p99 p99.9 max std mean \
    "prefix cache" preemptions "own processor use" "lateness"; do
    has "$text" "$m"
done
has "$text" "requests that ended well +$n_serve"
has "$text" "output tokens +$((n_serve * 24))"
has "$text" "goodput +[0-9.]+"
holds "$dir/a.json" 'd["repeats"][0]["requests_ok"] == '"$n_serve"' and
    d["repeats"][0]["attainment"] == 1 and
    d["repeats"][0]["ttft_ms"]["n"] == '"$n_serve"
[ "$(awk -F, '$3 == 0' "$dir/a.csv" | wc -l)" = "$n_serve" ] || fail "the log has not $n_serve requests"

# --- lists that options name are sent with every request
expect 65 bench serve -c 2 -n 2 -i 16 -o 2 -q --warmup 0 --allow-ids 99999999
has "$out" "E_BAD_TOKEN.*allowed_ids is 99999999"

# --- the log gives the same numbers; a changed log does not
expect 0 python3 "$recompute" "$dir/a.csv" "$dir/a.json"
has "$out" "numbers of [0-9]+ requests are the same"
tamper() { # NAME FIELD: adds one unit in the last line
    awk -F, -v OFS=, -v col="$1" 'NR == FNR { n = NR; next }
        FNR == 1 { for (i = 1; i <= NF; i++) if ($i == col) c = i }
        FNR == n { $c = sprintf("%.0f", $c + 1) } { print }' "$dir/a.csv" "$dir/a.csv"
}
for field in end_ns first_ns queue_ns prompt_tokens output_tokens cached_tokens; do
    tamper $field >"$dir/bad.csv"
    cmp -s "$dir/a.csv" "$dir/bad.csv" && fail "$field was not changed"
    expect 1 python3 "$recompute" "$dir/bad.csv" "$dir/a.json"
    has "$out" "the report says .* the log gives"
done
sed '$d' "$dir/a.csv" >"$dir/bad.csv"
expect 1 python3 "$recompute" "$dir/bad.csv" "$dir/a.json"
has "$out" "repeats\[0\]"

# --- the progress bar is one line, however narrow the terminal
if command -v script >/dev/null; then
    script -qec "stty cols 40; exec '$FDBENCH' --runtime-dir '$run' serve -c 2 -n 1000000 \
        --duration 1 -i 16 -o 24 --warmup 0 >/dev/null" /dev/null >"$dir/bar" 2>&1 ||
        fail "serve on a terminal: $(cat "$dir/bar")"
    tr '\r' '\n' <"$dir/bar" | sed 's/\x1b\[K//' >"$dir/lines"
    grep -q 'requests, 2 open' "$dir/lines" || fail "no progress: $(cat "$dir/lines")"
    awk 'length > 39' "$dir/lines" | grep . && fail "lines wider than the terminal"
fi

# --- repeats and a search
bench serve -c 2 -n 8 -i 16 -o 8 --repeats 3 -q --csv "$dir/b.csv" --json "$dir/b.json" ||
    fail "serve --repeats"
expect 0 python3 "$recompute" "$dir/b.csv" "$dir/b.json"
bench serve -c 2 -n 8 -i 16 -o 8 --search --ttft-ms 0.001 -q --json "$dir/c.json" \
    --html "$dir/c.html" >"$dir/c.txt" 2>&1
holds "$dir/c.json" 'd["search"]["found"] is None and
    len(d["search"]["steps"]) > 0'
embedded() { sed -n 's|^<script type="application/json" id="data">\(.*\)</script>$|\1|p' "$1"; }
embedded "$dir/c.html" >"$dir/c.data"
holds "$dir/c.data" 'len(d["report"]["search"]["steps"]) > 0 and d["report"]["search"]["found"] is None'
# more concurrency than requests does not change the load
bench serve -c 2 -n 8 -i 4 -o 2 --search --ttft-ms 600000 -q --json "$dir/d.json" ||
    fail "serve --search"
holds "$dir/d.json" 'd["search"]["found"] == 8 and
    d["search"]["bound"] == 8 and
    [s["load"] for s in d["search"]["steps"]] == [2, 4, 8]'
# a rate that cannot be reached is not within the limits, however fast the answers are
bench serve --rate 100000 -c 1 -n 60 -i 4 -o 2 --search --ttft-ms 600000 -q \
    --json "$dir/e.json" || fail "serve --search --rate"
holds "$dir/e.json" 'not d["search"]["steps"][0]["sent_in_time"] and
    not d["search"]["steps"][0]["within"] and
    d["search"]["steps"][0]["attainment"] == 1 and
    d["search"]["found"] < 100000'

# --- compared with an earlier run: a table of both; a different load is refused before
# anything is sent
printf '0.01,12,4\n0.05,20,6\n0.05,9,5\n' >"$dir/t.csv"
bench serve --trace "$dir/t.csv" --warmup 0 --ttft-ms 60000 -q --json "$dir/before.json" ||
    fail "serve --trace"
holds "$dir/before.json" 'd["format"] == 1 and
    d["daemon"]["device"] == "cpu" and d["daemon"]["version"] != "" and
    len(d["config"]["trace_digest"]) == 16'
cp "$dir/t.csv" "$dir/moved.csv"
expect 0 bench serve --trace "$dir/moved.csv" --warmup 0 --ttft-ms 60000 --progress \
    --against "$dir/before.json" --json "$dir/now.json"
has "$out" "^ +before +now +ratio"
has "$out" "requests that ended well +3 +3 +1\.000"
has "$out" "device +both +cpu of "
has "$out" "limits +both +TTFT 60000 ms"
for m in "TTFT" "TPOT" "ITL" "E2E"; do
    for p in p50 p99 max; do
        has "$out" "^$m $p, ms +[0-9.]+ +[0-9.]+ +[0-9.]+$"
    done
done
has "$out" "goodput, requests/s +[0-9.]+ +[0-9.]+ +[0-9.]+$"
[[ $out != *"not comparable"* ]] || fail "the same trace is not comparable: $out"
printf '0.01,12,4\n0.05,20,6\n0.05,9,6\n' >"$dir/moved.csv"
counted=$(ctl stat -1 requests_done)
expect 65 bench serve --trace "$dir/moved.csv" --warmup 0 --against "$dir/before.json"
has "$out" "not comparable: digest of --trace was [0-9a-f]{16}, is [0-9a-f]{16}; --against-any"
expect 65 bench serve -c 2 -n 3 -i 8 -o 4 --warmup 0 --against "$dir/before.json"
has "$out" "arrivals was trace, is closed, -c was 0, is 2"
[ "$(ctl stat -1 requests_done)" = "$counted" ] || fail "a load was sent that is not compared"
expect 0 bench serve --trace "$dir/moved.csv" --warmup 0 --against "$dir/before.json" --against-any
has "$out" "not comparable: digest of --trace was"
has "$out" "^TTFT p50, ms +[0-9.]+ +[0-9.]+ +[0-9.]+$"
expect 65 bench serve -n 1 --against "$dir/t.csv"
has "$out" "--against $dir/t.csv:1: "
expect 66 bench serve -n 1 --against "$dir/none.json"
expect 64 bench serve -n 1 --against-any
expect 64 bench serve --search --ttft-ms 1 --against "$dir/before.json"
has "$out" "not with --search"
expect 64 bench serve -q --against "$dir/before.json"
has "$out" "prints a table"

# --- outputs: no files are made for a run that does not begin, and one file
# cannot be used twice
expect 69 timeout 60 "$FDBENCH" --runtime-dir "$dir/nothing" serve --csv "$dir/new.csv"
[ ! -e "$dir/new.csv" ] || fail "an empty log of no run"
expect 64 bench serve --csv "$dir/x" --html "$dir/x"
has "$out" "--csv and --html: both name the file $dir/x"
expect 74 bench serve -c 1 -n 2 -i 4 -o 2 --json /dev/full
has "$out" "/dev/full: No space left on device"
expect 74 bench serve -c 1 -n 1 --csv "$dir/none/x.csv"
has "$out" "$dir/none/x.csv: No such file"

# --- latency; a run in which all requests fail is a failure
expect 0 bench latency -b 1,3 -i 8 -o 4 --repeats 2 --json "$dir/lat.json"
has "$out" "^ +3 +[0-9.]+ \([0-9.]+ - [0-9.]+\)"
holds "$dir/lat.json" '[s["batch"] for s in d["sizes"]] == [1, 3] and
    all(0 < s["prefill_ms"]["median"] < s["batch_ms"]["median"] for s in d["sizes"])'
# a command line need not be UTF-8
expect 0 bench latency -i 8 -o 2 --repeats 1 -q --csv "$dir/$(printf 'l\377')" --json "$dir/lat.json"
holds "$dir/lat.json" 'd["model"] == "demo" and "\ufffd" in d["args"]'
ctl drain >/dev/null || fail "drain"
expect 75 bench latency -i 8 -o 2 --repeats 1
has "$out" "1 failed with E_DRAINING"
expect 75 bench serve -c 1 -n 2 -i 8 -o 2 -q
ctl drain --off >/dev/null || fail "drain --off"

# --- ipc
expect 0 bench ipc --pings 200 --parked 20 --tokens 50
has "$out" "gate, spinning +200 +[0-9.]+"
has "$out" "worker, parked +20 +[0-9.]+"
has "$out" "tokens relayed +800"
has "$out" "processor time of the gate +[0-9.]+ us"
bench ipc --pings 50 --parked 5 --tokens 20 --clients 2 --streams 3 --json >"$dir/ipc.json" ||
    fail "ipc --json"
holds "$dir/ipc.json" 'd["streaming"]["tokens_relayed"] == 120 and
    d["gate_parked"]["p50_us"] > 0 and
    not d["streaming"]["shared_with_others"]'
expect 64 bench ipc --streams 1000
has "$out" "use more --clients"
expect 64 bench ipc --tokens 100000
has "$out" "more than the model's length"
stop

# --- the page: small, self-contained, with plots that a browser shows
[ "$(wc -c <"$dir/a.html")" -lt 2000000 ] || fail "the page is too large"
grep -qE 'https?://|src=|<link|<img|url\(' "$dir/a.html" && fail "the page names others"
[ "$(grep -c '<script' "$dir/a.html")" = 2 ] || fail "the page has other scripts than its data and its own"
if ! command -v chromium >/dev/null || [ -n "${FDD_SAN_RUN:-}" ]; then
    echo "screenshots left out: no chromium, or a sanitizer run"
    exit 0
fi
shot() { # NAME
    mkdir -p "$dir/profile"
    HOME=$dir timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --force-device-scale-factor=1 --user-data-dir="$dir/profile" \
        --window-size=1200,2600 --screenshot="$dir/$1.png" "file://$dir/$1.html" \
        >"$dir/chromium" 2>&1
    [ -s "$dir/$1.png" ] || fail "chromium made no screenshot: $(tail -n 5 "$dir/chromium")"
}
check="$FDD_SRC/tests/sys/png_check.py"
shot a
expect 0 python3 "$check" "$dir/a.html" "$dir/a.png" 8
# three more for a search
HOME=$dir timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$dir/profile" \
    --dump-dom "file://$dir/c.html" >"$dir/c.dom" 2>"$dir/chromium"
[ "$(grep -o '<figure>' "$dir/c.dom" | wc -l)" = 11 ] || fail "no plots of the search: $(tail -n 5 "$dir/chromium")"
for title in "Goodput over load" "Requests within the limits over load" "Throughput over speed for one user"; do
    grep -qE "<svg [^>]*aria-label=\"$title\"" "$dir/c.dom" || fail "no plot: $title"
done
# the check detects axes without lines and dots, and a report without plots
sed 's|</style>|.line, .area, .dots, .cross, .mark { display: none; }</style>|' "$dir/a.html" >"$dir/bare.html"
shot bare
expect 1 python3 "$check" "$dir/bare.html" "$dir/bare.png" 8
has "$out" "8 plots, 8 without a line"
sed 's|</style>|figure { display: none; }</style>|' "$dir/a.html" >"$dir/none.html"
shot none
expect 1 python3 "$check" "$dir/none.html" "$dir/none.png" 8
has "$out" "0 plots"
