#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdd.service under a real systemd (tests/boot): each line of output is one fact that was
# checked. SKIP where systemd-nspawn cannot boot a tree.
. "$(dirname "$0")/lib.sh"
. "$FDD_SRC/tests/boot/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
seen() { printf 'seen: %s\n' "$*"; }
bad() { # fails with the service's log
    echo "--- journal"; inside journalctl --no-pager -o cat -u fdd -u fdd.socket 2>/dev/null | tail -n 60
    fail "$*"
}
prop() { inside systemctl show --value -p "$1" "${2:-fdd}"; } # PROPERTY [UNIT]
oom_end() { # the group of this test, when nothing is in it any more
    local rc=$?
    boot_down
    [ ! -e "$group" ] || rmdir "$group"
    (exit $rc)
    boot_end
}
prop_is() { [ "$(prop "$1")" = "$2" ]; }
alice() { inside setpriv --reuid alice --regid alice --init-groups "$@"; }
state() { inside fdctl --runtime-dir /run/fdd status --json; }
running() { [ "$(state | json 'd["requests"]["running"]')" -ge 1 ]; }
ready() { [ "$(state | json 'd["worker"]["phase"]')" = ready ]; }
said() { inside journalctl --no-pager -o cat -u fdd | grep -qE -- "$1"; }
# A request that takes seconds, in the background: its answer in $dir/long.
long_start() {
    alice fdctl --runtime-dir /run/fdd generate -p 'In the beginning' --max-tokens 1000 --ignore-eos \
        --n 8 --temperature 1 --seed 1 --json >"$dir/long" 2>"$dir/long.err" &
    long=$!
    until_true 30 running || bad "the long request does not run: $(cat "$dir/long.err")"
}
long_is_whole() {
    wait "$long" || bad "$1: the running request failed: $(cat "$dir/long.err" "$dir/long" | head -c 500)"
    [ "$(json '[len(c["ids"]) for c in d["choices"]]' <"$dir/long")" = \
        '[1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]' ] ||
        bad "$1: the running request was cut: $(head -c 500 "$dir/long")"
}

own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
group=/sys/fs/cgroup/memory${own%/}/fdd-test-$$
boot_make
boot_install
conf=$tree$(sed -n "s#^sysconfdir = ##p" "$FDD_BUILD/Makefile" | sed "s#\${prefix}#$boot_prefix#")/fdd
mkdir -p "$conf" "$tree/var/lib/prometheus/node-exporter" "$tree/var/lib/fdd"
# a stop must let this request end, which takes minutes on a slow machine
printf '[model]\npath = /var/lib/fdd/demo\nmax_model_len = 1024\n[daemon]\ndrain_timeout_ms = 300000\n' \
    >"$conf/fdd.ini"
cp -rL "$DEMO" "$tree/var/lib/fdd/demo"
boot_up
inside useradd -m -G fdd alice || fail "useradd"
seen "booted $(inside systemctl --version | head -n 1)"

[ "$(inside id -gn fdd)" = fdd ] && inside getent group fdd-admin >/dev/null ||
    bad "sysusers.d made no user fdd or no group fdd-admin"
[ "$(inside stat -c %U:%G:%a /run/fdd /var/lib/fdd /var/cache/fdd | tr '\n' ' ')" = \
    'fdd:fdd:755 fdd:fdd:755 fdd:fdd:750 ' ] ||
    bad "folders: $(inside stat -c '%n %U:%G:%a' /run/fdd /var/lib/fdd /var/cache/fdd)"
seen "sysusers.d and tmpfiles.d made the user, the groups and the folders"

score=$(inside systemd-analyze security --offline=true --threshold=15 fdd.service --no-pager 2>&1) ||
    bad "systemd-analyze security: $(tail -n 1 <<<"$score")"
seen "systemd-analyze security --threshold=15: $(tail -n 1 <<<"$score" | sed 's/[^ -~]*//g')"
verify=$(inside systemd-analyze verify --man=no fdd.service fdd.socket fdd-textfile.service 2>&1)
[ -z "$verify" ] || bad "systemd-analyze verify: $verify"

