#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Two groups on virtual devices: one is killed again and again under load. No request
# is lost or ends twice, none without a token fails, and the other group's tokens keep
# coming as when it serves the whole load alone. Then a rolling restart under load,
# and a group that hangs. FDD_KILLS: number of kills (10; FDD_LONG: 200, which is P4
# of doc/testing.md).
. "$(dirname "$0")/lib.sh"
[ "${FDD_TEST_DEVICE:-}" != 1 ] || skip "the model is on one device"
kills=${FDD_KILLS:-$([ -n "${FDD_LONG:-}" ] && echo 200 || few 10 3)} open=24
groups=$FDD_BUILD/tests/sys/groups
[ -x "$groups" ] || skip "tests/sys/groups is not built"
expect 78 "$FDD" --check-config --set model.path="$DEMO" --set device.list=cpu:3 \
    --set parallel.data_parallel_size=2
has "$out" 'device.list: "cpu:3" has 3 devices, and parallel.data_parallel_size = 2 takes 2'
expect 78 "$FDD" --check-config --set model.path="$DEMO" --set parallel.data_parallel_size=2
has "$out" 'device.list: it is empty, and parallel.data_parallel_size = 2 takes 2'
serve() {
    start --set model.path="$DEMO" --set device.list=cpu:2 --set parallel.data_parallel_size=2 \
        --set device.threads=1 --set device.shared=yes --set ipc.trusted_users="$(id -u)" \
        --set daemon.crash_max=1000 --set daemon.restart_max_ms=200 --set kv.memory_bytes=64M
}
status() { ctl status --json | json "$1"; }
ready() { [ "$(status 'd["groups"]["ready"]')" = 2 ]; }
worker() { status "d[\"workers\"][$1][\"pid\"]"; }
has_died() { [ "$(status 'd["workers"][0]["deaths"]')" = "$1" ]; }
# Saves group 1's histogram of the time between tokens. Its growth up to the next look
# counts as alone (group 0 is not there) or shared.
look() { echo "$1 $(ctl stat -1 --group 1 --json hist.itl)" >>"$dir/itl"; }
p99() { # alone|shared: ns, by interpolation
    python3 - "$1" "$dir/itl" <<'PY'
import json, sys
looks = [line.split(' ', 1) for line in open(sys.argv[2])]
looks = [(what, json.loads(text)['histograms']['itl']) for what, text in looks]
sums = [0] * len(looks[0][1]['counts'])
for (what, a), (_, b) in zip(looks, looks[1:]):
    if what == sys.argv[1]:
        sums = [s + y - x for s, x, y in zip(sums, a['counts'], b['counts'])]
bounds = looks[0][1]['bounds']
left, low = 0.99 * sum(sums), 0
for bound, n in zip(bounds + [2 * bounds[-1]], sums):
    if left <= n:
        break
    left, low = left - n, bound
print(int(low + (bound - low) * left / max(n, 1)))
PY
}
begin_load() {
    mkfifo "$dir/in" 2>/dev/null
    "$groups" load "$run/fdd.sock" "$open" $((60000 * slow)) <"$dir/in" >"$dir/load" 2>&1 &
    load=$!
    exec 9>"$dir/in"
}
end_load() {
    echo >&9
    exec 9>&-
    wait $load || fail "load: $(cat "$dir/load")"
    sums=$(cat "$dir/load")
    echo "$1: $sums"
    has "$sums" ' bad 0 lost 0 odd 0$'
}
# ---- two, one of which dies
serve
until_true 20 ready || fail "not two groups: $(ctl status)"
expect 0 ctl status
has "$out" 'groups +2 of 2 ready'
has "$out" 'group 1 +ready'
begin_load
for ((i = 0; i < kills; i++)); do
    until_true 30 ready || fail "group 0 does not come back after $i kills: $(ctl status)"
    look shared
    sleep "0.$((RANDOM % (kills > 20 ? 3 : 10)))"
    w=$(worker 0)
    [ "$w" -gt 1 ] || fail "group 0 has no worker: $(ctl status)"
    kill -KILL "$w"
    until_true 20 has_died $((i + 1)) || fail "the gate does not see the death of $w"
    look alone
    [ $(((i + 1) % 50)) != 0 ] || echo "$((i + 1)) kills after $SECONDS s"
