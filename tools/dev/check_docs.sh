#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Check that generated texts are current, manual pages are valid, and every
# command and parameter is documented. Usage: check_docs.sh [SRC]
src=${1:-${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}}
bld=${FDD_BUILD:-$src/build}
cd "$src" || exit 1
bad=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ -x "$bld/fdd" ]; then
    "$bld/fdd" --print-ini >"$tmp/ini" && cmp -s "$tmp/ini" conf/fdd.ini ||
        { echo "conf/fdd.ini is not what fdd --print-ini prints"; bad=1; }
fi
if [ -x "$bld/fdd-http" ]; then
    "$bld/fdd-http" --print-ini >"$tmp/ini" && cmp -s "$tmp/ini" conf/fdd-http.ini ||
        { echo "conf/fdd-http.ini is not what fdd-http --print-ini prints"; bad=1; }
    "$bld/fdd-http" --print-man >"$tmp/man"
    sed -n '/^\.Sh PARAMETERS/,/^\.Sh EXAMPLES/p' http/fdd-http.ini.5 | sed '1d;$d' | cmp -s - "$tmp/man" ||
        { echo "http/fdd-http.ini.5 lacks what fdd-http --print-man prints"; bad=1; }
fi
if [ -x "$bld/fdctl" ]; then
    for c in ls up status stat generate chat tokenize detokenize requests cancel clients config model \
        program drain stop debug set reload ping pause top trace profile doctor memory; do
        "$bld/fdctl" $c --help >/dev/null || { echo "fdctl $c --help fails"; bad=1; }
        grep -qE "^\.(It|Ss|Sh|SS|TP|B|Cm|It Cm|It Ic).*\b$c\b" tools/fdctl.1 ||
            { echo "fdctl.1 does not describe $c"; bad=1; }
    done
fi
if [ -x "$bld/fdbench" ]; then
    for c in serve latency ipc start; do
        "$bld/fdbench" $c --help >/dev/null || { echo "fdbench $c --help fails"; bad=1; }
        grep -qE "^\.(It|Ss|Sh|Cm|It Cm|It Ic).*\b$c\b" tools/fdbench.1 ||
            { echo "fdbench.1 does not describe $c"; bad=1; }
    done
fi
# links, headings and files that the documents name exist
tools/dev/check_links.py || bad=1
# both places have the same installation commands; README's first two build the packages
sed 's/\\e/\\/g' daemon/fdd.8 >"$tmp/fdd.8"
sed -n '/^## Install as a service/,/^## A program/s/^    //p' README.md | sed 1,2d >"$tmp/lines"
[ -s "$tmp/lines" ] || { echo "README.md has no lines below \"Install as a service\""; bad=1; }
while IFS= read -r l; do
    grep -qxF -- "$l" "$tmp/fdd.8" || { echo "fdd.8 lacks this line of README.md: $l"; bad=1; }
done <"$tmp/lines"
if command -v mandoc >/dev/null; then
    for m in daemon/fdd.8 daemon/fdd.ini.5 http/fdd-http.8 http/fdd-http.ini.5 tools/fdctl.1 libclient/fdclient.3 tools/fdbench.1; do
        mandoc -Tlint -Wwarning "$m" || { echo "$m: see above"; bad=1; }
    done
fi
if command -v python3 >/dev/null; then
    tools/dev/check_man.py daemon/fdd.8 daemon/fdd.ini.5 tools/fdctl.1 libclient/fdclient.3 \
        tools/fdbench.1 || bad=1
fi
exit $bad