inside systemctl start fdd || bad "systemctl start fdd: $(inside systemctl status fdd)"
until_true 30 ready || bad "the worker is not ready"
[ "$(inside stat -c %U:%G:%a /run/fdd/fdd.sock)" = fdd:fdd:660 ] || bad "fdd.sock: wrong owner or mode"
seen "fdd.service starts and is ready"

# the gateway next to it: its unit, socket, sandbox and keys
sum() { printf %s "$1" | sha256sum | cut -c 1-64; }
mkdir -p "$conf/fdd.ini.d"
cp "$FDD_SRC/conf/fdd-http.trusted.ini" "$conf/fdd.ini.d/fdd-http.ini"
printf '[keys]\nfile = /etc/fdd-http.keys\n[model]\nname = booted\n' >"$conf/fdd-http.ini"
echo "$(sum k-boot) boot user=4711" >"$tree/etc/fdd-http.keys"
inside chgrp fdd-http /etc/fdd-http.keys || bad "sysusers.d made no group fdd-http"
chmod 640 "$tree/etc/fdd-http.keys"
inside systemctl reload fdd || bad "systemctl reload fdd"
score=$(inside systemd-analyze security --offline=true --threshold=20 fdd-http.service --no-pager 2>&1) ||
    bad "systemd-analyze security: $(tail -n 1 <<<"$score")"
seen "systemd-analyze security --threshold=20: $(tail -n 1 <<<"$score" | sed 's/[^ -~]*//g')"
verify=$(inside systemd-analyze verify --man=no fdd-http.service fdd-http.socket 2>&1)
[ -z "$verify" ] || bad "systemd-analyze verify: $verify"
asked() { # KEY PATH BODY: the answer, head and body
    inside timeout 60 bash -c 'exec 3<>/dev/tcp/127.0.0.1/8000 && printf "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" "$1" "$0" "${#2}" "$2" >&3 && cat <&3' \
        "$1" "$2" "$3" 2>/dev/null
}
answers_http() {
    out=$(asked k-boot /v1/completions '{"model":"booted","prompt":"In the beginning","max_tokens":8}')
    grep -q '"completion_tokens":8' <<<"$out"
}
inside systemctl start fdd-http.socket || bad "systemctl start fdd-http.socket"
! inside systemctl is-active -q fdd-http.service || bad "fdd-http runs before anyone asked"
until_true 30 answers_http || bad "no answer through fdd-http.socket: $out; $(inside journalctl --no-pager -o cat -u fdd-http | tail -n 5)"
inside systemctl is-active -q fdd-http.service || bad "fdd-http is not active after an answer"
[ "$(inside ps -o user= -p "$(prop MainPID fdd-http)" | tr -d ' ')" = fdd-http ] || bad "fdd-http runs as $(inside ps -o user= -p "$(prop MainPID fdd-http)")"
out=$(asked k-wrong /v1/completions '{"prompt":"a"}')
has "$out" '^HTTP/1.1 401 '
seen "fdd-http.socket started fdd-http, which answers as its own user, and 401 without a key"

# the sandbox must allow this: a long body goes to a thread of lower priority
inside bash -c 'head -c 300000 /dev/zero | tr "\0" a >/tmp/pad; exec 3<>/dev/tcp/127.0.0.1/8000
    body="{\"model\":\"booted\",\"prompt\":\"ab\",\"max_tokens\":2,\"metadata\":\"$(cat /tmp/pad)\"}"
    printf "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer k-boot\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" "${#body}" >&3
    printf "%s" "$body" >&3; cat <&3' >"$dir/long_body" 2>&1
