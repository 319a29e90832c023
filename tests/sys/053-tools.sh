#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Compares the output of fdctl and fdbench with tests/sys/tools.golden: every help text,
# errors of each option for invalid values, completions, and a session with every command,
# as text and as JSON. Figures are replaced by N, JSON by its keys and types; lists of
# counters and parameters, which come from the daemon, are left out. FDD_GOLDEN=write
# writes the file; FDD_TOOLS_ONLY=static leaves the session out.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
[ -z "${FDD_SAN_RUN:-}" ] || skip "compares outputs; other tests look for errors of memory"
FDBENCH=${FDD_BIN:-$FDD_BUILD}/fdbench
[ -x "$FDBENCH" ] || skip "no fdbench in ${FDD_BIN:-$FDD_BUILD}"
FDD_SRC=$(cd "$FDD_SRC" && pwd -P) FDD_BUILD=$(cd "$FDD_BUILD" && pwd -P)
DEMO=$FDD_SRC/conf/models/demo golden=$FDD_SRC/tests/sys/tools.golden
unset FDD_SOCKET FDD_INSTANCE FDD_RUNTIME_DIR RUNTIME_DIRECTORY XDG_RUNTIME_DIR NO_COLOR
export LC_ALL=C.UTF-8 TZ=UTC COLUMNS=150 LINES=40 TMPDIR=$dir
work=$dir/work seen=$dir/seen
mkdir "$work"; cd "$work" || exit 1

places() { # what differs between two trees, and the version
    sed -E -e "s|$DEMO|DEMO|g; s|$FDD_BUILD|BUILD|g; s|$FDD_SRC|SRC|g; s|$dir|DIR|g; s|peaks-[0-9a-f]+|peaks-HASH|g" \
        -e 's/[0-9]+\.[0-9]+\.[0-9]+( \([0-9a-f]{7,40}(-dirty)?\))?/VERSION/g'
}
figures() { # numbers, and the blanks that align them
    sed -E -e '/this fdctl is/d; /^(time|commit) +(both|before) /d; /^ +now +(20[0-9-]+T|[0-9a-f]{7,})/d; s/-?[0-9]+([.,][0-9]+)*(e[+-]?[0-9]+)?/N/g; s/\bN [mh] N\b/N U/g; s/\bN (ns|us|ms|s|min|h|KiB|MiB|GiB|B|M|G)\b/N U/g' \
        -e 's/(-?N\.?)+/N/g; s/ +/ /g; s/[^ ]+ \(N x .*\)/HOST (N x CPU)/; s/[▁▂▃▄▅▆▇█·▏▎▍▌▋▊▉─_#=.]{3,}/BAR/g; s/ $//'
}
shape() { # of JSON: keys in order with types; lists by what their elements have
    python3 -c 'import json, sys
def shape(v, at, out):
    if isinstance(v, dict):
        out.setdefault(at, "object")
        for k, w in v.items(): shape(w, at + "." + k, out)
    elif isinstance(v, list):
        out.setdefault(at, "list")
        for w in v: shape(w, at + "[]", out)
    else:
        kind = "number" if type(v) in (int, float) else "null" if v is None else type(v).__name__
        if kind not in out.setdefault(at, kind).split("|"): out[at] += "|" + kind
text = sys.stdin.read()
out = {}
try:
    shape(json.loads(text), "", out)
except ValueError:
    for line in text.splitlines(): shape(json.loads(line), "", out)
for k, v in out.items(): print(k or ".", "|".join(sorted(v.split("|"))))' |
        grep -vE 'gap_us|events\[\]\.(cached_tokens|slot|tokens|prompt_tokens|output_tokens|output_tokens_max|code|result) ' # there may be none
}
rows() { figures | sort; }
page() { sed -n 's|^<script type="application/json" id="data">\(.*\)</script>$|\1|p' | shape | grep -v '^.report.'; } # what it embeds, without the report
# say FILTER CMD...: a heading, the exit code, and both outputs through the filter
say() {
    local filter=$1 rc; shift
    "$@" >"$dir/o" 2>"$dir/e" </dev/null; rc=$?
    sed -i '/ were sent up to .* late: /d' "$dir/e" # a busy machine
    { echo "== $* : $rc" | places
        places <"$dir/o" | $filter
        [ ! -s "$dir/e" ] || { echo "-- stderr"; places <"$dir/e" | $stderr; }; } >>"$seen"
}
stderr=cat
ctl_() { say "$1" "$FDCTL" --runtime-dir "$run" "${@:2}"; }
bench_() { say "$1" "$FDBENCH" --runtime-dir "$run" "${@:2}"; }

