#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# tools/dev/check_layers.sh on a small tree of its own: a cycle of calls that no #include
# shows, one that a function pointer closes, and a function pointer that the list lacks
# are refused; without objects that it can read it reports that.
set -u
src=${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
for tool in gcc nm objdump; do
    command -v $tool >/dev/null || { echo "no $tool"; exit 77; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"/{daemon/common,daemon/gate,daemon/worker,libclient,tools/dev,build}
check=$src/tools/dev/check_layers.sh list=$dir/tools/dev/layers.callbacks
file() { printf '%s\n' "${@:2}" >"$dir/$1.c"; }
build() { # FLAG ...
    local f
    rm -rf "${dir:?}/build"
    for f in daemon/common daemon/worker libclient; do mkdir -p "$dir/build/$f"; done
    for f in daemon/worker/up daemon/worker/down daemon/common/sort; do
        gcc -O1 "$@" -c -o "$dir/build/${f%/*}/libx_a-${f##*/}.o" "$dir/$f.c" || exit 1
    done
}
n=0
expect() { # RC TEXT [OPTION]: what the check ends with and says
    local rc
    n=$((n + 1))
    FDD_BUILD=$dir/build "$check" ${3+"$3"} "$dir" >"$dir/out" 2>&1; rc=$?
    if [ $rc = 77 ] && [ "$1" != 77 ] && grep -q 'x86-64 objects only' "$dir/out"; then rc=0; fi
    [ $rc = "$1" ] && { [ -z "$2" ] || grep -qF -- "$2" "$dir/out"; } && return
    echo "step $n: status $rc for $1, no '$2' in:"; cat "$dir/out"; exit 1
}
: >"$list"
file daemon/worker/up 'int low(int); int high(int x); int high(int x) { return low(x) + 1; }'
file daemon/worker/down 'int low(int x); int low(int x) { return 2 * x; }'
file daemon/common/sort 'int sort(int (*f)(int)); int sort(int (*f)(int)) { return f(1) + 1; }'
expect 77 'no objects in'
build
x86=no
objdump -f "$dir/build/daemon/worker/libx_a-up.o" | grep -q elf64-x86-64 && x86=yes
# a call through a pointer that the list does not know
[ $x86 = no ] || expect 1 'daemon/common/sort calls through a pointer'
printf 'daemon/common/sort outside - any\n' >"$list"
expect 0 ''
expect 0 'up                 -> down' --graph
expect 0 '"daemon/worker/up" -> "daemon/worker/down"' --dot
# a call up, declared in place: no #include shows it
file daemon/worker/down 'int high(int); int low(int x); int low(int x) { return x > 9 ? x : high(x); }'
build
expect 1 'daemon/worker/down -> daemon/worker/up: high'
# a pointer to a static function, given to another module: in code, in data
for how in 'return sort(me)' 'static int (*const tab[])(int) = { me, 0 }; return sort(tab[x & 1])'; do
    file daemon/worker/down 'int sort(int (*f)(int)); int low(int x);' \
        '__attribute__((noinline)) static int me(int x) { return x; }' "int low(int x) { $how; }"
    build
    [ $x86 = no ] || expect 1 'takes the address of me()'
    printf 'daemon/common/sort outside - any\noutside daemon/worker/down m* static\n' >"$list"
    expect 0 ''
    # the same call as an arrow: from below to above
    printf 'daemon/common/sort daemon/worker/down me visitor\n' >"$list"
    expect 1 'daemon/common/sort -> daemon/worker/down: *me'
    printf 'daemon/common/sort outside - any\n' >"$list"
done
printf 'daemon/common/sort daemon/worker/down you visitor\n' >"$list"
expect 1 'has no you()'
printf 'daemon/common/sort outside - any\n' >"$list"
# a module that sees the whole gate
file daemon/worker/down 'int low(int x); int low(int x) { return 2 * x; }'
build
expect 0 ''
echo 'struct gate *g;' >"$dir/daemon/gate/part.h"
expect 1 'name struct gate: 1'
rm "$dir/daemon/gate/part.h"
# the tools: what commands share knows none of them, nor does one the other; a folder's
# private header stays there
mkdir -p "$dir"/tools/fdctl/{lib,one,two}
inc() { printf '#include "%s"\n' "$2" >"$dir/$1"; expect 1 "$3"; rm "$dir/$1"; }
inc tools/fdctl/lib/a.c tools/fdctl/commands.h 'includes not allowed in tools/fdctl/lib'
inc tools/fdctl/one/a.c tools/fdctl/two/b.h 'includes not allowed in tools/fdctl/one'
inc tools/fdctl/a.c tools/fdctl/two/b.h 'includes not allowed in tools/fdctl/a.c'
inc tools/fdctl/lib/a.c daemon/common/b_priv.h 'private headers included from elsewhere'
# groups, by symbols that no #include shows
two() { # FILE SOURCE of two objects
    file "$1" "$2"; mkdir -p "$dir/build/${1%/*}"
    gcc -c -o "$dir/build/$1.o" "$dir/$1.c" || exit 1
}
put() { printf '%s\n' "$@" >"$dir/tools/dev/layers.groups"; }
base='daemon: daemon/*/* > none' tools='lib: tools/fdctl/lib/* > none'
two tools/fdctl/lib/a 'int cmd(void); int a(void); int a(void) { return cmd(); }'
two tools/fdctl/b 'int cmd(void); int cmd(void) { return 1; }'
put "$base" "$tools"
expect 1 'tools/fdctl/b is in no group'
put "$base" "$tools" 'COMMAND: tools/fdctl/* > lib'
expect 1 'tools/fdctl/lib/a (lib) needs cmd() of tools/fdctl/b (COMMAND b)'
two tools/fdctl/lib/a 'int a(void); int a(void) { return 1; }'
expect 1 'COMMAND does not need lib'
two tools/fdctl/b 'int a(void); int cmd(void); int cmd(void) { return a(); }'
expect 0 ''
expect 0 'COMMAND    ► lib' --draw
two tools/fdctl/c 'int cmd(void); int see(void); int see(void) { return cmd(); }'
expect 1 '(COMMAND c) needs cmd() of tools/fdctl/b (COMMAND b)'
rm "$dir"/tools/fdctl/c.c "$dir"/build/tools/fdctl/c.o
put "$base" "$tools" 'COMMAND: tools/fdctl/* > lib' 'a: x > b' 'b: y > a'
expect 1 'a cycle through'
put "$base" "$tools" 'COMMAND: tools/fdctl/* > lib'
mkdir "$dir/doc"; printf '<!-- layers -->\nold\n<!-- end of layers -->\n' >"$dir/doc/architecture.md"
expect 1 'is not what --draw prints'
rm -r "$dir/doc" "$dir/tools/dev/layers.groups"
rm -r "$dir/tools/fdctl" "$dir/build/tools"
rm "$dir/build/daemon/worker/libx_a-up.o"
expect 1 'no object of daemon/worker/up.c'
file daemon/worker/down 'int low(int x); int low(int x) { return 2 * x; }'
build -flto -fno-fat-lto-objects
expect 77 'only includes were judged'
file daemon/worker/down '#include "libclient/fdclient.h"'
expect 1 'includes not allowed in daemon/worker'
