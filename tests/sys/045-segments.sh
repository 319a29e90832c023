#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Statistics and trace have no name that another user could take first. A user
# who may read them gets a read-only descriptor. Root sees the figures of a
# gate that does not answer.
. "$(dirname "$0")/lib.sh"
run=$(realpath "$dir")/run
model=(--set model.path=null --set device.backend=null)
quiet() { local t0=$EPOCHREALTIME; out=$("$@" 2>&1); rc=$?
    took=$(python3 -c "print($EPOCHREALTIME - $t0)"); }
within() { python3 -c "import sys; sys.exit(not $took < $1 * $slow)" || fail "took $took s: $out"; }

# ---- another user's files with names of older versions: they are not
# read, and do no harm
old=/dev/shm/$(python3 -c 'import sys
h = 0xcbf29ce484222325
for c in sys.argv[1].encode(): h = (h ^ c) * 0x100000001b3 % 2**64
print("fdd-%016x" % h)' "$run")
left='' before=" $(echo /dev/shm/fdd-*) "
for f in "$old" "$old-trace"; do
    printf '\033[2JSTRANGER' >"$f" && truncate -s 1M "$f" && chmod 666 "$f" || skip "no /dev/shm"
done
trap 'rc=$?; rm -f "$old" "$old-trace"; kill ${liar:-} ${full:-} 2>/dev/null; (exit $rc); cleanup' EXIT
start "${model[@]}"
chmod 755 "$run"
expect 0 ctl stat -1
has "$out" '^gate +uptime_ns '
expect 0 ctl trace
expect 0 ctl top --once
head -c 12 "$old" | grep -q STRANGER || fail "the stranger's file was written"
for f in /dev/shm/fdd-*; do
    case $f in "$old"|"$old-trace") continue ;; esac
    [ ! -e "$f" ] || [[ $before == *" $f "* ]] || { rm -f "$f"; left+=" $f"; }
done
[ -z "$left" ] || fail "names in /dev/shm:$left"
stop
rm -f "$old" "$old-trace"
expect 69 ctl stat -1
has "$out" "no daemon with the runtime folder $run"

# ---- a user without rights gets none; one with rights gets a read-only one
cat >"$dir/ask.py" <<'EOT'
import array, json, mmap, os, socket, sys
def refused(what):
    try: what()
    except OSError: return True
