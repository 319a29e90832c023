#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Published counters: fdctl stat as text, JSON and for Prometheus, the file for
# node_exporter across a restart of the daemon, the dashboard's metrics.
. "$(dirname "$0")/lib.sh"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
start --set model.path="$DEMO"

# --- something to count: ends by length and by a stop string, several samples, a cache hit
ctl generate -p 'In the beginning' --max-tokens 24 --temperature 0 --n-requests 6 --json >"$dir/gen" ||
    fail "generate: $(tail -n 3 "$dir/gen")"
word=$(head -n 1 "$dir/gen" | json 'd["text"][10:14]')
ctl generate -p 'In the beginning' --max-tokens 24 --temperature 0 --stop "$word" --json >"$dir/stopped" ||
    fail "generate --stop"
[ "$(json 'd["finish_reason"]' <"$dir/stopped")" = stop ] || fail "no stop: $(cat "$dir/stopped")"
ctl generate -p 'A long answer' --max-tokens 4 --n 3 --temperature 1 --json >/dev/null || fail "generate --n"
prompt=$(printf 'All work and no play. %.0s' $(seq 40))
for _ in 1 2; do
    ctl generate -p "$prompt" --max-tokens 2 --json >/dev/null || fail "generate of the long prompt"
done
is_idle() {
    ctl stat -1 --json | json '(d["worker"]["requests_running"] + d["worker"]["requests_waiting"] +
        d["gate"]["requests_running"] + d["worker"]["steps_in_flight"] == 0) or 1/0'
}
until_true 20 is_idle || fail "the daemon does not become idle"

# --- text and filter
expect 0 ctl stat -1
has "$out" '^worker generation_tokens +[1-9]'
has "$out" '^hist +ttft +1?[0-9] +mean [0-9.]+ [num]?s +p50 [0-9.]+ [num]?s +p90 [^ ]+ [^ ]+ +p99'
expect 0 ctl stat -1 steps 'gate.sess*' hist.ttft
[ "$(printf '%s\n' "$out" | grep -c .)" -ge 5 ] || fail "filter: $out"
printf '%s\n' "$out" | grep -vqE '^(worker +steps |gate +sess|hist +ttft )' && fail "filter lets through: $out"
expect 0 ctl stat -1 --json worker.steps
printf '%s\n' "$out" | json '(list(d["worker"]) == ["steps"] and not d["gate"] and not d["histograms"]) or 1/0' \
    >/dev/null || fail "filter in JSON: $out"
expect 64 ctl stat -1 prempions
has "$out" "'prempions'; the nearest is 'preemptions'"
expect 64 ctl stat 'zz*'
has "$out" "no counter matches 'zz\*'"
expect 64 ctl stat --prometheus --names sglang
has "$out" '--names sglang: must be fdd, vllm or both'
expect 64 ctl stat --json --prometheus
expect 64 ctl stat --names vllm
expect 64 ctl stat --prometheus steps
expect 64 ctl stat -i 0
has "$out" '0.01 to 86400'

# --- the exposition format
ctl stat -1 --json >"$dir/json" || fail "stat --json"
for names in fdd vllm both; do
    ctl stat --prometheus --names $names >"$dir/$names.prom" || fail "stat --prometheus --names $names"
done
if command -v promtool >/dev/null; then
    expect 0 promtool check metrics <"$dir/fdd.prom"
    [ -z "$out" ] || fail "promtool says: $out"
    # the other names break only its linter's rule about colons: they still parse
    for names in vllm both; do
        out=$(promtool check metrics <"$dir/$names.prom" 2>&1)
        printf '%s\n' "$out" | grep -vE "metric names should not contain ':'|^vllm:iteration_tokens_total non-counter" |
            grep . && fail "promtool, --names $names: $out"
    done
else
    echo "note: no promtool, its check is left out"
