#!/bin/sh
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The example in fdclient.3 compiles, as C and as C++, without a warning, and links;
# without a daemon it prints an error. With an argument: only writes the example's
# source to that file.
set -eu
src=${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}

extract()
{
    awk '/^\.Sh EXAMPLES/ { on = 1 }
        on && /^\.Bd -literal/ { body = 1; next }
        body && /^\.Ed/ { exit }
        body { gsub(/\\e/, "\\"); gsub(/\\-/, "-"); print }' "$src/libclient/fdclient.3"
}

# The others are pieces of a function: each in one of its own.
pieces()
{
    cat <<'END'
#include <stdio.h>
#include <string.h>
#include <fdclient.h>
extern fdc_t *session;
extern void handle(void *user, const struct fdc_event *event);
extern void stop(void);
END
    awk '/^\.Sh EXAMPLES/ { on = 1 }
        on && /^\.Bd -literal/ && ++n > 1 { body = 1
            printf "extern void f%d(struct fdc_submit *subs, size_t n);\n", n
            printf "void f%d(struct fdc_submit *subs, size_t n)\n{\n", n
            print "struct fdc_event event = FDC_EVENT_INIT; fdc_req_t *req = NULL;"
            print "size_t sent, i; int rc = 0; (void)subs; (void)n; (void)sent; (void)i;"
            print "(void)req; (void)event; (void)rc; {"; next }
        body && /^\.Ed/ { body = 0; print "} }" }
        body { gsub(/\\e/, "\\"); gsub(/\\-/, "-"); print }' "$src/libclient/fdclient.3"
}

if [ $# -gt 0 ]; then
    extract >"$1"
    exit 0
fi
for f in $(grep -oh 'fdc_[a-z_]*(' "$src"/libclient/fdclient.h "$src"/libclient/fdclient_params.h | sort -u); do
    grep -q "^\.Fn ${f%?} " "$src/libclient/fdclient.3" ||
        { echo "fdclient.3 does not have ${f%?}()"; exit 1; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
extract >"$dir/example.c"
[ "$(wc -l <"$dir/example.c")" -gt 30 ] || { echo "no example in fdclient.3"; exit 1; }
warn='-Wall -Wextra -pedantic -Werror'
${CC:-cc} -std=c11 $warn -I"$src/libclient" -c -o "$dir/example.o" "$dir/example.c"
pieces >"$dir/pieces.c"
[ "$(grep -c '^void f' "$dir/pieces.c")" -ge 5 ] || { echo "pieces are missing"; exit 1; }
${CC:-cc} -std=c11 $warn -Wno-missing-field-initializers -I"$src/libclient" -c \
    -o "$dir/pieces.o" "$dir/pieces.c"
# Each status is in the table of what to do.
for e in $(grep -o 'FDC_E_[A-Z_]*' "$src/libclient/fdclient_types.h" | sort -u); do
    grep -q "^\.It Dv $e$" "$src/libclient/fdclient.3" ||
        { echo "fdclient.3 does not say what to do about $e"; exit 1; }
done
# It names only symbols that a program can use.
for e in $(grep -oE '\<(FDC|FDP)_[A-Z][A-Za-z0-9_]*' "$src/libclient/fdclient.3" | sort -u); do
    grep -qE "\<$e" "$src/libclient/fdclient.h" "$src/libclient/fdclient_types.h" \
        "$src/libclient/fdclient_params.h" ||
        { echo "fdclient.3 names $e, which fdclient.h does not"; exit 1; }
done
# The public headers alone, and as C++ too.
for h in fdclient.h fdclient_params.h fdclient_types.h fdproto.h fdring.h; do
    echo "#include <$h>" >"$dir/h.c"
    ${CC:-cc} -std=c11 $warn -I"$src/libclient" -fsyntax-only "$dir/h.c"
done
if command -v "${CXX:-c++}" >/dev/null 2>&1; then
    cp "$dir/example.c" "$dir/example.cc"
    ${CXX:-c++} -std=c++11 $warn -I"$src/libclient" -c -o "$dir/cxx.o" "$dir/example.cc"
    for h in fdclient.h fdclient_params.h fdclient_types.h fdproto.h fdring.h; do
        echo "#include <$h>" >"$dir/h.cc"
        ${CXX:-c++} -std=c++11 $warn -I"$src/libclient" -fsyntax-only "$dir/h.cc"
    done
fi
lib=${FDD_BUILD:+$FDD_BUILD/libclient/.libs}
[ -n "$lib" ] && [ -e "$lib/libfdclient.so" ] || exit 0
# A sanitized library needs a sanitized program: then compiling is enough.
nm -D "$lib/libfdclient.so" | grep -Eq '__(asan|tsan|ubsan)_' && exit 0
${CC:-cc} -o "$dir/example" "$dir/example.o" -L"$lib" -lfdclient -Wl,-rpath,"$lib"
if FDD_SOCKET=$dir/none "$dir/example" x 2>"$dir/err"; then
    echo "the example succeeded without a daemon"
    exit 1
fi
grep -q "cannot connect" "$dir/err" || { cat "$dir/err"; exit 1; }
