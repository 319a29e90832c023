#!/bin/sh
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdchat.3 has each function of fdchat.h; its example compiles, as C and as C++,
# without a warning, links and prints what it says. The library gives the symbols
# of the header and no others.
set -eu
src=${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
lib=${FDD_BUILD:-$src/build}/chat/.libs

functions=$(grep -o 'fdchat_[a-z_]*(' "$src/chat/fdchat.h" | tr -d '(' | sort -u)
for f in $functions; do
    grep -q "^\.Fn $f " "$src/chat/fdchat.3" || { echo "fdchat.3 does not have $f()"; exit 1; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
awk '/^\.Sh EXAMPLES/ { on = 1 }
    on && /^\.Bd -literal/ { body = 1; next }
    body && /^\.Ed/ { exit }
    body { gsub(/\\e/, "\\"); gsub(/\\-/, "-"); print }' "$src/chat/fdchat.3" >"$dir/example.c"
[ "$(wc -l <"$dir/example.c")" -gt 30 ] || { echo "no example in fdchat.3"; exit 1; }
warn='-Wall -Wextra -pedantic -Werror'
${CC:-cc} -std=c11 $warn -I"$src/chat" -c -o "$dir/example.o" "$dir/example.c"
if command -v "${CXX:-c++}" >/dev/null 2>&1; then
    cp "$dir/example.c" "$dir/example.cc"
    ${CXX:-c++} -std=c++11 $warn -I"$src/chat" -c -o "$dir/cxx.o" "$dir/example.cc"
fi
[ -e "$lib/libfdchat.so" ] || { echo "no shared libfdchat here: the example is not run"; exit 77; }
given=$(nm -D --defined-only "$lib/libfdchat.so" | sed -n 's/.* T \(.*\)@@FDCHAT_1\.0$/\1/p' | sort)
[ "$given" = "$functions" ] || { echo "libfdchat.so gives: $given"; exit 1; }
[ "$(nm -D --defined-only "$lib/libfdchat.so" | grep -c ' [A-Z] ')" -eq \
    $(($(echo "$functions" | wc -l) + 1)) ] || { echo "libfdchat.so gives more than its functions"; exit 1; }
objdump -p "$lib/libfdchat.so" | grep -q 'SONAME *libfdchat\.so\.0$' || { echo "not libfdchat.so.0"; exit 1; }
if nm -D --undefined-only "$lib/libfdchat.so" | grep -q __asan; then
    echo "a library with sanitizers: the example is not run"; exit 77
fi
${CC:-cc} -o "$dir/example" "$dir/example.o" -L"$lib" -lfdchat
LD_LIBRARY_PATH=$lib "$dir/example" >"$dir/out"
printf '%s\n' '<|user|>Is it wet?' '<|assistant|>' 'I look.' 'rain: {"city": "Oslo"}' >"$dir/want"
diff "$dir/want" "$dir/out"