done
until_true 30 ready || fail "group 0 does not come back"
look shared
end_load "$kills kills"
[ "$(status 'd["workers"][0]["deaths"]')" = "$kills" ] || fail "not $kills deaths: $(ctl status)"
[ "$(status 'd["workers"][1]["deaths"]')" = 0 ] || fail "group 1 died, too"
moved=$(status 'd["groups"]["moved"]')
[ "$moved" -gt 0 ] || fail "no request went from a dead worker to the other"
alone=$(p99 alone) shared=$(p99 shared)
echo "$moved requests moved; p99 of the time between tokens of group 1: $shared ns, with the whole load alone $alone ns"
if [ -z "${FDD_SAN_RUN:-}" ]; then
    most=2.5 # where other programs run, too
    [ -z "${FDD_LONG:-}" ] || most=1.5
    python3 -c "import sys; sys.exit(0 if $shared < $most * $alone else 1)" ||
        fail "p99 of the time between tokens is $shared ns with a group that dies, alone $alone ns"
fi
# ---- one after another
begin_load
expect 0 ctl reload --rolling
has "$out" 'the workers of 2 groups start again'
one_done() { [ "$(status 'd["groups"]["rolling"]')" = False ]; }
until_true 40 one_done || fail "the rolling restart does not end: $(ctl status)"
until_true 20 ready || fail "not two groups after it: $(ctl status)"
[ "$(status 'd["groups"]["rolling_error"]')" = "" ] || fail "$(ctl status)"
end_load "rolling restart"
has "$sums" ' reset 0 '
[ "$(status 'd["workers"][1]["starts"]')" = 2 ] || fail "group 1 was not started again"
# ---- one hangs
expect 0 ctl set daemon.worker_hang_ms=$((4000 * slow))
begin_load
kill -STOP "$(worker 1)"
fell() { [ "$(status 'd["workers"][1]["deaths"]')" = 1 ]; }
until_true 30 fell || fail "a group that stands still is not killed: $(ctl status)"
until_true 20 ready || fail "group 1 does not come back"
end_load "a group that hangs"
# ---- what is seen
expect 0 ctl memory
has "$out" '^group 1: '
has "$out" '^all groups: devices '
expect 0 ctl memory --group 1
expect 65 ctl memory --group 2
has "$out" 'there is no group 2: they are 0 to 1'
expect 0 ctl trace --group 1 -n 2
expect 64 ctl trace --group 2
has "$out" 'no such group'
expect 0 ctl stat --prometheus
has "$out" '^fdd_generation_tokens_total\{group="1",model_name="demo"\} [1-9]'
has "$out" '^fdd_gate_groups_ready 2'
expect 0 ctl top --once
has "$out" '2 of 2 groups'
expect 0 ctl profile --group 1 --batch 2 --json
stop
# ---- one dies for good while requests run: its requests are no longer counted,
# the others are shown
start --set model.path="$DEMO" --set device.list=cpu:2 --set parallel.data_parallel_size=2 \
    --set device.threads=1 --set device.shared=yes --set kv.num_blocks=60 --set daemon.crash_max=1 \
    --set device.step_delay_us=10000
until_true 20 ready || fail "not two groups: $(ctl status)"
ctl generate -p 'In the' --max-tokens 600 --ignore-eos --n-requests 4 >/dev/null 2>&1 &
load=$!
runs() { [ "$(ctl stat -1 --group 0 --json | json 'd["worker"]["requests_running"]')" -gt 0 ]; }
until_true 20 runs || fail "no request runs with group 0: $(ctl status)"
kill -KILL "$(worker 0)"
for_good() { [ "$(status 'd["workers"][0]["state"]')" = failed ]; }
until_true 20 for_good || fail "group 0 has not failed: $(ctl status)"
left=$(ctl stat -1 --group 0 --json | json '[d["worker"][k] for k in ("requests_running", "seqs_running", "kv_blocks_used", "kv_blocks_total")]')
[ "$left" = '[0, 0, 0, 0]' ] || fail "a group without a worker has requests or blocks: $left"
expect 0 ctl memory
has "$out" '^group 0: failed, no answer from a worker'
has "$out" '^group 1: cpu-1'
expect 65 ctl memory --group 0
has "$out" 'no worker of group 0 is running'
expect 0 ctl memory --json
[ "$(json 'd["sum"]["tokens"]' <<<"$out")" = 3840 ] || fail "sums with one group: $out"
kill $load
stop
