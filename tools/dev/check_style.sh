#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Check the style of the sources. Errors: // comments, tabs, stray marks, a
# source file without its SPDX lines.
# Sizes are only reported. Usage: check_style.sh [SRC]
cd "${1:-${FDD_SRC:-$(dirname "$0")/../..}}" || exit 1
bad=0
files=$(find chat daemon examples libclient kernels tools tests -name '*.[ch]' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh')
report() { if [ -n "$2" ]; then echo "$1"; echo "$2"; bad=1; fi; }
# shellcheck disable=SC2086
{
report "// comments:" "$(grep -nE '(^|[^:"])//( |$)' $files | grep -vE '"[^"]*//[^"]*"' | head)"
report "tabs:" "$(grep -nP '\t' $files | head)"
report "trailing blanks:" "$(grep -nE ' +$' $files | head)"
}
report "no SPDX lines:" "$(find chat daemon examples libclient kernels python tools tests -name '*.patch' -prune -o \
    \( -name '*.[ch]' -o -name '*.hpp' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.py' -o -name '*.mk' \) \
    -type f -exec grep -L 'SPDX-License-Identifier: Apache-2.0' {} +)"
for f in $files; do
    n=$(wc -l <"$f")
    case $f in
    *.h) [ "$n" -le 250 ] || echo "note: $f has $n lines" ;;
    *) [ "$n" -le 800 ] || echo "note: $f has $n lines" ;;
    esac
done
dup=$(grep -rhoE '#define [A-Z0-9_]+_MAGIC +0x[0-9a-fA-F]+' daemon libclient kernels |
    awk '{print tolower($3)}' | sort | uniq -d)
report "magic numbers used twice:" "$dup"
# Outside kernels/ no code holds a fixed device number (run_dev.idx has the only one), or asks which
# backend it uses: what a backend can do is in its table of operations.
report "a device's number, or a backend by its table, above kernels/:" \
    "$(grep -rnE '\bctx, *[0-9]|(->|\.)dev\[[0-9]+\]|\.(dev|device|idx) = [0-9]|[!=]= *&fdk_ops_' daemon --include='*.[ch]')"
exit $bad