s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1])
try: s.sendall(('{"cmd":"%s"}\n' % sys.argv[2]).encode())
except BrokenPipeError: pass # who may ask nothing is told so, and the socket is closed
text, anc, _, _ = s.recvmsg(65536, socket.CMSG_SPACE(64))
fds = array.array("i")
for _, _, data in anc: fds.frombytes(data[:len(data) // 4 * 4])
ok = json.loads(text)["ok"]
if not ok:
    sys.exit(7 if len(fds) == 0 else "refused, with a descriptor")
fd, = fds
path = "/proc/self/fd/%d" % fd
bad = [n for n, f in {
    "open again": lambda: os.open(path, os.O_RDWR),
    "open again to read": lambda: os.open(path, os.O_RDONLY),
    "write": lambda: os.write(fd, b"x"), "truncate": lambda: os.ftruncate(fd, 0),
    "truncate by path": lambda: os.truncate(path, 0),
    "chmod": lambda: os.fchmod(fd, 0o666),
    "map to write": lambda: mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
}.items() if not refused(f)]
m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
sys.exit(", ".join(bad) if bad else 0 if m[:4] in (b"FDST", b"FTRC") else "magic %r" % m[:4])
EOT
for python in "$(command -v python3)" /usr/bin/python3 none; do # one that others may run
    [ "$python" = none ] || ! others || ! as_other "$python" -c '' 2>/dev/null || break
done
if [ "$python" != none ]; then
    start "${model[@]}" --set ipc.group= --set ipc.admin_group=
    chmod 755 "$run"
    for what in stat_fd trace_fd; do
        expect 7 as_other "$python" "$dir/ask.py" "$run/admin.sock" $what
    done
    expect 77 as_other "$O_FDCTL" --runtime-dir "$run" stat -1
    stop
    group=$(getent group 65534 | cut -d: -f1)
    start "${model[@]}" --set ipc.group="$group" --set ipc.admin_group=
    chmod 755 "$run"
    expect 0 as_other "$python" "$dir/ask.py" "$run/admin.sock" stat_fd
    expect 7 as_other "$python" "$dir/ask.py" "$run/admin.sock" trace_fd
    expect 0 as_other "$O_FDCTL" --runtime-dir "$run" stat -1
    has "$out" '^gate +uptime_ns '
    expect 77 as_other "$O_FDCTL" --runtime-dir "$run" trace
else
    echo "not root, no setpriv, or no python3 for others: permissions not tested"
    start "${model[@]}"
fi

# ---- a stopped gate: users of its group get no answer, root reads its files
if [ "$python" != none ]; then
    mkdir -m 777 "$dir/text"
    LD_LIBRARY_PATH=$dir/others setpriv --reuid 65534 --regid 65534 --clear-groups "$O_FDCTL" \
        --runtime-dir "$run" stat --textfile "$dir/text/fdd.prom" -i 0.1 & exporter=$!
    until_true 10 grep -qx 'fdd_up 1' "$dir/text/fdd.prom" || fail "the exporter writes nothing"
fi
kill -STOP "$fdd_pid"
if [ "$(id -u)" = 0 ]; then
    quiet ctl stat -1; [ $rc = 0 ] || fail "stat of a stopped gate: $out"
    within 2
    has "$out" '^gate +uptime_ns +[1-9]'
    quiet ctl stat --prometheus; [ $rc = 0 ] || fail "stat --prometheus of a stopped gate: $out"
    within 2
    has "$out" '^fdd_up 1$'
    quiet ctl top --once
    within 2
    has "$out" 'uptime|up '
    has "$out" 'KV|req'
    quiet ctl trace; [ $rc = 0 ] || fail "trace of a stopped gate: $out"
    ctl stat -1 --json >"$dir/stopped.json"
    [ "$(json 'd["gate_pid"]' <"$dir/stopped.json")" = "$fdd_pid" ] || fail "another's: $(cat "$dir/stopped.json")"
fi
if [ "$python" != none ]; then
    rm "$dir/text/fdd.prom" # who exports has a segment, and needs no answer
    until_true 10 grep -qx 'fdd_up 1' "$dir/text/fdd.prom" || fail "no figures of a stopped gate are exported"
    kill "$exporter"; wait "$exporter" || fail "the exporter: $?"
    quiet as_other "$O_FDCTL" --runtime-dir "$run" --timeout 0.5 stat -1
    [ $rc = 75 ] || fail "a member of the group reads a stopped gate: exit $rc: $out"
    has "$out" 'gives no answer'
    # a folder of another user, whose fdd.pid names this gate: not his, so not read
    mkdir "$dir/his"
    cp "$run/fdd.pid" "$dir/his/"
    chown -R 65534:65534 "$dir/his"
    expect 69 "$FDCTL" --runtime-dir "$dir/his" stat -1
    # nor does his FIFO hold root up
    rm "$dir/his/fdd.pid"; mkfifo "$dir/his/fdd.pid"
    expect 69 timeout $((10 * slow)) "$FDCTL" --runtime-dir "$dir/his" stat -1
fi
# ---- a gate that accepts no connection, with a full queue of them: it has not ended
python3 -c 'import socket, sys, time
all = []
try:
    while len(all) < 1000:
        all.append(socket.socket(socket.AF_UNIX)); all[-1].setblocking(False); all[-1].connect(sys.argv[1])
except BlockingIOError: print("full", flush=True)
time.sleep(600)' "$run/admin.sock" >"$dir/full" & full=$!
until_true 20 grep -q full "$dir/full" || fail "the queue of connections does not fill"
expect 75 ctl --timeout 0.5 status
has "$out" 'gave no answer within 500 ms'
if [ "$(id -u)" = 0 ]; then
    quiet ctl trace; [ $rc = 0 ] || fail "trace of a gate with a full queue: $out"
    [[ $out != *"has ended"* ]] || fail "it is said to have ended: $out"
fi
kill "$full"; wait "$full" 2>/dev/null
kill -CONT "$fdd_pid"
until_true 10 ctl status

# ---- another user's socket: what it sends is checked before it is read
cat >"$dir/copy.py" <<'EOT'
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'{"cmd":"stat_fd"}\n')
fd = array.array("i", s.recvmsg(4096, 64)[1][0][2])[0]
b = bytearray(os.pread(fd, os.fstat(fd).st_size, 0))
at = b.index(b"null\0")
b[at:at + 16] = b"\033]0;owned\007\033[2Jx".ljust(16, b"y")
open(sys.argv[2], "wb").write(b)
EOT
cat >"$dir/liar.py" <<'EOT'
import array, fcntl, os, socket, sys
def memfd(data, seal):
    fd = os.memfd_create("fdd-stat", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if seal: fcntl.fcntl(fd, 1033, 2) # F_ADD_SEALS, F_SEAL_SHRINK
    return fd
whole = open(sys.argv[2], "rb").read()
lies = [os.pipe()[0], os.open("/dev/zero", os.O_RDONLY), os.open(sys.argv[2], os.O_RDONLY),
    memfd(whole, False), memfd(whole[:4096], True), memfd(b"\0" * len(whole), True), None,
    memfd(whole, True), memfd(whole, True)]
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(8)
for fd in lies:
    c, _ = s.accept(); c.recv(4096)
    c.sendmsg([b'{"ok":true,"bytes":1}\n'], [] if fd is None else
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    c.close()
EOT
ready() { [ "$(ctl stat -1 --json | json 'd["model"]')" = null ]; }
until_true 10 ready
python3 "$dir/copy.py" "$run/admin.sock" "$dir/whole" || fail "no copy of the segment"
mkdir "$dir/lies"
python3 "$dir/liar.py" "$dir/lies/admin.sock" "$dir/whole" & liar=$!
until_true 10 test -S "$dir/lies/admin.sock"
for i in 1 2 3 4 5 6 7; do
    expect 76 timeout $((10 * slow)) "$FDCTL" --runtime-dir "$dir/lies" stat --prometheus
done
esc=$(printf '\033')
for form in --prometheus --json; do # its text is shown, and does nothing to a terminal
    expect 0 "$FDCTL" --runtime-dir "$dir/lies" stat -1 $form
    has "$out" 'x1b\]0;owned'
    [[ $out != *"$esc"* ]] || fail "$form: an escape sequence of a stranger's"
done
wait "$liar"; liar=
stop
