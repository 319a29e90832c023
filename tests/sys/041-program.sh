#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# README's "A program", with source and commands as printed there. Regression:
# without an installation it did not compile, and it looked for the daemon in
# other places than fdctl.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build: a program would need the sanitizer too"
[ -e "$FDD_BUILD/libclient/.libs/libfdclient.so" ] || skip "no shared library in $FDD_BUILD"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
command -v pkg-config >/dev/null || skip "no pkg-config"
unset FDD_SOCKET FDD_RUNTIME_DIR FDD_INSTANCE RUNTIME_DIRECTORY LD_LIBRARY_PATH

section() { sed -n "/^## $1\$/,/^## /p" "$FDD_SRC/README.md"; }
mkdir "$dir/clone" "$dir/tmp"
ln -s "$FDD_BUILD" "$dir/clone/build"
ln -s "$FDD_SRC/conf" "$dir/clone/conf"
section "A program" | sed -n '/^```c$/,/^```$/p' | sed '/^```/d' >"$dir/clone/hello.c"
[ "$(wc -l <"$dir/clone/hello.c")" -gt 20 ] || fail "no program in README.md"
section "A program" | awk '/^```/ { c = !c; next } !c && /^    / { print substr($0, 5) }' >"$dir/commands"
grep -q '^cc hello.c ' "$dir/commands" && grep -q '/a.out' "$dir/commands" ||
    fail "README.md's commands: $(cat "$dir/commands")"
# what fails ends it; a daemon that is left is ended
cat >"$dir/script" <<EOT
set -eu
trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT
cd "$dir/clone"
export TMPDIR="$dir/tmp"
$(cat "$dir/commands")
wait
EOT
timeout -k 5 $((120 * slow)) bash "$dir/script" >"$dir/out" 2>"$dir/log" || fail "exit $?: $(cat "$dir/out")"
# the program's text between fdctl's lines: it is sampled, and may be short
sed '/^gate: /d; s/pid [0-9]* is stopping.*//' "$dir/out" | grep -q '[a-z]' || fail "it printed: $(cat "$dir/out")"
grep -q 'is stopping' "$dir/out" || fail "no daemon stopped: $(cat "$dir/out")"

# the flags name this build, for pkg-config alone
libs=$(PKG_CONFIG_PATH=$FDD_BUILD pkg-config --libs libfdclient) || fail "no .pc file"
has "$libs" "rpath,$FDD_BUILD/libclient/.libs"

# the program finds the daemon that fdctl finds, wherever both are told to look;
# where there is none, both say so
cd "$dir/clone" || exit 1
find_both() { # WHAT [NAME=VALUE]...
    local what=$1 c=0 p=0; shift
    env "$@" build/fdctl --wait $((30 * slow)) ping >"$dir/out" 2>&1 || c=1
    env "$@" ./a.out >"$dir/out2" 2>&1 || p=1
    [ $c = 0 ] && [ $p = 0 ] || fail "$what: fdctl $c ($(cat "$dir/out")), program $p ($(cat "$dir/out2"))"
}
find_none() {
    local what=$1; shift
    ! env "$@" build/fdctl ping >"$dir/out" 2>&1 || fail "$what: fdctl finds one"
    ! env "$@" ./a.out >"$dir/out2" 2>&1 || fail "$what: the program finds one"
}
run=$dir/xdg/fdd
mkdir -m 700 "$dir/xdg"
launch --set model.path="$DEMO"
find_both "XDG_RUNTIME_DIR" XDG_RUNTIME_DIR="$dir/xdg"
find_both "FDD_SOCKET" FDD_SOCKET="$run/fdd.sock"
find_both "FDD_RUNTIME_DIR" FDD_RUNTIME_DIR="$run"
find_none "another FDD_RUNTIME_DIR goes first" FDD_RUNTIME_DIR="$dir/none" XDG_RUNTIME_DIR="$dir/xdg"
find_none "FDD_SOCKET goes first" FDD_SOCKET="$dir/none.sock" FDD_RUNTIME_DIR="$run"
find_none "another instance" FDD_INSTANCE=other FDD_RUNTIME_DIR="$run"
stop