grep -q '"completion_tokens":2' "$dir/long_body" || bad "a long body: $(head -c 500 "$dir/long_body")"
nice=$(inside bash -c 'cat /proc/$0/task/*/stat' "$(prop MainPID fdd-http)" | awk '{print $19}' | sort -n)
[ $(($(head -n 1 <<<"$nice") + 5)) = "$(tail -n 1 <<<"$nice")" ] || bad "no thread of a nice value 5 higher: $nice"
inside bash -c "echo '$(sum k-new) new' >/etc/fdd-http.keys"
inside systemctl reload fdd-http || bad "systemctl reload fdd-http"
new_key() { out=$(asked k-new /v1/completions '{"prompt":"a","max_tokens":1}'); grep -q '"completion_tokens":1' <<<"$out"; }
until_true 10 new_key || bad "the new key is not taken: $out"
seen "the sandbox lets a long body be read and keys be read again"

inside systemctl stop fdd-http || bad "systemctl stop fdd-http"
[ "$(prop Result fdd-http) $(prop ExecMainStatus fdd-http)" = "success 0" ] || bad "fdd-http ended: $(prop Result fdd-http) $(prop ExecMainStatus fdd-http)"
until_true 30 new_key || bad "the next client did not start fdd-http"
inside systemctl stop fdd-http.socket fdd-http || bad "stop of both"
! inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/8000' 2>/dev/null || bad "something listens on 8000 after the stop"
seen "systemctl stop ends fdd-http, the next client starts it, and the stop of both is one"

gate=$(prop MainPID) worker=$(state | json 'd["worker"]["pid"]')
a=$(inside cat "/proc/$gate/oom_score_adj") b=$(inside cat "/proc/$worker/oom_score_adj")
[ "$b" -ge $((a + 600)) ] || bad "oom_score_adj: gate $a, worker $b"
seen "oom_score_adj: gate $a, worker $b"

reloaded() { inside fdctl --runtime-dir /run/fdd config log.level | grep -q debug; }
! reloaded || bad "log.level is debug already"
printf '[log]\nlevel = debug\n' >>"$conf/fdd.ini"
inside systemctl reload fdd || bad "systemctl reload fdd"
until_true 10 reloaded || bad "nothing was reloaded"
printf 'leve = debug\n' >>"$conf/fdd.ini"
! inside systemctl reload fdd 2>"$dir/reload" || bad "systemctl reload took a configuration with an error"
sed -i '$d' "$conf/fdd.ini"
seen "systemctl reload reads the configuration, and fails when it has an error"
# the user as which workers run is no administrator
out=$(inside setpriv --reuid fdd --regid fdd --clear-groups fdctl --runtime-dir /run/fdd requests 2>&1)
[ $? = 77 ] || bad "the daemon's own user is an administrator: $out"
seen "the user fdd is refused as an administrator"

long_start
inside systemctl stop fdd || bad "systemctl stop"
long_is_whole "systemctl stop"
prop_is ActiveState inactive || bad "after systemctl stop: $(prop ActiveState), $(prop Result)"
seen "systemctl stop drains: the running request ended whole"

inside systemctl is-active -q fdd.socket || bad "fdd.socket does not listen while fdd is stopped"
first=$(alice fdctl --wait 30 --runtime-dir /run/fdd generate -p 'In the beginning' --max-tokens 8 --json 2>&1) ||
    bad "no answer through fdd.socket: $first"
until_true 30 ready || bad "not ready after the start through the socket"
prop_is ActiveState active || bad "fdd is $(prop ActiveState) after the answer"
seen "fdd.socket started fdd for a client: $(json 'len(d["ids"])' <<<"$first") tokens"

long_start
inside systemctl restart fdd || bad "systemctl restart"
long_is_whole "systemctl restart"
until_true 30 ready || bad "not ready after systemctl restart"
seen "systemctl restart drains: the running request ended whole"

