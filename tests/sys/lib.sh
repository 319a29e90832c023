# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by the numbered system tests. Each gets its own folder and a daemon that is
# always ended with the test.
#   start [fdd arguments]   start fdd and wait until it is ready
#                           (FDD_UNDER: a program to start it under)
#   ctl ARGS                fdctl on that daemon
#   fail TEXT               end the test
#   expect RC CMD...        run, require this exit code; output in $out
#   free_port               prints a TCP port that is free and that no other program is given
#   others, as_other CMD... programs for another user ($O_FDD, ...); run as that user
set -u
: "${FDD_SRC:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${FDD_BUILD:=$FDD_SRC/build}"
FDD=${FDD_BIN:-$FDD_BUILD}/fdd
FDCTL=${FDD_BIN:-$FDD_BUILD}/fdctl
WORKER=${FDD_BIN:-$FDD_BUILD}/fdd-worker
DEMO=$FDD_SRC/conf/models/demo
# sanitizer builds are slower; every wait is scaled
slow=${FDD_SLOW:-1}; [ -n "${FDD_SAN_RUN:-}" ] && slow=5
# few N M: prints N, but M under TSan, which makes computing 20 to 50 times slower,
# unless FDD_LONG is set
few() { if [ "${FDD_SAN_RUN:-}" = tsan ] && [ -z "${FDD_LONG:-}" ]; then echo "$2"; else echo "$1"; fi; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/fdd-test.XXXXXX")
chmod 755 "$dir"
# a sanitizer report of any program, also of the worker, fails the test
if [ -n "${FDD_SAN_RUN:-}" ]; then
    mkdir -m 1777 "$dir/san"
    export ASAN_OPTIONS="${ASAN_OPTIONS:-}:log_path=$dir/san/asan"
    export UBSAN_OPTIONS="${UBSAN_OPTIONS:-}:log_path=$dir/san/ubsan"
    export TSAN_OPTIONS="${TSAN_OPTIONS:-}:log_path=$dir/san/tsan"
fi
run=$dir/run
fdd_pid=
out=
cleanup() {
    local rc=$?
    if [ -n "$fdd_pid" ] && kill -0 "$fdd_pid" 2>/dev/null; then
        kill -KILL "$fdd_pid" 2>/dev/null
        wait "$fdd_pid" 2>/dev/null
    fi
    local report
    for report in "$dir"/san/*; do
        [ -s "$report" ] || continue
        echo "FAIL: sanitizer report $(basename "$report")"; head -n 60 "$report"
        rc=1
    done
    if [ $rc != 0 ] && [ $rc != 77 ]; then
        echo "--- daemon log"; tail -n 60 "$dir/log" 2>/dev/null
    fi
    rm -rf "$dir"
    exit $rc
}
trap cleanup EXIT
trap 'exit 1' INT TERM
fail() { echo "FAIL: $*"; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }
# The model is on virtual device 1 of 2, and device 0 fails every call
# (tests/check-device). A test's own settings come after this.
test_device=()
if [ "${FDD_TEST_DEVICE:-}" = 1 ]; then
    test_device=(--set device.list=cpu:2 --set device.test_entry=1 --set device.shared=yes)
fi
# Uses no state of the machine: measurements of an earlier daemon are kept
# in /var/cache/fdd. Computes at the nice value of the tests and compilers that run at the
# same time.
launch() { # start without waiting
    ${FDD_UNDER:+"$FDD_UNDER"} "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" \
        --set daemon.cache_dir="$dir/cache" --set device.nice=0 "${test_device[@]}" "$@" 2>>"$dir/log" &
    fdd_pid=$!
}
start() {
    launch "$@"
    ctl --wait $((20 * slow)) ping >/dev/null 2>"$dir/ping" ||
        fail "daemon not ready: $(cat "$dir/ping")"
}
ctl() { "$FDCTL" --runtime-dir "$run" "$@"; }
expect() {
    local want=$1; shift
    out=$("$@" 2>&1)
    local rc=$?
    [ $rc = "$want" ] || fail "exit $rc instead of $want: $*
$out"
}
has() { # TEXT PATTERN
    printf '%s' "$1" | grep -qE -- "$2" || fail "no match for /$2/ in: $1"
}
until_true() { # SECONDS CMD...: poll
    local n=$(($1 * slow * 20)); shift
    while ! "$@" >/dev/null 2>&1; do
        n=$((n - 1)); [ $n -gt 0 ] || return 1
        sleep 0.05
    done
}
# Below the ports that the kernel hands out: those go to other tests a moment later.
free_port() {
    python3 -c 'import random, socket
low = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
while True:
    port, s = random.randrange(1024, low), socket.socket()
    try:
        s.bind(("127.0.0.1", port))
        break
    except OSError:
        pass
print(port)'
}
logged() { # TIMES PATTERN: waits, as the log may lag behind the event
    [ "$(grep -cE -- "$2" "$dir/log")" = "$1" ]
}
# Number of open descriptors of a process, even if its folder cannot be read (Linux 6.2).
fds_of() {
    local n
    n=$(stat -c %s "/proc/$1/fd")
    [ "$n" -gt 0 ] || n=$(find "/proc/$1/fd" -mindepth 1 | wc -l)
    [ "$n" -gt 0 ] || fail "descriptors of $1 cannot be counted"
    echo "$n"
}
json() { # FILTER: a python expression over d, from standard input
    python3 -c 'import json,sys
d=[json.loads(l) for l in sys.stdin if l.strip()]
d=d[0] if len(d)==1 else d
print('"$1"')'
}
# Copies the programs to where another user can run them: the tree itself may be below a
# folder that only its owner may enter. Returns 1 if this machine or user cannot do that.
others() {
    local p real
    { [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; } || return 1
    mkdir -p "$dir/others"
    for p in "$FDD" "$FDCTL" "$WORKER"; do
        real=${p%/*}/.libs/${p##*/}
        [ -e "$real" ] || real=$p
        cp "$real" "$dir/others/" || fail "no copy of $real"
    done
    for p in "$FDD_BUILD"/libclient/.libs/libfdclient.so.1 "$FDD_BUILD"/chat/.libs/libfdchat.so.0 \
        "$FDD_BUILD"/lib/*.so*; do
        [ ! -e "$p" ] || cp -L "$p" "$dir/others/"
    done
    chmod -R a+rX "$dir/others"
    O_FDD=$dir/others/fdd O_FDCTL=$dir/others/fdctl O_WORKER=$dir/others/fdd-worker
    as_other "$O_FDCTL" --version >/dev/null 2>&1
}
as_other() {
    LD_LIBRARY_PATH=$dir/others setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
stop() { # ends the daemon, requires a clean exit
    kill -TERM "$fdd_pid" 2>/dev/null
    wait "$fdd_pid"
    local rc=$?
    fdd_pid=
    [ $rc = 0 ] || fail "fdd exited $rc on SIGTERM"
}
ended() { ! kill -0 "$fdd_pid" 2>/dev/null; }
finish() { # ends the daemon through the admin socket, with any exit code
    expect 0 ctl stop
    until_true 20 ended || fail "fdd does not end"
    wait "$fdd_pid"
    fdd_pid=
}
