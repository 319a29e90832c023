#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdclient.hpp compiles without a warning as C++17, with g++ and, if installed, clang++,
# also in two files of one program, and gives the same results as C with the demo model.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build: a program would need the sanitizer too"
lib=$FDD_BUILD/libclient/.libs
[ -e "$lib/libfdclient.so" ] || skip "no shared library in $FDD_BUILD"
compilers=
for cxx in g++ clang++; do
    command -v $cxx >/dev/null && compilers="$compilers $cxx"
done
[ -n "$compilers" ] || skip "no C++ compiler"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"

start --set model.path="$DEMO" --set device.step_delay_us=40000
ctl generate -p 'In the beginning' --max-tokens 24 --temperature 0 --ignore-eos --json >"$dir/json"
text=$(json 'd["text"]' <"$dir/json") ids=$(json '" ".join(map(str,d["ids"]))' <"$dir/json")
printf '#include <fdclient.hpp>\nint other() { return fdc::check(0); }\n' >"$dir/other.cc"
none() { ctl requests --json | grep -q '"requests":\[\]'; }
for cxx in $compilers; do
    # shellcheck disable=SC2086
    $cxx -std=c++17 -O2 -Wall -Wextra -Wpedantic -Werror -I"$FDD_SRC/libclient" \
        -o "$dir/use" "$FDD_SRC/tests/sys/cplusplus/use.cc" "$dir/other.cc" -L"$lib" -lfdclient \
        -Wl,-rpath,"$lib" >"$dir/out" 2>&1 || fail "$cxx: $(head -n 40 "$dir/out")"
    mkfifo "$dir/wait"
    timeout -k 5 $((120 * slow)) "$dir/use" "$run/fdd.sock" "$text" "$ids" <"$dir/wait" >"$dir/out" 2>&1 &
    pid=$!
    exec 3>"$dir/wait"
    until_true 60 grep -qx ok "$dir/out" || fail "$cxx: $(cat "$dir/out")"
    until_true 2 none || fail "$cxx: a break left $(ctl requests)"
    exec 3>&-
    wait $pid || fail "$cxx: exit $?: $(cat "$dir/out")"
    rm "$dir/wait"
done
stop
