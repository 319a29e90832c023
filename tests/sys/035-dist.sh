#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The tarball: it has every file that git tracks, an unpacked tree makes it again byte for
# byte (another folder, time and umask, no git), and both have their commit. Also the
# output of version.sh.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build"
src=$(cd "$FDD_SRC" && pwd -P)
unset SOURCE_DATE_EPOCH MAKEFLAGS MFLAGS MAKELEVEL
export XZ_OPT=-0

# ---- version.sh -----------------------------------------------------------------
if command -v git >/dev/null; then
    mkdir -p "$dir/repo/tools/dev"
    cp "$src/tools/dev/version.sh" "$dir/repo/tools/dev/"
    v() { "$dir/repo/tools/dev/version.sh" "$@"; }
    repo() { git -C "$dir/repo" -c user.name=t -c user.email=t@localhost "$@" >/dev/null; }
    [ -z "$(v)$(v --epoch)" ] || fail "a commit without git: $(v)"
    repo init -q && repo add -A && repo commit -qm one || fail "git"
    id=$(git -C "$dir/repo" rev-parse HEAD) id=${id:0:7}
    [ "$(v)" = "$id" ] || fail "clean: $(v), not $id"
    [ "$(SOURCE_DATE_EPOCH=77 v --epoch)" = 77 ] || fail "SOURCE_DATE_EPOCH"
    [ "$(v --epoch)" = "$(git -C "$dir/repo" log -1 --format=%ct)" ] || fail "$(v --epoch)"
    v --header "$dir/commit.h"
    grep -qxF "#define FDD_COMMIT \"$id\"" "$dir/commit.h" || fail "$(cat "$dir/commit.h")"
    touch -d '2020-01-01' "$dir/commit.h"; v --header "$dir/commit.h"
    [ "$dir/commit.h" -ot "$0" ] || fail "a header that had not changed was written"
    touch "$dir/repo/new"
    [ "$(v)" = "$id" ] || fail "an untracked file: $(v)"
    echo >>"$dir/repo/tools/dev/version.sh"
    [ "$(v)" = "$id-dirty" ] || fail "changed: $(v), not $id-dirty"
    mkdir -p "$dir/repo/sub/tools/dev"; cp "$src/tools/dev/version.sh" "$dir/repo/sub/tools/dev/"
    [ -z "$("$dir/repo/sub/tools/dev/version.sh")" ] || fail "another repository's commit"
    if others; then # sudo make install, and the other way round
        chmod -R a+rX "$dir/repo"
        [ "$(as_other "$dir/repo/tools/dev/version.sh")" = "$id-dirty" ] || fail "as another user"
    fi
    printf 'beef123\n5\n' >"$dir/repo/.tarball"
    [ "$(v) $(v --epoch)" = 'beef123 5' ] || fail "tarball: $(v) $(v --epoch)"
fi

# ---- the build --------------------------------------------------------------
commit=$(sed -n 's/.*"\(.*\)"/\1/p' "$FDD_BUILD/daemon/common/commit.h" 2>/dev/null)
if [ -n "$commit" ]; then
    for p in fdd fdd-worker fdctl fdbench; do
        out=$("${FDD_BIN:-$FDD_BUILD}/$p" --version)
        has "$out" "^$p [0-9.]+ \($commit\)(, protocol [0-9.]+)?$"
    done
    start --set model.path=null --set device.backend=null
    [ "$(ctl status --json | json 'd["commit"]')" = "$commit" ] || fail "status without the commit"
    has "$(ctl status | head -n 1)" "^fdd +[0-9.]+ \($commit\), running"
    ctl status | grep -q 'this fdctl is' && fail "the same version and a warning"
    stop
fi

# ---- the tarball ---------------------------------------------------------------------
[ -e "$src/.git" ] || [ -e "$src/.tarball" ] || { echo "no git and no tarball: no make dist"; exit 0; }
[ -e "$FDD_BUILD/Makefile" ] || { echo "no build tree: no make dist"; exit 0; }
version=$(sed -n 's/^PACKAGE_VERSION = //p' "$FDD_BUILD/Makefile")
dist() { # BUILD RESULT
    make -s -C "$1" dist >"$dir/out" 2>&1 || fail "make dist in $1: $(tail -n 20 "$dir/out")"
    mv "$1/fdd-$version.tar.xz" "$2"
}
dist "$FDD_BUILD" "$dir/one.tar.xz"
tar -tf "$dir/one.tar.xz" | sed -n "s|^fdd-$version/||p" | sort >"$dir/has"
if [ -e "$src/.git" ]; then
    git -c safe.directory="$src" -C "$src" ls-files | while IFS= read -r f; do
        [ ! -e "$src/$f" ] || echo "$f"; done
else
    tail -n +3 "$src/.tarball"
fi | grep -vE '^(\.ci/|\.git)' | sort >"$dir/tracked"
[ "$(wc -l <"$dir/tracked")" -gt 500 ] || fail "only $(wc -l <"$dir/tracked") files"
comm -23 "$dir/tracked" "$dir/has" >"$dir/lacks"
[ ! -s "$dir/lacks" ] || fail "not in the tarball: $(head -n 20 "$dir/lacks")"
grep -E '(^|/)(\.git|\.ci|.*\.o$|.*\.log$)' "$dir/has" && fail "these do not belong into a tarball"

mkdir "$dir/x" && cd "$dir/x" && umask 027 && tar -xf "$dir/one.tar.xz" || fail "tar"
[ "$("fdd-$version/tools/dev/version.sh")" = "$("$src/tools/dev/version.sh")" ] ||
    fail "the tarball's commit: $("fdd-$version/tools/dev/version.sh")"
mkdir build && cd build || exit 1
"../fdd-$version/configure" -q --with-cuda=no >"$dir/out" 2>&1 || fail "$(tail "$dir/out")"
dist "$dir/x/build" "$dir/two.tar.xz"
cmp "$dir/one.tar.xz" "$dir/two.tar.xz" || fail "two tarballs of one tree differ"
