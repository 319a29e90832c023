#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Installed into a staging folder, the daemon runs from there, and the
# examples of the README and of fdclient(3) compile, in C and C++, and run.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
make -s -C "$FDD_BUILD" install DESTDIR="$dir/root" >"$dir/install" 2>&1 ||
    fail "make install: $(tail -n 20 "$dir/install")"
prefix=$(sed -n 's/^prefix = //p' "$FDD_BUILD/Makefile")
root=$dir/root$prefix
for f in sbin/fdd sbin/fdd-http libexec/fdd/fdd-worker bin/fdctl lib/libfdclient.so lib/libfdchat.so include/fdd/fdclient.h include/fdd/fdclient.hpp include/fdd/fdchat.h \
    lib/pkgconfig/libfdclient.pc lib/pkgconfig/libfdchat.pc share/man/man8/fdd.8 share/man/man5/fdd.ini.5 share/man/man8/fdd-http.8 share/man/man5/fdd-http.ini.5 \
    lib/sysusers.d/fdd-http.conf share/fdd/fdd-http.ini share/fdd/fdd-http.trusted.ini \
    share/man/man1/fdctl.1 share/man/man3/fdclient.3 share/man/man3/fdchat.3; do
    [ -e "$root/$f" ] || fail "not installed: $f"
done
# neither __FILE__ nor debug information says where it was built; gcov's tree must
src=$(cd "$FDD_SRC" && pwd -P) bld=$(cd "$FDD_BUILD" && pwd -P)
if ! grep -q -- '--coverage' "$FDD_BUILD/Makefile"; then
    grep -rlaE "$src/(daemon|kernels|libclient|tools|tests)/|$bld" "$dir/root" >"$dir/paths"
    [ ! -s "$dir/paths" ] || fail "installed files with the build's path: $(cat "$dir/paths")"
fi
for f in bash-completion/completions/fdctl bash-completion/completions/fdbench \
    bash-completion/completions/fdd zsh/site-functions/_fdd fish/vendor_completions.d/fdctl.fish \
    fish/vendor_completions.d/fdbench.fish fish/vendor_completions.d/fdd.fish; do
    grep -q "$prefix/share/fdd/complete.sh" "$root/share/$f" || fail "not installed: share/$f"
done
[ -e "$root/share/fdd/complete.sh" ] || fail "not installed: complete.sh"
units=lib/systemd/system
for f in fdd.service fdd.socket fdd-http.service fdd-http.socket fdd@.service fdd@.socket fdd-textfile.service; do
    [ -e "$root/$units/$f" ] || fail "not installed: $units/$f"
    grep -q '/usr/sbin/fdd\|/usr/bin/fdctl' "$root/$units/$f" && [ "$prefix" != /usr ] &&
        fail "$f does not name $prefix"
done
grep -q "^ExecStart=$prefix/sbin/fdd --instance %i " "$root/$units/fdd@.service" || fail "fdd@.service starts no instance"
! ls "$root/$units" | grep -q '\.out$' || fail "left over: $(ls "$root/$units")"
flags=$(PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dir/root \
    pkg-config --cflags --libs libfdclient) || fail "pkg-config"
nm -D --defined-only "$root/lib/libfdclient.so" | awk '{print $3}' | grep -v '^fdc_.*@@FDCLIENT_1.0$' |
    grep -v '^FDCLIENT_1.0' >"$dir/syms"
[ ! -s "$dir/syms" ] || fail "symbols without version: $(cat "$dir/syms")"
export LD_LIBRARY_PATH=$root/lib
FDD=$root/sbin/fdd FDCTL=$root/bin/fdctl WORKER=$root/libexec/fdd/fdd-worker
start --set model.path="$DEMO"
export FDD_SOCKET=$run/fdd.sock
sed -n '/^```c$/,/^```$/p' "$FDD_SRC/README.md" | sed '/^```/d' |
    sed "s|fdc_open(NULL|fdc_open(\&(struct fdc_open_opts){ .size = sizeof(struct fdc_open_opts), .path = \"$run/fdd.sock\" }|" >"$dir/readme.c"
# shellcheck disable=SC2086
cc -Wall -Wextra -Werror -o "$dir/readme" "$dir/readme.c" $flags || fail "README example does not compile"
expect 0 "$dir/readme"
[ ${#out} -gt 20 ] || fail "README example printed: $out"
stop
