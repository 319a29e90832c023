#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# tests/bench/gpu-multi on virtual devices with small shapes: every benchmark runs, the
# JSON has every sample and the values that a later run is compared with, and a table is
# made from it, compared with an earlier one.
. "$(dirname "$0")/lib.sh"
[ "${FDD_TEST_DEVICE:-}" != 1 ] || skip "the model is on one device"
[ -x "$FDD_BUILD/tests/bench/b_collective" ] || skip "tests/bench/b_collective is not built"
[ -x "$FDD_BUILD/fdbench" ] || skip "fdbench is not built"
multi() { "$FDD_SRC/tests/bench/gpu-multi" "$@"; }
export FDD_BUILD
expect 0 multi --device cpu --ranks 2 --quick --turns 1 --shape "$DEMO" --wait $((60 * slow)) --json "$dir/a.json" \
    collectives decode large prefill context longest owners groups killed planning
has "$out" '^ +8192 bytes, default +us '
has "$out" '^ +decode, 4 rows +us '
has "$out" '^ +70B shape, decode, 1 row +us '
has "$out" '^ +prefill, 64 tokens +us '
has "$out" '^ +prefill, 200 tokens +us '
has "$out" '^ +prefill, 600 tokens +us '
has "$out" '^ +decode, 4 rows of 64 tokens +us '
has "$out" '^ +8 requests at a time, 16 in, 8 out +tokens/s '
has "$out" '^ +until the group is ready again +s '
has "$out" '^ +4 rows, fdd-engine +us of CPU a step '
python3 - "$dir/a.json" <<'PY' || fail "the JSON is not as it should be: $(head -c 2000 "$dir/a.json")"
import json, sys
r = json.load(open(sys.argv[1]))
assert r["version"] == 1 and r["ranks"] == 2 and r["commit"] and r["date"] and r["command"]
assert len(r["devices"]) == 2 and r["count"] >= 2
assert list(r["measured"]) == ["collectives", "decode", "large", "prefill", "context", "longest",
                               "owners", "groups", "killed", "planning"]
for name, what in r["measured"].items():
    assert what["rows"] and what["seconds"] > 0, name
    for row in what["rows"]:
        n = 9 if name == "collectives" else 1
        assert len(row["samples"]) == n, (name, row)
        assert all(s >= 0 for s in row["samples"]) and max(row["samples"]) > 0 or \
            row["name"].endswith(("fdd-launch", "failed")), (name, row)
        if name in ("decode", "prefill", "context", "longest", "owners", "groups"):
            assert len(row["other"]) == 1 and min(row["other"]) > 0, row
        if name in ("collectives", "decode", "prefill", "context", "longest", "owners", "large"):
            assert row["bound"] > 0, row
        if name in ("decode", "prefill", "context", "longest", "owners", "large"):
            assert min(row["collectives_us"]) > 0, row
assert r["measured"]["collectives"]["peaks"]["copy_gb_per_s"] > 0
assert r["measured"]["decode"]["peaks"]["read_bytes_per_s"] > 0
assert r["measured"]["owners"]["peaks"]["kv_capacity"] == 2
PY
# Twice as long before: half as long now.
python3 - "$dir/a.json" "$dir/b.json" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
for what in r["measured"].values():
    for row in what["rows"]:
        row["samples"] = [2 * s for s in row["samples"]]
json.dump(r, open(sys.argv[2], "w"))
PY
expect 0 multi --table "$dir/a.json" --against "$dir/b.json"
has "$out" '^ +decode, 4 rows .* 0\.500$'
has "$out" 'before, ratio$'
expect 2 multi --device cpu --quick nothing
has "$out" 'there is no nothing; they are collectives decode large prefill context longest owners groups mixed killed planning'
expect 2 multi --device cpu --ranks 9
has "$out" -- '--ranks 9 is not 2 to 8'
echo '{}' >"$dir/c.json"
expect 65 multi --table "$dir/c.json"
has "$out" 'c.json is no report of gpu-multi: it has nothing measured'
# A daemon that does not start is reported, and the other benchmarks run.
expect 1 multi --device cpu --ranks 2 --quick --turns 1 --shape "$dir" --wait 20 decode
has "$out" '^decode: not run: the daemon did not start'
exit 0
