#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Users share the worker: weights are checked, one user's queue does not delay
# another's stream, requests that cannot start in time are refused or expire in the
# gate, and limits are exact.
. "$(dirname "$0")/lib.sh"
null="--set model.path=null --set device.backend=null"
# shellcheck disable=SC2086
bad() { # VALUE PATTERN
    expect 78 "$FDD" --check-config $null --set "sched.user_weights=$1"
    has "$out" "$2"
}
bad 'root:4,nobody-of-that-name:2' '"nobody-of-that-name:2": this system has no user'
bad '1000' '"1000": no weight'
bad '1000:0' '"1000:0": the weight must be a whole number from 1 to 1000'
bad '1:2,2:3,1:4' '"1:4": user 1 has a weight already'
# shellcheck disable=SC2086
expect 0 "$FDD" --check-config $null --set 'sched.user_weights=root:4, 1000:2'
# shellcheck disable=SC2086
start $null --set device.step_delay_us=5000 --set sched.max_num_seqs=8 \
    --set ipc.trusted_users="$(id -u)" --set sched.user_weights=70002:1
expect 65 ctl set sched.user_weights=70001:x
has "$out" '"70001:x": the weight must be'
expect 0 ctl set sched.user_weights=70001:2
expect 0 ctl config sched.user_weights
has "$out" '70001:2'
# 300 requests of 64 steps for 8 rows are 12 s of work. Ten requests of another
# user, one at a time, must not wait for it.
fair=$FDD_BUILD/tests/sys/fair
out=$("$fair" "$run/fdd.sock" 300 64 10 16 2>&1) || fail "fair: $out"
# shellcheck disable=SC2086
set -- $out
echo "slowest of ten requests $1 ms, token period $2 ms, others ended $3, refused $4"
[ "${1%.*}" -lt $((2500 * slow)) ] || fail "a request took $1 ms while a greedy user sent"
[ "$4" = 0 ] || fail "$4 requests of the other user were refused"
[ "$3" -gt 8 ] || fail "the greedy user was starved: $3 requests ended"
until_true 20 sh -c "'$FDCTL' --runtime-dir '$run' status --json | grep -q '\"queued\": *0'" ||
    fail "the queue did not empty"
n=$(ctl status --json | json 'd["requests"]["queued_tokens"]')
[ "$n" = 0 ] || fail "$n tokens are queued and no request"
stop
# max_concurrency exactly, and one more at once
# shellcheck disable=SC2086
start $null --set device.step_delay_us=20000 --set sched.max_num_seqs=2 \
    --set sched.max_concurrency=4
echo '[5,6,7]' >"$dir/ids"
for i in 1 2 3 4; do
    ctl generate --ids-file "$dir/ids" --max-tokens 400 --ignore-eos --json >"$dir/out.$i" 2>&1 &
done
until_true 10 sh -c "'$FDCTL' --runtime-dir '$run' requests --json | grep -o '\"id\"' |
    wc -l | grep -qx 4" || fail "four requests are not open"
t0=$(date +%s%N)
ctl generate --ids-file "$dir/ids" --max-tokens 4 --json >"$dir/out.5" 2>&1
ms=$((($(date +%s%N) - t0) / 1000000))
grep -q E_QUEUE_FULL "$dir/out.5" || fail "the fifth request: $(cat "$dir/out.5")"
echo "refused after $ms ms"
expect 0 ctl cancel --all
wait $(jobs -p | grep -vx "$fdd_pid")
stop
