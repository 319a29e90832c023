#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G11: any bytes as an HTTP request, as JSON, as a chat template and as an answer: no
# crash, no leak, no slow input, and the same result however the input is split
# (tests/fuzz/replay.c, f_*.c). Here 20,000 mutations of the corpus for each; FDD_LONG:
# 10^8 for each, in slices with different seeds on all processors.
. "$(dirname "$0")/../sys/lib.sh"
runs=$(few 20000 2000) slices=1
[ -z "${FDD_LONG:-}" ] || { runs=100000000 slices=16; }
runs=${FDD_FUZZ_RUNS:-$runs}
seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
echo "seed $seed, $runs mutations of each, $slices slices"
for slice in $(seq "$slices"); do
    for target in answer template json http; do
        echo "$target" $((seed + 2 * slice))
    done
done >"$dir/slices"
export FDD_FUZZ_RUNS=$((runs / slices)) dir FDD_SRC FDD_BUILD
# shellcheck disable=SC2016
xargs -P "$(nproc)" -L 1 sh -c 'SEED=$1 "$FDD_BUILD/tests/fuzz/f_$0" >"$dir/$0-$1" 2>&1 ||
    { echo "f_$0, SEED=$1 FDD_FUZZ_RUNS=$FDD_FUZZ_RUNS:"; tail -n 5 "$dir/$0-$1"; exit 1; }' <"$dir/slices" ||
    fail "see above"
for target in answer template json http; do
    cat "$dir/$target"-* | awk -v name="$target" '
        { for (i = 2; i <= NF; i++) { if ($i ~ /^mutations/) n += $(i - 1); if ($(i - 1) == "slowest") ms = $i > ms ? $i : ms;
                                      if ($i == "bytes") kept = $(i - 1) > kept ? $(i - 1) : kept } }
        END { printf "%s: %d mutations, the slowest %.1f ms, at most %d bytes more in use at the end of a slice\n", name, n, ms, kept; exit n == 0 }' ||
        fail "$target: nothing was run"
done
