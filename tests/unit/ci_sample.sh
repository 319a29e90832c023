#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# CI's time is bounded: of the mutants of changed files at most a given number
# runs, the same for the same seed, and those left out are listed. Unknown phases
# and parts are refused. Regression: mutants of changed files were left out by
# chance (grep -q in a pipe).
set -u
src=${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
fail() { echo "FAIL: $*"; exit 1; }
for s in .ci/run tests/check-long; do
    [ -e "$src/$s" ] || continue # a tarball has no .ci
    out=$("$src/$s" no-such-phase 2>&1)
    [ $? = 64 ] || fail "$s no-such-phase: $out"
    "$src/$s" --help | grep -q mutants || fail "$s --help names no phases"
done
# the list of tests that the sanitizers run in CI has a reason for each, and each exists
while read -r name san why; do
    [ -n "$why" ] || fail "tests/san.list: $name: no reason"
    for n in ${name//,/ }; do
        find "$src/tests" \( -path "*/${n%/}" -o -path "*/$n.c" \) | grep -q . || fail "tests/san.list: $n"
    done
    case $san in asan|tsan|both|none) ;; *) fail "tests/san.list: $name: $san" ;; esac
done < <(grep -v '^#' "$src/tests/san.list")
command -v git >/dev/null || { echo "SKIP: no git"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/fdd-test.XXXXXX")
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/tests/mutants" "$dir/tools/dev"
cp "$src/tests/mutants/run" "$dir/tests/mutants/"
cp "$src/tools/dev/progress.sh" "$dir/tools/dev/"
for i in 1 2 3 4 5 6 7 8 9; do
    printf '# Breaks: x\n# Killed-by: tests/t\n--- a/f%d\n+++ b/f%d\n' $i $i >"$dir/tests/mutants/m$i.patch"
    echo >"$dir/f$i"
done
repo() { git -C "$dir" -c user.name=t -c user.email=t@localhost "$@" >/dev/null || fail "git $*"; }
repo init -q; repo add -A; repo commit -qm one
for i in 1 2 3 4 5 6; do echo x >"$dir/f$i"; done
list() { "$dir/tests/mutants/run" --list --changed HEAD "$@"; }
names() { list "$@" | grep '^m' | grep -v '^mutants:' | sort | paste -sd ' '; }
[ "$(names)" = "m1 m2 m3 m4 m5 m6" ] || fail "all: $(list)"
[ "$(names --most 6)" = "m1 m2 m3 m4 m5 m6" ] || fail "6: $(list --most 6)"
a=$(names --most 2 --seed one)
[ "$(wc -w <<<"$a")" = 2 ] && [ "$a" = "$(names --most 2 --seed one)" ] || fail "2: $a"
list --most 2 | grep -q '4 are left to make check-long' || fail "unsaid: $(list --most 2)"
for i in a b c d e f g h; do names --most 2 --seed $i; done | sort -u >"$dir/drawn"
[ "$(wc -l <"$dir/drawn")" -gt 1 ] || fail "every seed draws $a"
[ "$(names --most 2 --others 3 | wc -w)" = 5 ] || fail "others: $(list --most 2 --others 3)"
# Patches left out are still compiled, to find any that is no longer C or does not apply.
for tool in gcc make patch; do
    command -v $tool >/dev/null || { echo "no $tool: what is left out was not compiled"; exit 0; }
done
rm "$dir"/tests/mutants/*.patch
mkdir "$dir/d"
cat >"$dir/configure" <<'EOT'
#!/bin/sh
cat >Makefile <<'EOF'
d/libd_a-two.o: ../src/d/two.c ; $(CC) -Wall -Werror -c -o $@ $<
d/t: ../src/d/t.c d/libd_a-two.o ; $(CC) -o $@ $^
d/t d/libd_a-two.o: | d
d: ; mkdir d
EOF
EOT
chmod +x "$dir/configure"
echo 'int two(void) { return 2; }' >"$dir/d/two.c"
echo 'int two(void); int main(void) { return two() != 2; }' >"$dir/d/t.c"
mutant() { # NAME TEXT
    printf '# Breaks: x\n# Killed-by: d/t\n--- a/d/two.c\n+++ b/d/two.c\n@@ -1 +1 @@\n-%s\n+%s\n' \
        'int two(void) { return 2; }' "$2" >"$dir/tests/mutants/$1.patch"
}
tried() { # what is said with $seed, of which one is drawn
    repo add -A; repo commit -qm tree
    echo '/* */' >>"$dir/d/two.c"
    until [ "$(list --most 1 --seed "$seed" | tail -n 1)" = good ]; do seed=$((seed + 1)); done
    "$dir/tests/mutants/run" -j 1 --changed HEAD --most 1 --seed "$seed" 2>&1
}
seed=0
mutant good 'int two(void) { return 3; }'
mutant fine 'int two(void) { return 4; }'
out=$(tried) || fail "two that are C: $out"
grep -q '^mutants: 1 others were compiled' <<<"$out" && grep -qx '1 killed, 0 not' <<<"$out" || fail "$out"
mutant unused 'int two(void) { int x; return 3; }'
! out=$(tried) || fail "one that does not build passes: $out"
grep -q '^unused  *NOT KILLED, does not build' <<<"$out" || fail "$out"
rm "$dir/tests/mutants/unused.patch"
mutant moved 'int two(void) { return 5; }'
sed -i 's/^-int/-char/' "$dir/tests/mutants/moved.patch"
! out=$(tried) || fail "one that does not apply passes: $out"
grep -q '^moved  *NOT KILLED, does not apply' <<<"$out" || fail "$out"
