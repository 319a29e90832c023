#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Check that the C sources in the folders of format.folders are formatted by .clang-format.
# Usage: check_format.sh [--apply | --count | --files] [FOLDER ...]
#   --apply   format them
#   --count   print how many lines of each folder would change, and their sum
#   --files   print their names
# FOLDER: replaces the list of format.folders; . is the whole tree. Only version 14 of
# clang-format (Debian 12) is used: others break lines differently.
#
# Left out on purpose: tbl/ and the tables of format.out, whose columns are set by hand;
# .cu and .cuh, as version 14 does not know kernel launches and inline PTX.
# Exit 1: a file differs; 77: no clang-format 14, or no folder yet.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
src=${FDD_SRC:-$(cd "$here/../.." && pwd)}
cd "$src" || exit 1
mode=check
case ${1:-} in
--apply|--count|--files) mode=${1#--}; shift ;;
-h|--help) sed -n '4,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
-*) echo "check_format: unknown option $1 (see --help)" >&2; exit 64 ;;
esac
[ $# -gt 0 ] || mapfile -t folders < <(grep -v '^#' tools/dev/format.folders)
[ $# = 0 ] || folders=("$@")
[ ${#folders[@]} -gt 0 ] || { echo "tools/dev/format.folders names no folder yet"; exit 77; }
files() {
    find "${folders[@]}" -name 'build*' -prune -o -name '.*' ! -name . -prune -o -type f \
        -name '*.[ch]' -print |
        sed 's|^\./||' | grep -vE '(^|/)tbl/' | grep -vFf <(grep -v '^#' tools/dev/format.out) | sort
}
[ "$mode" != files ] || { files; exit; }
for format in "${CLANG_FORMAT:-clang-format-14}" clang-format; do
    command -v "$format" >/dev/null && "$format" --version | grep -q 'version 14\.' && break
    format=
done
[ -n "$format" ] || { echo "no clang-format of version 14"; exit 77; }
case $mode in
apply) files | tr '\n' '\0' | xargs -0 "$format" -i --style=file; exit ;;
count)
    files | while read -r f; do
        printf '%s %d\n' "${f%/*}" "$("$format" --style=file "$f" | diff "$f" - | grep -c '^<')"
    done | awk '{ n[$1] += $2; sum += $2 } END { for (d in n) print n[d], d | "sort -n"; close("sort -n"); print sum, "all" }'
    exit ;;
esac
bad=$(files | tr '\n' '\0' | xargs -0 "$format" --style=file -n 2>&1 | sed -nE 's/^([^:]+):.*/\1/p' | sort -u)
[ -z "$bad" ] || { echo "not as .clang-format says (tools/dev/check_format.sh --apply FOLDER):"; echo "$bad"; exit 1; }
