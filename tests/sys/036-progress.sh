#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Commands that take minutes show their progress: tools/setup, tools/runtests and
# tests/check-san on a clone with a fake build, as lines and on a terminal; a signal
# leaves no process behind.
. "$(dirname "$0")/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL FDD_CONFIGURE_FLAGS FDD_BUILD_DIR
clone=$dir/clone
mkdir -p "$clone/tools/dev" "$clone/kernels" "$clone/build-aux" "$clone/tests" "$dir/bin"
cp "$FDD_SRC/tools/setup" "$FDD_SRC/tools/runtests" "$clone/tools"
cp "$FDD_SRC/tests/check-san" "$clone/tests"
cp "$FDD_SRC/tools/dev/group.sh" "$FDD_SRC/tools/dev/progress.sh" "$clone/tools/dev"
cat >"$dir/bin/autoreconf" <<'EOT'
#!/bin/sh
cp "$CLONE/fake-configure" configure
: >Makefile.in
EOT
# 40 objects and 10 tests, 0.1 s each; one test fails
cat >"$clone/fake-configure" <<'EOT'
#!/bin/sh
echo "$*" >>flags
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    echo "checking for $i... yes"; sleep 0.1; done
{ printf '.PHONY: all check\nhave_cmocka = yes\nall: '; for i in $(seq 40); do printf '%s.o ' $i; done
  printf '\n\t@:\n%%.o:\n\t@echo "  CC      " $@; sleep 0.1; touch $@\n'
  printf 'count-tests:\n\t@echo 10\n'
  printf 'check: all\n\t@test -n "$$HOLD" && sleep 300; for t in 1 2 3 4 5 6 7 8 9; do echo "PASS: tests/$$t"; sleep 0.2; done; echo "FAIL: tests/10"; sleep 2; exit 1\n'
} >Makefile
EOT
chmod +x "$dir/bin/autoreconf" "$clone/fake-configure"
: >"$clone/configure.ac"; : >"$clone/kernels/cuda.m4"
export CLONE=$clone PATH=$dir/bin:$PATH
# The numbers of "NAME: A of N", one a line; they must grow.
grows() { # FILE NAME N: at least 2 lines
    grep -oE "$2: [0-9]+ of $3" "$1" | sed -E 's/.*: ([0-9]+) of.*/\1/' >"$dir/numbers"
    [ "$(sort -u "$dir/numbers" | wc -l)" -ge 2 ] && sort -nc "$dir/numbers" 2>/dev/null ||
        fail "no progress of $2: $(cat -v "$1")"
}

