#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Regressions of tools/runtests and tools/setup, on a fake build folder: - runtests
# ended without "N passed, 0 failed", exit 1, when nothing failed; - SIGTERM to
# runtests left make and the tests running; - a folder with a blank in its name ended
# in a message of configure's.
. "$(dirname "$0")/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL FDD_CONFIGURE_FLAGS
[ -x "$FDD_SRC/configure" ] || skip "no configure in $FDD_SRC"
runtests=$FDD_SRC/tools/runtests
export FDD_BUILD_DIR=$dir/build
mkdir -p "$FDD_BUILD_DIR/tests"
pretend() {
    printf 'have_cmocka = yes\nall:\ncheck:\n\t@%s\n' "$1" >"$FDD_BUILD_DIR/Makefile"
}

pretend 'echo "PASS: tests/a"; echo "PASS: tests/b.sh"; echo "SKIP: tests/c.sh"'
expect 0 "$runtests"
[ "$(printf '%s\n' "$out" | tail -n 1)" = "2 passed, 0 failed" ] || fail "last line: $out"

pretend 'echo "PASS: tests/a"; echo "FAIL: tests/b.sh"; exit 1'
echo "the reason" >"$FDD_BUILD_DIR/tests/b.log"
expect 1 "$runtests"
has "$out" "the reason"
[ "$(printf '%s\n' "$out" | tail -n 1)" = "1 passed, 1 failed" ] || fail "last line: $out"

pretend 'echo nothing to test; exit 1'
expect 1 "$runtests"
has "$out" "nothing to test"
has "$out" "0 passed, 1 failed"

pretend "sleep 300 & echo \$\$! >$dir/sleeper; wait"
"$runtests" >/dev/null 2>&1 </dev/null &
pid=$!
until_true 10 test -s "$dir/sleeper" || fail "the pretended test does not run"
kill -TERM $pid
wait $pid; rc=$?
[ $rc = 143 ] || fail "runtests exited $rc on SIGTERM"
gone() { ! kill -0 "$(cat "$dir/sleeper")" 2>/dev/null; }
until_true 5 gone || fail "a test goes on behind runtests"

# regression: a clone whose first set-up was interrupted could not be set up again
clone=$dir/clone
mkdir -p "$clone/tools/dev" "$clone/kernels" "$clone/build-aux"
cp "$FDD_SRC/tools/setup" "$clone/tools"
cp "$FDD_SRC/tools/dev/group.sh" "$FDD_SRC/tools/dev/progress.sh" "$clone/tools/dev"
mkdir "$dir/bin"
cat >"$dir/bin/autoreconf" <<'EOT'
#!/bin/sh
echo made >>autoreconfs
printf '#!/bin/sh\necho made >>../configures\nprintf "all:\\n" >Makefile\n[ -e ../die ] && kill -TERM $PPID && sleep 60\n:\n' >configure
chmod +x configure
[ -e die ] && kill -TERM $PPID && sleep 60
: >Makefile.in
EOT
chmod +x "$dir/bin/autoreconf"
: >"$clone/configure.ac"; : >"$clone/kernels/cuda.m4"
set_up() { (unset FDD_BUILD_DIR; PATH=$dir/bin:$PATH exec "$clone/tools/setup"); }
: >"$clone/die"
expect 143 set_up
[ -x "$clone/configure" ] && [ ! -e "$clone/Makefile.in" ] || fail "not interrupted in autoreconf"
: >"$clone/Makefile.in"
expect 143 set_up
[ -e "$clone/build/Makefile" ] || fail "not interrupted in configure"
[ ! -e "$clone/build/tmp" ] || fail "temporary files left"
rm "$clone/die"
touch -d '1 minute ago' "$clone/configure.ac"; rm "$clone/Makefile.in"
expect 0 set_up
[ "$(wc -l <"$clone/autoreconfs") $(wc -l <"$clone/configures")" = "2 2" ] ||
    fail "what was interrupted is not made again"
expect 0 set_up
[ "$(wc -l <"$clone/autoreconfs") $(wc -l <"$clone/configures")" = "2 2" ] ||
    fail "what was made is made again"

FDD_BUILD_DIR="$dir/with blank" expect 78 "$FDD_SRC/tools/setup"
has "$out" "with blank"
has "$out" "git clone"
