#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Features that the unit files need, without a service manager: a passed socket, a client
# that starts the daemon through it, stop, oom_score_adj.
. "$(dirname "$0")/lib.sh"
mkdir -m 700 "$run"
cat >"$dir/activate.py" <<'PY'
# Listen at argv[1]; start argv[2:] with that socket when a client comes.
import os, select, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
s.listen(16)
print("listening", flush=True)
select.select([s], [], [])
if s.fileno() != 3:
    os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="fdd.socket")
os.execv(sys.argv[2], sys.argv[2:])
PY
python3 "$dir/activate.py" "$run/fdd.sock" "$FDD" --set daemon.runtime_dir="$run" --set daemon.worker="$WORKER" \
    --set model.path=null --set device.backend=null >"$dir/listening" 2>>"$dir/log" &
fdd_pid=$!
until_true 20 test -s "$dir/listening" || fail "no listening socket"
# regression: it waited for an admin socket that no process would make,
# and started nothing
expect 0 ctl --wait $((20 * slow)) ping
[ "$(ctl status --json | json 'd["socket_unit"]')" = fdd.socket ] || fail "status: $(ctl status --json)"
gate=$(ctl status --json | json 'd["pid"]') worker=$(ctl status --json | json 'd["worker"]["pid"]')
a=$(cat "/proc/$gate/oom_score_adj") b=$(cat "/proc/$worker/oom_score_adj")
[ "$b" = $((a + 600 > 1000 ? 1000 : a + 600)) ] || fail "oom_score_adj: gate $a, worker $b"
expect 0 ctl stop
has "$out" 'fdd\.socket still listens: the next client starts fdd again'
has "$out" 'systemctl stop fdd\.socket fdd$'
wait "$fdd_pid" || fail "fdd exited $?"
fdd_pid=
[ -S "$run/fdd.sock" ] || fail "the service manager's socket was unlinked"
rm "$run/fdd.sock"
start --set model.path=null --set device.backend=null
[ "$(ctl status --json | json 'd["socket_unit"]')" = None ] || fail "status: $(ctl status --json)"
expect 0 ctl stop
[[ $out != *socket* ]] || fail "fdctl stop: $out"
wait "$fdd_pid"; fdd_pid=

# The CPU backend takes KV memory on first use: its planned memory is not
# resident after the start.
[ -z "${FDD_SAN_RUN:-}" ] || exit 0
[ -e "$DEMO/model.safetensors" ] || exit 0
start --set model.path="$DEMO" --set device.backend=cpu --set kv.memory_bytes=2147483648 --set kv.swap_space=1
worker=$(ctl status --json | json 'd["worker"]["pid"]')
rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$worker/status")
[ "$rss" -lt $((512 << 10)) ] || fail "$rss kB resident after the start, of 3 GiB of KV memory"
expect 0 ctl generate -p 'In the' --max-tokens 4
stop
