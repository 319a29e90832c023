#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Users without administrator rights at the admin socket: one who may use no
# command connects as fast as possible; one who may read holds connections, or
# sends commands without end and reads no reply. The administrator's commands and
# clients are served meanwhile.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root"
group=$(getent group 65534 | cut -d: -f1)
[ -n "$group" ] || skip "no group 65534"
start --set model.path=null --set device.backend=null --set ipc.group="$group" --set ipc.admin_group=
chmod 755 "$run"
cat >"$dir/attack.py" <<'EOT'
import os, socket, sys, time
path, mode, end = sys.argv[1], sys.argv[2], time.time() + float(sys.argv[3])
os.setgroups([])
os.setresgid(*[int(sys.argv[4])] * 3)
os.setresuid(*[int(sys.argv[4])] * 3)
def dial():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(5)
    s.connect(path)
    return s
n = 0
if mode == "connect":        # no right: a line, and the end
    while time.time() < end:
        s = dial()
        text = b""
        while True:
            b = s.recv(4096)
            if not b: break
            text += b
        assert b"may not use any admin command" in text and text.count(b"\n") == 1, text
        s.close()
        n += 1
    print("refused", n)
else:                        # hold, or fill with lines and read nothing
    c = []
    while time.time() < end:
        while len(c) < 40:
            try: s = dial()
            except OSError: break
            s.setblocking(False)
            c.append(s)
        for s in list(c):
            try:
                if mode == "flood": s.send(b'{"cmd":"stat"}\n' * 1000)
                if s.recv(1, socket.MSG_PEEK) == b"": raise OSError
            except BlockingIOError: pass
            except OSError:
                s.close(); c.remove(s)
                continue
            try:             # refused: the line, then the end
                if b"too many" in s.recv(65536 if mode == "hold" else 1, socket.MSG_PEEK):
                    s.close(); c.remove(s)
            except OSError: pass
        time.sleep(0.02)
    time.sleep(1)            # those that were not refused yet
    for s in c:
        try: s.recv(1, socket.MSG_PEEK)
        except BlockingIOError: n += 1
        except OSError: pass
    print("held", n)
EOT
attack() { # UID MODE SECONDS
    python3 "$dir/attack.py" "$run/admin.sock" "$2" "$3" "$1"
}
quick() { # the administrator's commands, each within 2 s
    local t0 t1
    for c in "status" "requests" "clients" "debug" "ping"; do
        t0=$(date +%s%N)
        expect 0 ctl --timeout $((2 * slow)) $c
        t1=$(date +%s%N)
        [ $(((t1 - t0) / 1000000)) -le $((2000 * slow)) ] || fail "$1: $c took $(((t1 - t0) / 1000000)) ms"
    done
}
# a user without rights
attack 65533 connect $((2 * slow)) >"$dir/connect" 2>&1 & a=$!
for _ in 1 2 3; do quick connect; done
wait $a || fail "connect: $(cat "$dir/connect")"
[ "$(sed 's/refused //' "$dir/connect")" -gt 20 ] || fail "$(cat "$dir/connect")"
# a user who may read, and holds all connections
others && other=yes || other=no
attack 65534 hold $((5 * slow)) >"$dir/hold" 2>&1 & a=$!
sleep 0.5
if [ $other = yes ]; then # further commands of that user are refused for now, and say so
    other() { as_other timeout "${T:-20}" "$O_FDCTL" --runtime-dir "$run" "$@"; }
    refused() { other status; [ $? = 75 ]; }
    until_true 4 refused || fail "no command of that user is refused"
    expect 75 other stat -1
    has "$out" 'statistics of .*: too many admin connections.*of this user'
    expect 75 other status
    has "$out" 'try again'
    mkdir -m 777 "$dir/text"
    T=1 expect 124 other stat --textfile "$dir/text/fdd.prom" -i 0.2
fi
for _ in 1 2 3; do quick hold; done
wait $a || fail "hold: $(cat "$dir/hold")"
n=$(sed 's/held //' "$dir/hold")
[ "$n" -ge 1 ] && [ "$n" -le 4 ] || fail "one user holds $n connections"
# and sends commands without end; commands of all other users are logged, these are not
attack 65534 flood $((3 * slow)) >"$dir/flood" 2>&1 & a=$!
sleep 0.5
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$fdd_pid/status"; }
before=$(rss)
for _ in 1 2 3; do quick flood; done
[ $(($(rss) - before)) -le 20000 ] || fail "memory grew from $before to $(rss) KiB"
expect 0 ctl set log.rate=77
until_true 5 logged 1 'user root \(uid 0, pid [0-9]+\) commands \{"cmd":"set","name":"log.rate","value":"77"\}' ||
    fail "not in the log: log.rate=77 by root"
expect 0 ctl --timeout $((2 * slow)) stop
wait $a
wait "$fdd_pid" || fail "fdd exited $?"
fdd_pid=
