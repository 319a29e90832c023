#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G15: SIGTERM ends no stream before the deadline; with sockets of the service manager no
# connection is refused meanwhile, and the next process answers the new requests.
. "$(dirname "$0")/lib.sh"
start --set model.path="$DEMO"
gateway --set http.drain_timeout_ms=$((30000 * slow))
py "$gw/g15_drain.py" || fail "see above"
wait "$http_pid" || fail "exit $?"
http_pid=

# a deadline that passes
gateway --set http.drain_timeout_ms=200
post /v1/completions '{"prompt":"a","max_tokens":1000,"ignore_eos":true,"n":32}' >/dev/null 2>&1 &
until_true 10 sh -c "curl -fsS $url/metrics | grep -q '^fdd_http_streams 1'" || fail "no stream"
kill -TERM "$http_pid"
wait "$http_pid" || fail "exit $?"
http_pid=
grep -q "connections are cut" "$dir/http.log" || fail "the log says nothing of the cut"

# as the service manager does it: the socket outlives the process
cat >"$dir/manager.py" <<'T'
import atexit, os, signal, socket, subprocess, sys, time, urllib.request
s = socket.socket(); s.set_inheritable(True); s.bind(("127.0.0.1", 0)); s.listen(64)
port = s.getsockname()[1]
def launch():
    # the shell's pid is that of the program
    return subprocess.Popen(["/bin/sh", "-c", 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"', "sh"] + sys.argv[1:],
                            preexec_fn=lambda: os.dup2(s.fileno(), 3, True), close_fds=False)
def ready(limit=30):
    end = time.time() + limit
    while time.time() < end:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status
        except Exception:
            time.sleep(0.1)
    raise SystemExit("not healthy")
procs = []
atexit.register(lambda: [p.kill() for p in procs])
p = launch(); procs.append(p); ready()
p.send_signal(signal.SIGTERM); time.sleep(0.2)
late = socket.create_connection(("127.0.0.1", port), timeout=60)
late.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
assert p.wait(30) == 0
q = launch(); procs.append(q)
raw = b""
while True:
    d = late.recv(4096)
    if not d: break
    raw += d
assert raw.startswith(b"HTTP/1.1 200 "), raw
q.send_signal(signal.SIGTERM); assert q.wait(30) == 0
print("what came while none ran was answered by the next")
T
py "$dir/manager.py" "$HTTP" -c /dev/null --set daemon.socket="$run/fdd.sock" 2>>"$dir/http.log" || fail "activation: $(tail -n 5 "$dir/http.log")"
stop