# a crash of each: started again
gate=$(prop MainPID)
inside bash -c 'kill -KILL $0' "$gate"
restarted() { [ "$(prop MainPID)" != "$gate" ] && [ "$(prop MainPID)" != 0 ] && ready; }
until_true 60 restarted || bad "not started again after the gate was killed"
seen "after kill -9 of the gate it is started again"
gate=$(prop MainPID) worker=$(state | json 'd["worker"]["pid"]')
inside bash -c 'kill -KILL $0' "$worker"
other_worker() { # in one answer: another, and it is ready
    [ "$(state | json 'd["worker"]["phase"] == "ready" and d["worker"]["pid"] != '"$worker")" = True ]
}
until_true 60 other_worker || bad "no other worker after kill -9 of the worker"
[ "$(prop MainPID)" = "$gate" ] || bad "the gate went with its worker"
seen "after kill -9 of the worker there is another, and the gate lives"

out=$(inside fdctl --runtime-dir /run/fdd stop) || bad "fdctl stop: $out"
has "$out" 'fdd\.socket still listens: the next client starts fdd again'
has "$out" 'systemctl stop fdd\.socket fdd'
until_true 30 prop_is ActiveState inactive || bad "fdctl stop: fdd is $(prop ActiveState)"
before=$(prop NRestarts)
alice fdctl --wait 30 --runtime-dir /run/fdd ping >/dev/null 2>&1
until_true 30 ready || bad "the next client did not start fdd"
inside fdctl --runtime-dir /run/fdd stop >/dev/null
until_true 30 prop_is ActiveState inactive || bad "fdctl stop: fdd is $(prop ActiveState)"
[ "$(prop NRestarts)" -le "$before" ] || bad "fdctl stop was undone"
seen "fdctl stop says that fdd.socket starts fdd again, and fdd stays stopped"

inside systemctl start fdd fdd-textfile || bad "systemctl start fdd-textfile"
until_true 30 ready || bad "not ready"
prom=$tree/var/lib/prometheus/node-exporter/fdd.prom
until_true 30 test -s "$prom" || bad "no fdd.prom: $(inside systemctl status fdd-textfile)"
inside systemctl stop fdd-textfile
[ ! -e "$prom" ] || bad "fdd.prom is left after the textfile unit ended"
seen "fdd-textfile.service writes fdd.prom and takes it away"

inside systemctl stop fdd.socket fdd
[ ! -e "$tree/run/fdd/fdd.sock" ] && prop_is ActiveState inactive || bad "stop of both: $(prop ActiveState)"
seen "systemctl stop fdd.socket fdd ends both"

# a model in a home folder: the advice names ProtectHome, and following it works
cp -rL "$DEMO" "$tree/home/alice/demo"
sed -i 's#^path = .*#path = /home/alice/demo#' "$conf/fdd.ini"
! inside systemctl start fdd 2>/dev/null || bad "started with a model below /home"
said 'ProtectHome of the unit hides /home/alice/demo.*systemctl edit fdd' || bad "no advice on ProtectHome"
mkdir -p "$tree/etc/systemd/system/fdd.service.d"
printf '[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths=/home/alice/demo\n' \
    >"$tree/etc/systemd/system/fdd.service.d/override.conf"
inside systemctl daemon-reload
inside systemctl start fdd || bad "not started with the drop-in that was advised"
until_true 30 ready || bad "not ready with the drop-in that was advised"
inside systemctl stop fdd.socket fdd
rm -r "$tree/etc/systemd/system/fdd.service.d"
sed -i 's#^path = .*#path = /var/lib/fdd/demo#' "$conf/fdd.ini"
inside systemctl daemon-reload
seen "a model below /home: ProtectHome is named, and the advised drop-in serves it"