# ---- without a daemon: help, completion, values that are not taken -----------------------
commands_of() { "$1" help | awk '/^commands:/ { c = 1; next } /^options:/ { c = 0 } c && NF { print $1 }'; }
options_of() { # "OPTION value" or "OPTION -" of a help text
    awk '/^ +(-[A-Za-z0-9],)? +--[a-z]/ { sub(/^ +(-[A-Za-z0-9],)? +/, ""); split($0, p, /  +/)
        n = split(p[1], w, " "); print w[1], (n > 1 ? "value" : "-") }'
}
odd_values() { # PROGRAM [COMMAND]
    local o kind bad
    "$@" --help >"$dir/help"
    [ "${2:-}" != generate ] || set -- "$1" "$2" -p x
    options_of <"$dir/help" | while read -r o kind; do
        case "${2:-}$o" in doctor*|ls*|*--help|*--version) continue ;; esac
        if [ "$kind" = - ]; then
            say cat timeout 3 "$@" "$o=1"
            continue
        fi
        say cat timeout 3 "$@" "$o"
        for bad in "" x! -5 99999999999999999999; do
            case "$o$bad" in --textfile*|--perfetto*) continue ;; esac
            say cat timeout 3 "$@" "$o=$bad"
        done
    done
}
complete() { FDD_COMPLETE=1 sh "$FDD_SRC/conf/completions/complete.sh" "$@"; }
for p in "$FDCTL" "$FDBENCH"; do
    export FDD_RUNTIME_DIR=$run
    say cat "$p" --help
    say cat "$p" --version
    say cat "$p"
    say cat "$p" nonsense
    say cat "$p" help nonsense
    say cat "$p" --nonsense x
    odd_values "$p"
    for c in $(commands_of "$p"); do
        case $c in version) continue ;; help) continue ;; esac
        say cat "$p" "$c" --help
        cmp -s <("$p" help "$c") <("$p" "$c" --help) || fail "$p help $c is not its --help"
        say cat complete "$p" "$c" --
        say cat complete "$p" "$c" -
        [ "$c" = doctor ] || say cat timeout 5 "$p" "$c" surplus args
        say cat "$p" "$c" --nonsense
        say cat "$p" "$c" --jso
        say cat "$p" "$c" -Z
        odd_values "$p" "$c"
    done
    unset FDD_RUNTIME_DIR
done
printf '0.0,8,4\n' >trace.csv; printf '1,x,4\n' >bad.csv; printf '3 4 x' >bad.ids
printf '{"prompt": "a", "nonsens": 1}\n' >bad.jsonl; printf '\377' >bad.txt; echo '{}' >bad.json
for w in "generate" "generate -p a -p b" "generate -p a --n-requests 0" "generate --batch bad.jsonl" \
    "generate --ids-file bad.ids" "generate --prompt-file bad.txt" "generate --prompt-file none" "generate one" \
    "tokenize -p a -p b" "tokenize --file none" "detokenize 1 --ids-file x" "cancel" "cancel x" "set" "set a" \
    "stat --json --prometheus" "stat --prometheus --textfile f" "stat --prometheus x" "stat --names both" \
    "stat --prometheus -i 2" "stat nonsense" "stat req*" "trace --last 1 --all" "trace --json --perfetto" \
    "trace --events --slow 1" "trace --events --perfetto" "trace --follow --all" "trace --follow --request 1" \
    "trace -n 0" "trace --since 1s --until 2s" "trace --step 5:2" "trace --perfetto a b" "profile --by x" \
    "top" "doctor nonsense" "debug --level" "debug --topic" "debug --nonsense" "-- ping" "--wait 0.1 ping" \
    "--instance +x ping" "--timeout 1 ping" "ls --json"; do
    # shellcheck disable=SC2086
    ctl_ cat $w
done
for w in "serve --rate-from 1" "serve --arrival x --rate 1" "serve --arrival ramp" "serve --burstiness 2 --rate 1 --arrival poisson" \
    "serve --trace none" "serve --trace bad.csv" "serve --trace trace.csv --rate 1" "serve --trace trace.csv -n 5" \
    "serve --dataset bad.txt" "serve --text --dataset bad.txt" "serve --search" "serve --search --ttft-ms 1 --repeats 2" \
    "serve --csv - --json -" "serve --html -" "serve --csv a --json a" "serve --against-any" "serve --against none" \
    "serve --against bad.json" "serve --against bad.json --search --ttft-ms 1" "serve --against bad.json -q" \
    "serve --csv none/x" "serve --max-tokens 3" "latency --csv - --json -" "latency --batch 1,x" "start" \
    "start --model none" "start --model bad.json" "start --model . --set x" "start --model . --set model.path=x"; do
    # shellcheck disable=SC2086
    bench_ cat $w
done

