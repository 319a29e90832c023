#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Rebases the patches of tests/mutants after a commit that only formats sources: each patch
# is applied to the sources of BASE, the result is formatted, and its difference from the
# sources here becomes the new patch.
# Usage: carry_mutants.sh BASE     BASE: the commit before, such as HEAD~1
# Exit 1: a patch could not be rebased; it stays unchanged.
set -u
export LC_ALL=C
[ $# = 1 ] || { sed -n '4,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 64; }
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
tools/dev/check_format.sh --files . >"$work/formatted"
bad=0 n=0
for p in tests/mutants/*.patch; do
    git apply --check "$p" 2>/dev/null && continue
    rm -rf "$work/a"; mkdir "$work/a"
    files=$(sed -nE 's|^\+\+\+ b/([^[:space:]]+).*|\1|p' "$p")
    for f in $files; do
        mkdir -p "$work/a/$(dirname "$f")"
        git show "$1:$f" >"$work/a/$f" 2>/dev/null || rm -f "$work/a/$f"
    done
    cp .clang-format "$work/a/"
    if ! (cd "$work/a" && patch -sfp1 --no-backup-if-mismatch) <"$p" >/dev/null; then
        echo "$p: does not apply to $1 either"; bad=1; continue
    fi
    sed '/^--- /,$d' "$p" >"$work/new"
    for f in $files; do
        ! grep -qxF "$f" "$work/formatted" ||
            (cd "$work/a" && "${CLANG_FORMAT:-clang-format-14}" -i --style=file "$f") || exit 1
        diff -u --label "a/$f" --label "b/$f" "$f" "$work/a/$f" >>"$work/new"
    done
    if git apply --check "$work/new" 2>/dev/null; then cp "$work/new" "$p"; n=$((n + 1))
    else echo "$p: the new patch does not apply"; bad=1; fi
done
echo "$n patches carried over"
exit $bad
