#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The symbol lists of the Debian packages against those of the linker. Then libfdclient.so
# against libclient/libfdclient.abi, the ABI that was promised: symbols and their versions,
# functions, public structs. 77 without abidiff (Debian's abigail-tools).
#   abi.sh --write   writes the file: after a compatible addition, with a new version node
#                    for new symbols. What abidiff calls incompatible needs libfdclient.so.2.
set -u
: "${FDD_SRC:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${FDD_BUILD:=$FDD_SRC/build}"
so=$FDD_BUILD/libclient/.libs/libfdclient.so abi=$FDD_SRC/libclient/libfdclient.abi
skip() { echo "SKIP: $*"; exit 77; }
want=$(sed -n 's/^#define FDC_VERSION_STRING "\(.*\)"/\1/p' "$FDD_SRC/libclient/fdclient.h")
grep -qF "AC_SUBST([FDC_VERSION], [$want])" "$FDD_SRC/configure.ac" ||
    { echo "FAIL: pkg-config has another version than fdclient.h: $want"; exit 1; }
for lib in libclient/libfdclient.map:libfdclient1 chat/fdchat.map:libfdchat0; do
    map=${lib%:*} deb=debian/${lib#*:}.symbols
    diff <(awk '/\{$/ { node = $1; print node "@" node }
                /^ +[a-z_0-9]+;$/ { sub(/;/, "", $1); print $1 "@" node }' "$FDD_SRC/$map" | sort) \
        <(awk '/@/ { print $1 }' "$FDD_SRC/$deb" | sort) ||
        { echo "FAIL: $map (<) and $deb (>) list other symbols"; exit 1; }
done
command -v abidiff >/dev/null && command -v abidw >/dev/null || skip "no abidiff (abigail-tools)"
[ "$(uname -m)" = x86_64 ] || skip "the file is of x86-64"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A build without a shared library, without debug information, or sanitized: one like it.
if [ ! -e "$so" ] || ! readelf -S "$so" | grep -q debug_info ||
    nm -D "$so" | grep -Eq '__(asan|tsan|ubsan|sanitizer)_'; then
    so=$dir/libfdclient.so
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -g -O1 -fPIC -shared -pthread -I"$FDD_BUILD" -I"$FDD_SRC" \
        -I"$FDD_SRC/libclient" -Wl,-soname,libfdclient.so.1 \
        -Wl,--version-script="$FDD_SRC/libclient/libfdclient.map" -o "$so" \
        "$FDD_SRC"/libclient/*.c || { echo "FAIL: no library"; exit 1; }
fi
# A header is known by its name: what others define is private.
mkdir "$dir/public"
cp "$FDD_SRC"/libclient/fdclient*.h "$dir/public/"
dump() {
    abidw --headers-dir "$dir/public" --drop-private-types --exported-interfaces-only \
        --no-show-locs --no-corpus-path --no-comp-dir-path --type-id-style hash "$so"
}
dump >"$dir/now.abi" || { echo "FAIL: abidw $so"; exit 1; }
for s in fdc_open fdc_submit_many fdc_info fdc_event_text; do
    grep -q "name='$s'" "$dir/now.abi" || { echo "FAIL: the dump lacks $s"; exit 1; }
done
if [ "${1-}" = --write ]; then cp "$dir/now.abi" "$abi"; exit; fi
# Both of abidiff's sides are dumps, so that the same types are left out of both.
if abidiff --leaf-changes-only "$abi" "$dir/now.abi" >"$dir/diff"; then exit 0; fi
cat "$dir/diff"
echo "FAIL: the ABI is not that of libclient/libfdclient.abi (tests/unit/abi.sh --write)"
exit 1