# ---- a session ---------------------------------------------------------------------------
session() {
stderr=figures
start --set model.path="$DEMO" --set daemon.cache_dir="$dir/cache"
sleep 1
printf '{"prompt": "One", "id": 7, "max_tokens": 3, "seed": 5}\n{"ids": [5, 6], "max_tokens": 2, "seed": "18446744073709551614"}\n{"prompt": "x", "max_tokens": 99999, "seed": 5}\n' >ok.jsonl
greedy="--temperature 0 --seed 1 --max-tokens 8"
for w in "generate -p Hello $greedy" "generate -p Hello --n 2 --seed 3 --max-tokens 4" "generate -p Hello --n-requests 2 $greedy" \
    "tokenize -p Hello" "tokenize -p Hello --json" "tokenize -p <s>Hello --literal --no-special" "detokenize 40 41 42" \
    "detokenize 40 41 --json" "detokenize 40 --skip-special" "config model.path" "config sched.max_num_seqs --origin" \
    "config nonsense" "set log.level=info" "set log.level=info --json" "set log.level=x" "set nonsense.x=1" "reload" \
    "reload --json" "cancel 12345" "cancel --session 12345" "cancel --all" "cancel --all --json" "debug selfcheck" \
    "debug panic" "debug --level=info" "debug +nonsense" "generate -p Hello --stop o $greedy" "requests" "clients"; do
    # shellcheck disable=SC2086
    ctl_ cat $w
done
for w in "generate -p Hello --json $greedy" "generate -p Hello --json --n 2 --logprobs 2 --prompt-logprobs 1 --seed 1 --max-tokens 2" \
    "generate --batch ok.jsonl --json" "ping --json" "status --json" "stat -1 --json requests_done ttft_ns" \
    "requests --json" "clients --json" "config --json" "model --json" "memory --json" "program --json" \
    "profile --batch 1 --steps 2 --json" "trace --json -n 3" "trace --json --request 1" "trace --events --json" "debug --json" "ls --json"; do
    # shellcheck disable=SC2086
    ctl_ shape $w
done
for w in "ping" "ping --deep -c 2" "generate --batch ok.jsonl" "generate -p Hello --stats $greedy" "status" \
    "stat -1 requests_done gate.*relayed" "model" "memory" "program" \
    "trace -n 1" "trace --step 1" "trace --slow 0.1 -n 1" "trace --events -n 2" "trace --request 1" "trace --request 99999" \
    "trace --step 99999" "debug" "ls" "top --once -i 0.2" "top --once -i 0.2 --ascii"; do
    # shellcheck disable=SC2086
    ctl_ figures $w
done
for w in "--by op" "--by layer"; do
    # shellcheck disable=SC2086
    ctl_ rows profile --batch 2 --steps 2 $w
done
COLUMNS=80 LINES=24 ctl_ figures top --once -i 0.2
ctl_ cat stat --textfile out.prom --once --names fdd
ctl_ cat trace --perfetto=out.json
say shape cat out.json
ctl_ cat pause
ctl -- generate -p Hello --max-tokens 4 >"$dir/queued" 2>&1 &
until_true 10 eval 'ctl requests | grep -q queued' || fail "no queued request"
ctl_ figures requests
ctl_ shape requests --json
ctl_ figures clients
ctl_ shape clients --json
ctl_ figures top --once -i 0.2
ctl_ cat pause --off --json
wait $!
ctl_ cat drain
ctl_ cat drain --wait --timeout-ms 5000 --json
ctl_ cat drain --off
small="-c 2 -n 4 -i 8 -o 4 --seed 1"
for w in "serve $small" "serve $small --repeats 2 --ttft-ms 60000" "serve --rate 50 --arrival gamma -n 4 -i 4:8 -o 2 --seed 1" \
    "serve $small --turns 2 --prefix-len 4 --prefixes 2 --text" "serve $small -q --csv a.csv --json a.json --html a.html" \
    "serve $small --repeats 2 --against a.json" "serve $small -i 9 --against a.json" "latency -b 1,2 -i 8 -o 4 --repeats 2" \
    "latency -i 8 -o 2 --repeats 1 -q --csv l.csv --json l.json" "ipc -n 20 --parked 2 --tokens 8 -c 1 --streams 1"; do
    # shellcheck disable=SC2086
    bench_ figures $w
done
bench_ shape ipc -n 20 --parked 2 --tokens 8 -c 1 --streams 1 --json
bench_ shape serve -c 2 -n 4 -i 8 -o 4 --search --ttft-ms 60000 -q --json -
say shape cat l.json
for w in a.csv l.csv; do say figures cat $w; done
say page cat a.html
ctl_ figures stop
wait "$fdd_pid"; fdd_pid=
bench_ figures start --model "$DEMO" --fdd "$FDD" --set daemon.worker="$WORKER" --repeats 1
bench_ shape start --model "$DEMO" --fdd "$FDD" --set daemon.worker="$WORKER" --repeats 1 --json
}
[ "${FDD_TOOLS_ONLY:-}" = static ] || session

if [ "${FDD_GOLDEN:-}" = write ]; then cp "$seen" "$golden"; exit 0; fi
[ "${FDD_TOOLS_ONLY:-}" != static ] || { head -n "$(wc -l <"$seen")" "$golden" >"$dir/head"; golden=$dir/head; }
diff -u "$golden" "$seen" >"$dir/diff" || fail "other outputs (FDD_GOLDEN=write if they are meant):
$(head -n 100 "$dir/diff")"
