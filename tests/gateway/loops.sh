#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Several loops: connections are spread over all loops, counters add up, the limit of a
# key is over all loops, reload and SIGTERM reach each; an address in use by another
# program is refused; a socket of the service manager and a UNIX socket are shared.
. "$(dirname "$0")/lib.sh"
sum() { printf %s "$1" | sha256sum | cut -c 1-64; }
start --set model.path="$DEMO"
echo "$(sum k-one) one inflight=3" >"$dir/keys"
gateway --set http.loops=4 --set keys.file="$dir/keys" --set http.socket="$dir/http.sock"
[ "$(find "/proc/$http_pid/task" -mindepth 1 -maxdepth 1 | wc -l)" -ge 9 ] || fail "no threads of four loops"
until_true 10 sh -c "curl -s $url/metrics -H 'Authorization: Bearer k-one' | grep -q '^fdd_http_connected 4'" ||
    fail "not four sessions: $(curl -s "$url/metrics" -H 'Authorization: Bearer k-one' | grep connected)"
py "$gw/loops.py" || fail "see above"
until_true 10 curl -fsS --unix-socket "$dir/http.sock" "http://localhost/health" || fail "the UNIX socket does not answer"

# keys are read again, in all loops
echo "$(sum k-two) two" >"$dir/keys"
kill -HUP "$http_pid"
until_true 10 grep -q "read again" "$dir/http.log" || fail "nothing was read again"
for _ in $(seq 40); do
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/version" -H 'Authorization: Bearer k-two')" = 200 ] || fail "a loop has the old keys"
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/version" -H 'Authorization: Bearer k-one')" = 401 ] || fail "a loop has the old keys"
done

# another gateway on the same port, with several loops too, is refused
expect 69 timeout 10 "$HTTP" -c /dev/null --set http.loops=2 --set http.port="$port" --set daemon.socket="$run/fdd.sock"
has "$out" "Address already in use"
gateway_stop
[ ! -e "$dir/http.sock" ] || fail "the socket is left"

# from the service manager: one socket, two loops
cat >"$dir/manager.py" <<'T'
import os, signal, socket, subprocess, sys, time, urllib.request
s = socket.socket(); s.set_inheritable(True); s.bind(("127.0.0.1", 0)); s.listen(64)
port = s.getsockname()[1]
p = subprocess.Popen(["/bin/sh", "-c", 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "sh"] + sys.argv[1:],
                     preexec_fn=lambda: os.dup2(s.fileno(), 3, True), close_fds=False)
try:
    end = time.time() + 30
    n = 0
    while n < 50 and time.time() < end:
        try:
            n += urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200
        except OSError:
            time.sleep(0.1)
    assert n == 50, n
    p.send_signal(signal.SIGTERM)
    assert p.wait(30) == 0
    print("two loops share the manager's socket")
finally:
    p.kill()
T
py "$dir/manager.py" "$HTTP" -c /dev/null --set http.loops=2 --set daemon.socket="$run/fdd.sock" 2>>"$dir/http.log" || fail "activation"
stop

# the test of one loop with three: models that are added and removed
FDD_TEST_LOOPS=3 "$gw/models.sh" || fail "models.sh with three loops"
