#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdctl top on a terminal (tmux): the screens of two sizes under load, keys that send
# commands, a terminal that changes its size or has no colour, output that is no
# terminal, a daemon that hangs, dies and comes back, and a user without administrator
# rights. Also fdctl pause.
. "$(dirname "$0")/lib.sh"
command -v tmux >/dev/null || skip "no tmux"
infocmp screen >/dev/null 2>&1 && infocmp vt100 >/dev/null 2>&1 ||
    skip "no descriptions of the terminals screen and vt100"
export LC_ALL=C.UTF-8
[ "$(locale charmap 2>/dev/null)" = UTF-8 ] || skip "no locale C.UTF-8"
unset NO_COLOR COLUMNS LINES
tm() { tmux -u -S "$dir/tmux" -f /dev/null "$@"; }
trap 'rc=$?; tm kill-server 2>/dev/null; (exit $rc); cleanup' EXIT
pane() { # NAME WIDTH HEIGHT COMMAND: run it on a terminal of its own
    tm new-session -d -s "$1" -x "$2" -y "$3" "$4; echo rc=\$?; stty -a; sleep 1000"
    tm set -g status off
    tm resize-window -t "$1" -x "$2" -y "$3"
}
# The leak check at a program's end hangs if a signal arrives then; --once
# has that check too.
top="env ASAN_OPTIONS='${ASAN_OPTIONS:-}:detect_leaks=0' '$FDCTL' --runtime-dir '$run' top"
screen() { tm capture-pane -p -t "$1"; }
seen() { screen "$1" | grep -qE -- "$2"; }
unseen() { ! seen "$1" "$2"; }
want() { # NAME PATTERN: waits until it is on the screen
    until_true 15 seen "$1" "$2" || { screen "$1"; fail "no /$2/ on the screen $1"; }
}
press() { # NAME KEY...
    local name=$1; shift
    tm send-keys -t "$name" "$@"
}
width() { wc -L | grep -oE '[0-9]+'; }

# not a terminal, no daemon, nonsense
expect 64 ctl top </dev/null
has "$out" "not a terminal"
has "$out" "fdctl top --once"
expect 64 ctl top -i 0.01
has "$out" "--interval 0.01: must be 0.1 to 60"
expect 64 ctl top --onec
has "$out" "did you mean --once"
expect 69 ctl top --once
has "$out" "no daemon"

start --set model.path="$DEMO" --set sched.max_num_seqs=4
printf '%s\n' '{"prompt": "In the beginning", "max_tokens": 90, "ignore_eos": true}' \
    '{"prompt": "The second of the two", "max_tokens": 40, "priority": -2}' >"$dir/load"
loads=
load() {
    ctl generate --batch "$dir/load" --n-requests 100000 --concurrency 6 --retry 1000 \
        --json >/dev/null 2>&1 &
    loads="$loads $!"
}
load; load
pane nonsense 80 24 "TERM=no-such-terminal $top"
want nonsense 'TERM=no-such-terminal is no terminal that'
want nonsense '^rc=64'

# every figure is there, at both sizes, and moves
pane small 80 24 "$top"
pane large 200 50 "$top"
want small 'running +[a-z0-9]+ .*|fdctl +running'
for s in small large; do
    want $s 'fdctl +running'
    want $s 'out tok/s +[1-9]|^ +[1-9][0-9,.]+ '
    for word in 'fdd [0-9]' demo 'running, worker ready' 'up [0-9]' 'every 1 s' \
        'out tok/s' 'in tok/s' busy 'KV use' 'running [0-9]' 'waiting [0-9]' \
        'queued [0-9]' p50 p99 TTFT ITL 'step [0-9]' 'gap [0-9]' 'batch [0-9]' \
        'KV +[0-9]+ % \[.*\]' 'hit rate' '[0-9] of [0-9]+ blocks' 'cached [0-9]' \
        'done [0-9]' 'errors 0' 'preempted [0-9]' 'rejected [0-9]' 'requests [1-9]' 'ID' USER \
        CLIENT STATE PROMPT OUTPUT TOK/S AGE PRI 'q quit' 'h help' '█|▇|▆|▅'; do
        want $s "$word"
    done
done
for word in p90 TPOT queue E2E 'queued tokens' clients 'graphs' 'weights [0-9]' \
    'credits [0-9]+ of' 'deaths 0' 'OF MAX' COST WEIGHT SESSION PID submit; do
    want large "$word"
done
[ "$(screen small | wc -l) $(screen large | wc -l)" = "24 50" ] || fail "height"
user=$(id -un)
press small u; want small 'users 1, by USER'; want small "^>$user "
press small c; want small 'clients [2-9], by SESSION'
press small s; want small 'by USER'
press small S; want small 'by USER reversed'
press small h; want small 'show users, requests or clients'
press small x; want small 'clients [2-9]'
press small Z; want small 'no such key'
press small r; want small 'requests [1-9]'
press small +; want small 'every 2 s'
press small -; want small 'every 1 s'

# as text, at any width
for w in 60 80 133 200; do
    COLUMNS=$w LINES=30 expect 0 ctl top --once -i 0.2
    [ "$(printf '%s\n' "$out" | width)" -le $w ] || fail "wider than $w: $out"
    has "$out" 'out tok/s'
done
COLUMNS=80 expect 0 ctl top --once --ascii -i 0.2
printf '%s' "$out" | LC_ALL=C grep -q '[^ -~]' && fail "not ASCII: $out"
LC_ALL=C expect 0 ctl top --once -i 0.2
printf '%s' "$out" | LC_ALL=C grep -q '[^ -~]' && fail "not ASCII: $out"