fi
cat >"$dir/check.py" <<'PY'
import json, re, sys
from decimal import Decimal
dir, board = sys.argv[1:]
def load(name):
    meta, val = {}, {}
    for line in open(f'{dir}/{name}.prom'):
        m = re.fullmatch(r'# (HELP|TYPE) ([\w:]+) (.+)\n', line)
        if m:
            if m[1] == 'TYPE':
                assert m[2] not in meta, f'{m[2]} twice'
                meta[m[2]] = m[3]
                last = m[2]
            continue
        m = re.fullmatch(r'([\w:]+)(?:\{(.*)\})? (\S+)\n', line)
        assert m, line
        assert m[1] in (last, last + '_bucket', last + '_sum', last + '_count'), (last, line)
        labels = tuple(sorted(re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', m[2] or '')))
        assert (m[1], labels) not in val, line
        val[m[1], labels] = Decimal(m[3])
    return meta, val
def get(val, name, **labels):
    got = [v for (n, l), v in val.items() if n == name and set(labels.items()) <= set(l)]
    assert len(got) == 1, (name, labels, got)
    return got[0]
def buckets(val, name):
    return [(dict(l)['le'], v) for (n, l), v in val.items() if n == name + '_bucket']
d = json.load(open(f'{dir}/json'))
g, w, h = d['gate'], d['worker'], d['histograms']
fm, fv = load('fdd'); vm, vv = load('vllm'); bm, bv = load('both')
# what a scrape itself changes
moves = {'uptime_ns', 'loops', 'sleeps', 'wakes_fd', 'wakes_futex', 'selfchecks', 'service_rate', 'sessions',
    'sessions_total', 'admin_requests'}
special = {'requests_running', 'preemptions', 'prompt_tokens', 'cached_tokens', 'generation_tokens', 'finished_stop',
    'finished_length', 'cancelled', 'requests_broken', 'numeric_errors'}
n = 0
for group, values in (('gate', g), ('worker', w)):
    for name, v in values.items():
        if group == 'worker' and name in special:
            continue
        base = re.sub('_total$', '', name)
        # counters end in _total, gauges do not; nanoseconds are seconds
        names = [f'fdd_{group}_' + x for b in [re.sub('_count$', '_requests', re.sub('_ns$', '_seconds', base))]
            for x in (b, b + '_total')]
        found = [x for x in names if x in fm]
        if len(found) == 2:
            found = [names[1] if name.endswith('_total') else names[0]]
        assert len(found) == 1, (group, name, found)
        n += 1
        if name not in moves:
            got = get(fv, found[0])
            assert (got * 10**9 if name.endswith('_ns') else got) == v, (name, got, v)
assert n + len(special) == len(g) + len(w)
for val, p in ((fv, 'fdd_'), (vv, 'vllm:'), (bv, 'vllm:'), (bv, 'fdd_')):
    for name, v in (('num_requests_running', 0), ('num_requests_waiting', 0),
            ('generation_tokens_total', w['generation_tokens']),
            ('prompt_tokens_total', w['prompt_tokens'] + w['cached_tokens']),
            ('prompt_tokens_cached_total', w['cached_tokens']),
            ('num_preemptions_total', w['preemptions']), ('corrupted_requests_total', 0),
            ('prefix_cache_queries_total', w['prefix_lookups'] * w['kv_block_tokens']),
            ('prefix_cache_hits_total', w['prefix_hits'] * w['kv_block_tokens'])):
        assert get(val, p + name) == v, (p, name)
    assert abs(float(get(val, p + 'kv_cache_usage_perc')) - w['kv_blocks_used'] / w['kv_blocks_total']) < 1e-9
    for reason, name in (('stop', 'finished_stop'), ('length', 'finished_length'), ('abort', 'cancelled'),
            ('error', 'requests_broken')):
        assert get(val, p + 'request_success_total', finished_reason=reason) == w[name], reason
    assert get(val, p + 'cache_config_info', block_size=str(w['kv_block_tokens']),
        num_gpu_blocks=str(w['kv_blocks_total'])) == 1
assert w['finished_stop'] >= 1 and w['finished_length'] >= 11 and w['cached_tokens'] > 0 and w['prefix_hits'] > 0
# every histogram: cumulative, +Inf is the count, the sum that JSON has
own = {'ttft': 'time_to_first_token_seconds', 'itl': 'inter_token_latency_seconds',
    'tpot': 'request_time_per_output_token_seconds', 'e2e': 'e2e_request_latency_seconds',
    'queue': 'request_queue_time_seconds', 'prefill': 'request_prefill_time_seconds',
    'decode': 'request_decode_time_seconds', 'inference': 'request_inference_time_seconds',
    'prompt_tokens': 'request_prompt_tokens', 'gen_tokens': 'request_generation_tokens',
    'max_gen_tokens': 'request_max_num_generation_tokens', 'params_n': 'request_params_n',
    'params_max_tokens': 'request_params_max_tokens', 'step_tokens': 'iteration_tokens',
    'step_ns': 'step_seconds', 'gap_ns': 'gap_seconds', 'loop_ns': 'loop_seconds', 'loop_wall_ns': 'loop_wall_seconds',
    'ahead_ns': 'ahead_seconds'}
assert set(own) == set(h), set(own) ^ set(h)
for name, x in h.items():
    full = 'fdd_' + own[name]
    assert fm[full] == 'histogram'
    b = buckets(fv, full)
    scale = 10**9 if x['unit'] == 'ns' else 1
    assert [Decimal(le) * scale for le, _ in b[:-1]] == x['bounds'], (name, b)
    if name in ('loop_ns', 'loop_wall_ns'): # a scrape changes them
        assert b[-1][1] >= x['count'] > 0 and x['sum'] > 0, (name, b)
        continue
    assert b[-1][0] == '+Inf' and b[-1][1] == get(fv, full + '_count') == x['count'] == sum(x['counts'])
    assert [v for _, v in b] == [sum(x['counts'][:i + 1]) for i in range(len(b))], name
    assert get(fv, full + '_sum') * scale == x['sum'], name
assert h['ttft']['count'] == 10 and h['params_n']['sum'] == 12, (h['ttft'], h['params_n'])
# vLLM's names and bounds, exactly
ttft = '0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0'
token = '0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0'
req = '0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 1920.0 7680.0'
size = ('1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0 5000.0 10000.0 20000.0 50000.0 100000.0 '
    '200000.0 500000.0 1e+06')
vllm = {'time_to_first_token_seconds': ttft, 'inter_token_latency_seconds': token,
    'time_per_output_token_seconds': token, 'request_time_per_output_token_seconds': token,
    'e2e_request_latency_seconds': req, 'request_queue_time_seconds': req, 'request_inference_time_seconds': req,
    'request_prefill_time_seconds': req, 'request_decode_time_seconds': req, 'request_prompt_tokens': size,
    'request_generation_tokens': size, 'request_max_num_generation_tokens': size, 'request_params_max_tokens': size,
    'request_params_n': '1.0 2.0 5.0 10.0 20.0',
    'iteration_tokens_total': '1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0'}
scalars = {'num_requests_running': 'gauge', 'num_requests_waiting': 'gauge', 'kv_cache_usage_perc': 'gauge',
    'gpu_cache_usage_perc': 'gauge', 'cache_config_info': 'gauge', 'prefix_cache_queries_total': 'counter',
    'prefix_cache_hits_total': 'counter', 'num_preemptions_total': 'counter', 'prompt_tokens_total': 'counter',
    'prompt_tokens_by_source_total': 'counter', 'prompt_tokens_cached_total': 'counter',
    'generation_tokens_total': 'counter', 'request_success_total': 'counter', 'corrupted_requests_total': 'counter'}
want = {'vllm:' + k: v for k, v in scalars.items()} | {'vllm:' + k: 'histogram' for k in vllm}
assert {k: v for k, v in vm.items() if k.startswith('vllm:')} == want
assert {k: v for k, v in bm.items() if k.startswith('vllm:')} == want
assert {k for k in bm if k.startswith('fdd_')} == set(fm) and not any(k.startswith('vllm') for k in fm)
for name, bounds in vllm.items():
    b = buckets(vv, 'vllm:' + name)
    assert [le for le, _ in b] == bounds.split() + ['+Inf'], (name, b)
    assert [v for _, v in b] == sorted(v for _, v in b)
    assert b[-1][1] == get(vv, f'vllm:{name}_count')
for (name, labels), _ in vv.items():
    if name.startswith('vllm:'):
        assert dict(labels)['engine'] == '0' and dict(labels)['model_name'] == d['model'] != '', labels
# processes
for p in ('gate', 'worker'):
    assert get(fv, 'fdd_process_resident_memory_bytes', process=p) > 2**20
    assert get(fv, 'fdd_process_open_fds', process=p) > 3
    assert get(fv, 'fdd_process_threads', process=p) >= 1
    assert get(fv, 'fdd_process_start_time_seconds', process=p) > 10**9
    assert get(fv, 'fdd_process_cpu_seconds_total', process=p) >= 0
assert get(fv, 'fdd_up') == 1
# the dashboard uses only existing metrics
names = {n for n, _ in fv}
board = json.load(open(board))
exprs = [t['expr'] for p in board['panels'] for t in p.get('targets', [])]
exprs += [v['definition'] for v in board['templating']['list'] if v['type'] == 'query']
assert len(exprs) > 60
for e in exprs:
    asked = re.findall(r'\b[a-z][a-z0-9_:]*(?=[{\[]|, *(?:instance|model_name)\))', e)
    assert asked and set(asked) == set(re.findall(r'\b(?:fdd_|vllm:)\w+', e)), e
    assert not (set(asked) - names), (e, set(asked) - names)
    for m in re.finditer(r'(fdd_\w+)\{([^}]*)\}', e):
        has = {k for (n, l) in fv if n == m[1] for k, _ in l} | {'instance', 'job'}
        assert set(re.findall(r'(\w+)=', m[2])) <= has, (e, has)
ids = [p['id'] for p in board['panels']]
assert len(ids) == len(set(ids))
assert {v['name'] for v in board['templating']['list']} == {'datasource', 'instance', 'model'}
rows = [p['title'] for p in board['panels'] if p['type'] == 'row']
assert len(rows) == 8, rows
print('ok', len(fm), 'metrics', len(exprs), 'expressions')
PY
until_true 20 is_idle || fail "the daemon does not stay idle"
out=$(python3 "$dir/check.py" "$dir" "$FDD_SRC/conf/grafana/fdd.json" 2>&1) || fail "check: $(printf '%s\n' "$out" | tail -n 4)"
echo "$out"
if command -v promtool >/dev/null; then # its expressions parse
    python3 - "$FDD_SRC/conf/grafana/fdd.json" >"$dir/rules.yml" <<'PY'
import json, sys
print('groups:\n- name: fdd\n  rules:')
n = 0
for p in json.load(open(sys.argv[1]))['panels']:
    for t in p.get('targets', []):
        n += 1
        print(f'  - record: fdd:panel{n}\n    expr: ' + json.dumps(t['expr'].replace('$__rate_interval', '5m')))
PY
    expect 0 promtool check rules "$dir/rules.yml"
fi

# --- the file for node_exporter, while daemons come and go
mkdir "$dir/text"
chmod 755 "$dir/text"
f=$dir/text/fdd.prom
expect 0 ctl stat --textfile "$f" -1
[ "$(stat -c %a "$f")" = 644 ] || fail "mode $(stat -c %a "$f")"
grep -qx 'fdd_up 1' "$f" || fail "no fdd_up 1 in the file"
rm "$f"
"$FDCTL" --runtime-dir "$run" stat --textfile "$f" -i 0.1 2>"$dir/text.err" &
exporter=$!
until_true 20 grep -qx 'fdd_up 1' "$f" || fail "the file does not come"
"$FDCTL" --runtime-dir "$run" stat -i 0.2 >"$dir/watch" 2>&1 &
watcher=$!
until_true 20 grep -q . "$dir/watch" || fail "stat prints nothing"
gate=$fdd_pid
stop
wait $watcher
rc=$?
[ $rc = 69 ] || fail "stat exits $rc when the daemon ends: $(tail -n 3 "$dir/watch")"
grep -q "the daemon, process $gate, has ended" "$dir/watch" || fail "no message: $(tail -n 3 "$dir/watch")"
until_true 20 grep -qx 'fdd_up 0' "$f" || fail "the file does not say that the daemon is gone"
[ "$(grep -vc '^#' "$f")" = 1 ] || fail "figures of a daemon that is gone: $(head -n 5 "$f")"
expect 69 ctl stat -1
start --set model.path="$DEMO"
until_true 20 grep -qx 'fdd_up 1' "$f" || fail "the file does not follow the new daemon"
# a killed gate does not announce its end
kill -KILL "$fdd_pid"
wait "$fdd_pid" 2>/dev/null
fdd_pid=
until_true 20 grep -qx 'fdd_up 0' "$f" || fail "the file trusts a dead daemon"
expect 69 ctl stat -1
has "$out" 'no daemon with the runtime folder'
start --set model.path="$DEMO"
until_true 20 grep -qx 'fdd_up 1' "$f" || fail "the file does not follow the third daemon"
kill -TERM $exporter
wait $exporter
rc=$?
[ $rc = 0 ] || fail "the exporter exits $rc on SIGTERM: $(cat "$dir/text.err")"
[ ! -s "$dir/text.err" ] || fail "the exporter said: $(cat "$dir/text.err")"
[ "$(ls -A "$dir/text")" = fdd.prom ] || fail "left behind: $(ls -A "$dir/text")"
expect 74 ctl stat --textfile "$dir/none/fdd.prom" -1
has "$out" "$dir/none/fdd.prom: No such file"
expect 74 ctl stat --textfile "$dir/text" -1
has "$out" 'directory'
stop