# ---- as lines
cd / || exit 1
FDD_PROGRESS_S=1 "$clone/tools/setup" 2>"$dir/err" </dev/null || fail "setup: $(cat "$dir/err")"
has "$(cat "$dir/err")" '^setup: configuring: [0-9]+ checks, [0-9]+ s$'
has "$(cat "$dir/err")" '^setup: building 40 objects$'
grows "$dir/err" 'setup: building' '40 objects, [0-9]+ s'
rm "$clone"/build/*.o
FDD_PROGRESS_S=1 "$clone/tools/runtests" >"$dir/out" 2>"$dir/err" </dev/null
grows "$dir/err" 'runtests' '10 tests, [01] failed, [0-9]+ s'
has "$(cat "$dir/err")" 'runtests: 10 of 10 tests, 1 failed'
[ "$(tail -n 1 "$dir/out")" = "9 passed, 1 failed" ] || fail "last line: $(cat "$dir/out")"
# no progress is shown for fast commands
"$clone/tools/setup" 2>"$dir/err" </dev/null || fail "setup again"
[ ! -s "$dir/err" ] || fail "said with nothing to do: $(cat "$dir/err")"
# a tree that is configured is configured again for other flags, and keeps them
FDD_CONFIGURE_FLAGS='--prefix=/x --y' "$clone/tools/setup" 2>"$dir/err" </dev/null || fail "other flags: $(cat "$dir/err")"
has "$(cat "$dir/err")" "^setup: configuring again, now with FDD_CONFIGURE_FLAGS='--prefix=/x --y'$"
has "$(cat "$dir/err")" '^setup: building 40 objects$'
for flags in "FDD_CONFIGURE_FLAGS=--prefix=/x --y" A=; do
    env "$flags" "$clone/tools/setup" 2>"$dir/err" </dev/null || fail "the same flags: $(cat "$dir/err")"
    [ ! -s "$dir/err" ] || fail "said for the same flags: $(cat "$dir/err")"
done
[ "$(tr '\n' ';' <"$clone/build/flags")" = ';--prefix=/x --y;' ] || fail "flags: $(cat "$clone/build/flags")"

printf '#!/bin/sh\n' >"$clone/tools/setup"
FDD_PROGRESS_S=1 "$clone/tests/check-san" asan >"$dir/out" 2>"$dir/err" </dev/null
grows "$dir/err" 'check-san: asan' '10 tests, [01] failed, [0-9]+ s'
# asan and tsan at the same time, each with its own tests
FDD_PROGRESS_S=1 "$clone/tests/check-san" >"$dir/out" 2>"$dir/err" </dev/null
has "$(cat "$dir/err")" 'check-san: asan [0-9]+ of 10 tests, [01] failed; tsan [0-9]+ of 10 tests, [01] failed, [0-9]+ s'
[ "$(tail -n 1 "$dir/out")" = "18 passed, 2 failed" ] || fail "last line: $(cat "$dir/out")"
has "$(cat "$dir/out")" '^asan PASS: tests/1$'
has "$(cat "$dir/out")" '^tsan FAIL: tests/10$'
has "$(cat "$dir/out")" '^tsan: [0-9]+ s, [0-9]+ \+ [0-9]+ s of processor time$'
cp "$FDD_SRC/tools/setup" "$clone/tools"

# ---- on a terminal: one line that changes, and is empty at the end
rm -f "$clone"/build/*.o
TERM=xterm COLUMNS=80 python3 - "$clone/tools/setup" >"$dir/tty" 2>&1 <<'PY' || fail "pty: $(cat "$dir/tty")"
import os, pty, sys
def read(fd):
    return os.read(fd, 4096)
rc = pty.spawn([sys.argv[1]], read)
sys.exit(os.waitstatus_to_exitcode(rc))
PY
grows "$dir/tty" 'setup: building' '40 objects'
[ "$(tr '\r' '\n' <"$dir/tty" | grep -c 'of 40 objects')" -ge 2 ] || fail "$(cat -v "$dir/tty")"
[ "$(grep -c 'of 40 objects' "$dir/tty")" -le 2 ] || fail "more than one line: $(cat -v "$dir/tty")"
[ "$(tr -d '\n' <"$dir/tty" | tail -c 4 | cat -v)" = '^M^[[K' ] ||
    fail "the line stays: $(cat -v "$dir/tty")"

# ---- a signal also ends the counting process
HOLD=1 FDD_PROGRESS_S=1 "$clone/tools/runtests" >/dev/null 2>"$dir/err" </dev/null & p=$!
until_true 20 grep -q runtests "$dir/err" || fail "no progress"
kill -TERM $p; wait $p
alone() { ! pgrep -f "$clone/tools/runtests"; }
until_true 5 alone || fail "left behind: $(pgrep -af "$clone/tools/runtests")"

# ---- the shell that counts along leaves the work of EXIT to the script
cat >"$dir/script" <<'EOT'
. "$1"; to=$2
trap 'echo "$BASHPID" >>"$to"' EXIT
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do watch x true; watched; done
EOT
bash "$dir/script" "$FDD_SRC/tools/dev/progress.sh" "$dir/ended" 2>/dev/null
[ "$(wc -l <"$dir/ended")" = 1 ] || fail "the trap for EXIT ran $(wc -l <"$dir/ended") times"