# frozen is frozen
press small Space; want small 'frozen at [0-9:]+; space goes on'
before=$(screen small); sleep 2.2
[ "$(screen small)" = "$before" ] || fail "the frozen screen changed"
press small Space
until_true 5 unseen small 'frozen at' || fail "still frozen"

# pause by key, cancel by key
press small p; want small 'pause: .* y/n'
press small n; want small 'not done'
[ "$(ctl status --json | json 'd["paused"]')" = False ] || fail "paused by n"
press small p; want small 'pause: .* y/n'
press small y; want small 'paused, worker ready'
want small 'paused: requests are queued'
[ "$(ctl status --json | json 'd["paused"], d["state"]')" = "True paused" ] ||
    fail "not paused: $(ctl status --json)"
ctl generate -p x --max-tokens 5 --priority -9 --json >"$dir/victim" 2>&1 &
victim=$!
until_true 10 sh -c "'$FDCTL' --runtime-dir '$run' requests --json | grep -q -- '\"priority\": *-9'" ||
    fail "no request to cancel: $(ctl requests --json)"
for i in 1 2 3 4 5 6 7 8; do # in the order of priorities it is the first
    seen small 'by PRI' && break
    press small s; sleep 0.3
done
press small Home
want small '^>.* queued .* -9$'
press small k; want small 'cancel request [0-9]+ of .*\(fdctl\)\? y/n'
press small y; want small '^ 1 cancelled'
wait $victim
rc=$?
[ $rc = 1 ] || fail "the cancelled client exited $rc: $(cat "$dir/victim")"
grep -q cancelled "$dir/victim" || fail "not cancelled: $(cat "$dir/victim")"
press small p; want small 'go on: .* y/n'
press small y; want small 'running, worker ready'
want small 'fdctl +running'

# drain and back
press small d; want small 'drain: .* y/n'
press small y; want small 'draining, worker ready'
press small D; want small 'running, worker ready'

# fdctl pause
expect 0 ctl pause
has "$out" '^paused, [0-9]+ requests queued, [0-9]+ running$'
expect 0 ctl pause --json
has "$out" '"paused": *true'
expect 0 ctl status
has "$out" 'paused'
expect 0 ctl drain
expect 65 ctl pause
has "$out" 'the daemon is draining'
expect 0 ctl drain --off
expect 0 ctl pause --off
has "$out" '^running, '
expect 64 ctl pause now
has "$out" "unexpected 'now'"

# a terminal that changes its size
tm resize-window -t small -x 40 -y 10; want small '40x10 is too small: 60x12 at least'
tm resize-window -t small -x 100 -y 30; want small 'out tok/s .*█?.* running'
tm resize-window -t small -x 60 -y 12; want small 'TTFT'
tm resize-window -t small -x 1 -y 1
tm resize-window -t small -x 80 -y 24; want small 'out tok/s'

# colour carries no information of its own
colours() { tm capture-pane -p -e -t "$1" | grep -qE $'\033\\[([0-9;]*;)?3[0-7]'; }
until_true 5 colours small || fail "no colour on a terminal that has them"
pane vt 80 24 "TERM=vt100 $top"; want vt 'out tok/s +[0-9]'
pane bare 80 24 "NO_COLOR=1 $top"; want bare 'out tok/s +[0-9]'
pane plain 80 24 "$top --no-color --ascii"; want plain 'out tok/s +[0-9]'
for s in vt bare plain; do
    colours $s && fail "colour on $s"
done
screen plain | LC_ALL=C grep -q '[^ -~]' && fail "not ASCII: $(screen plain)"
press bare q; want bare '^rc=0'
press plain C-c; want plain '^rc=130'
pid=$(pgrep -P "$(tm display-message -p -t vt '#{pane_pid}')") || fail "no process on vt"
kill -TERM $pid; want vt '^rc=143'
for s in vt bare plain; do
    want $s '[^-]icanon'; want $s '[^-]echo '
done

# a daemon that hangs: keys go on
kill -STOP "$fdd_pid"
want small 'has not moved for [0-9]+ s'
press small h; want small 'show users, requests or clients'
press small h
kill -CONT "$fdd_pid"
until_true 10 unseen small 'has not moved' || fail "still said to hang"
# one that dies, and a new one
kill -KILL "$fdd_pid"; wait "$fdd_pid" 2>/dev/null
fdd_pid=
want small 'the daemon \(pid [0-9]+\) has ended'
want small 'ended .*up'
want large 'has ended'
press small p; want small 'no daemon to ask'
kill $loads 2>/dev/null
start --set model.path="$DEMO"
want small "a new daemon, pid $fdd_pid"
want small 'running, worker ready'
want small 'requests 0'
want large 'running, worker ready'
load; want small 'fdctl +running'
press small q; want small '^rc=0'
press large q; want large '^rc=0'
kill $loads 2>/dev/null
ctl cancel --all >/dev/null 2>&1
stop

# a user who may read but not administer
if others && getent group nogroup >/dev/null; then
    start --set model.path="$DEMO" --set ipc.group=nogroup
    load
    chmod 755 "$run"
    pane nobody 80 24 "cd /; LD_LIBRARY_PATH='$dir/others' setpriv \
        --reuid nobody --regid nogroup --clear-groups ${top/"$FDCTL"/"$O_FDCTL"}"
    want nobody 'out tok/s +[1-9]'
    want nobody 'user nobody may not use "requests": that takes group fdd-admin'
    want nobody 'usermod -aG fdd-admin'
    press nobody p; want nobody 'y/n'
    press nobody y; want nobody 'user nobody may not use "pause"'
    kill $loads 2>/dev/null
    stop
else
    echo "not root, or no user nobody who could run fdctl: permissions not tested"
fi
