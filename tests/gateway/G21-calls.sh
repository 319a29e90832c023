#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G21: by strace, a loop iteration makes at most one send() for a stream, and the
# number of other system calls does not grow with the tokens: it is the same for
# 64 streams as for 8.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "a sanitizer makes calls of its own"
command -v strace >/dev/null || skip "no strace"
strace -o /dev/null true 2>/dev/null || skip "strace may not trace here: $(strace -o /dev/null true 2>&1 | tail -n 1)"
start --set model.path=null --set device.step_delay_us=20000 --set sched.max_num_seqs=64 --set ipc.trusted_users="$(id -un)"
real=$HTTP
HTTP=$dir/traced
cat >"$HTTP" <<T
#!/bin/sh
exec strace -D -f -qq -e trace=!futex -o "$dir/calls" "$real" "\$@"
T
chmod 755 "$HTTP"
gateway
for n in 8 64; do
    : >"$dir/at"
    wc -l <"$dir/calls" >"$dir/at"
    "$FDD_BUILD/tests/bench/http_load" -p "$port" -n $n -s 3 >"$dir/load.$n" || fail "http_load: $?"
    tail -n +$(($(cat "$dir/at") + 1)) "$dir/calls" >"$dir/calls.$n"
done
py "$gw/g21_calls.py" "$http_pid" 8 "$dir/calls.8" 64 "$dir/calls.64" || fail "see above"
kill -TERM "$http_pid"
wait "$http_pid"
http_pid=
stop