# A worker that takes more memory than its group has: the kernel must choose it,
# not the gate. With the unit's own MemoryMax where systemd has that controller,
# else (control groups of version 1 are not passed on to the tree) in a group
# made from outside with the same limit.
inside systemctl start fdd || bad "systemctl start fdd"
until_true 30 ready || bad "not ready"
gate=$(prop MainPID) worker=$(state | json 'd["worker"]["pid"]')
host_pid() { # PID inside: the pid here
    local f
    for f in /proc/[0-9]*/status; do
        [ "$(sed -n 's/^NSpid:.*\t//p' "$f" 2>/dev/null)" = "$1" ] &&
            [ "$(readlink "${f%status}ns/pid")" = "$(readlink "/proc/$boot_leader/ns/pid")" ] &&
            basename "${f%/status}" && return
    done
}
limit=$((96 << 20))
in_group() { inside cat "/sys/fs/cgroup$(prop ControlGroup)/$1" 2>/dev/null; }
if in_group memory.max >"$dir/memory.max"; then
    # the effective limits of the unit's lines on a machine with this memory
    total=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) << 10))
    awk -v max="$(cat "$dir/memory.max")" -v total=$total \
        'BEGIN { exit !(max > 0.88 * total && max < 0.92 * total) }' ||
        bad "MemoryMax=90% is $(cat "$dir/memory.max") of $total bytes"
    [ "$(in_group pids.max)" = 2112 ] || bad "TasksMax: $(in_group pids.max)"
    seen "MemoryMax=90% is $(cat "$dir/memory.max") of $total bytes, TasksMax $(in_group pids.max)"
    inside systemctl set-property --runtime fdd MemoryMax=$limit MemorySwapMax=0
    how="MemoryMax=96M of the unit"
elif [ "$(prop MemoryCurrent)" = '[not set]' ] && mkdir "$group" 2>/dev/null &&
    echo $limit >"$group/memory.limit_in_bytes" 2>/dev/null; then
    trap oom_end EXIT
    for p in "$gate" "$worker"; do host_pid "$p" >"$group/cgroup.procs"; done
    how="a group of 96 MB around both (systemd has no memory controller here: OOMPolicy was not run)"
else
    how=
fi
if [ -z "$how" ]; then
    echo "not run: out of memory: no memory controller for a group of this test"
    exit 0
fi
# KV memory is taken on first use: 80 different prompts of 900 tokens need 400 MB
python3 -c 'import random
for i in range(80):
    print({"ids": [random.Random(i).randrange(300, 4000) for _ in range(900)], "max_tokens": 8})' |
    tr "'" '"' >"$tree/home/alice/batch"
load_until() { # SECONDS CMD...: prompts, until this holds
    alice fdctl --runtime-dir /run/fdd generate --batch /home/alice/batch >"$dir/load" 2>&1 &
    load=$!
    until_true "$@" || bad "within 96 MB not: ${*:2}: $(tail -n 3 "$dir/load")"
    kill "$load" 2>/dev/null
    wait "$load" 2>/dev/null
}
starts=$(prop NRestarts)
load_until 60 other_worker
[ "$(prop MainPID)" = "$gate" ] || bad "the gate went with the worker that was out of memory"
until_true 10 said 'memory: this control group may have 96 MiB, the plan needs' ||
    bad "the worker does not warn of its control group"
said 'worker 0 ended by signal 9' || bad "the worker ended otherwise than by the kernel"
seen "out of memory in $how: the worker was killed, the gate lives, another worker is ready and warns"
[[ $how = Memory* ]] || exit 0
killed=$(in_group memory.events | sed -n 's/^oom_kill //p')
[ "${killed:-0}" -ge 1 ] || bad "memory.events: $(in_group memory.events | tr '\n' ' ')"
[ "$(prop ActiveState) $(prop NRestarts)" = "active $starts" ] ||
    bad "after the kernel killed the worker: $(prop ActiveState), $(prop NRestarts) restarts, not $starts"
seen "OOMPolicy=$(prop OOMPolicy): the kernel killed $killed, systemd left fdd.service $(prop ActiveState)"

# without that line systemd ends fdd with its worker
mkdir -p "$tree/etc/systemd/system/fdd.service.d"
printf '[Service]\nOOMPolicy=stop\nRestart=no\n' >"$tree/etc/systemd/system/fdd.service.d/oom.conf"
inside systemctl daemon-reload
inside systemctl restart fdd || bad "systemctl restart fdd"
until_true 30 ready || bad "not ready within 96 MB"
load_until 60 prop_is Result oom-kill
seen "with OOMPolicy=stop instead, systemd ends fdd.service: $(prop ActiveState), $(prop Result)"
