#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Check that each header compiles without others, public ones as C++ too, and that the
# makefile lists every header that CUDA sources include.
# Usage: check_headers.sh [SRC]
src=${1:-${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}}
bld=${FDD_BUILD:-$src/build}
cd "$src" || exit 1
bad=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for h in $(find daemon libclient kernels tools -name '*.h' ! -path '*/tbl/*'); do
    printf '#include "%s"\n' "$h" >"$tmp/t.c"
    ${CC:-gcc} -std=gnu11 -D_GNU_SOURCE -I"$bld" -I. -Ilibclient -Wall -Wextra -Werror \
        -Wno-unused-function -fsyntax-only "$tmp/t.c" || { echo "$h does not stand alone"; bad=1; }
done
for h in libclient/fdclient.h libclient/fdclient_params.h libclient/fdclient_types.h \
    libclient/fdclient.hpp libclient/fdclient_base.hpp libclient/fdproto.h libclient/fdring.h kernels/fdk.h; do
    [ -e "$h" ] || continue
    printf '#include "%s"\n' "$h" >"$tmp/t.cc"
    ${CXX:-g++} -std=c++17 -I. -Ilibclient -Wall -Wextra -Werror -Wno-unused-function \
        -fsyntax-only "$tmp/t.cc" || { echo "$h is not C++ clean"; bad=1; }
done
for h in kernels/cuda/*.cuh kernels/cuda/*/*.cuh; do
    grep -qF "%D%/${h#kernels/}" kernels/local.mk ||
        { echo "$h: kernels/local.mk names it nowhere, so nothing is made again when it changes"; bad=1; }
done
exit $bad
