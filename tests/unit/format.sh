#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# tools/dev/check_format.sh and carry_mutants.sh on a small tree of its own: a
# file not formatted by .clang-format is named, only in the listed folders;
# another version of clang-format checks nothing; a mutant's patch survives a
# commit that formats the code it changes.
set -u
src=${FDD_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
for tool in clang-format-14 git patch; do
    command -v $tool >/dev/null || { echo "no $tool"; exit 77; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"/{tools/dev,tests/mutants,one,two,tbl}
cp "$src/.clang-format" "$dir"
cp "$src"/tools/dev/{check_format,carry_mutants}.sh "$dir/tools/dev"
check=$dir/tools/dev/check_format.sh
unset FDD_SRC CLANG_FORMAT
n=0
expect() { # RC TEXT CMD...
    local want=$1 text=$2 rc; shift 2
    n=$((n + 1))
    "$@" >"$dir/out" 2>&1; rc=$?
    [ $rc = "$want" ] && { [ -z "$text" ] || grep -qF -- "$text" "$dir/out"; } && return
    echo "step $n: status $rc for $want, no '$text' in:"; cat "$dir/out"; exit 1
}
good=$'int\nmain(void)\n{\n    return 0;\n}'
echo "$good" >"$dir/one/good.c"
printf 'int main(void) { int a=1;\n  return a  ; }\n' | tee "$dir/two/bad.c" "$dir/two/left.c" >"$dir/tbl/rows.h"
echo two/left.c >"$dir/tools/dev/format.out"
echo '# none' >"$dir/tools/dev/format.folders"
expect 77 'names no folder yet' "$check"
echo one >>"$dir/tools/dev/format.folders"
expect 0 '' "$check"
echo two >>"$dir/tools/dev/format.folders"
expect 1 two/bad.c "$check"
if grep -q 'good\|left' "$dir/out"; then echo "a file too many is named"; cat "$dir/out"; exit 1; fi
expect 1 two/bad.c "$check" .
printf '#!/bin/sh\necho clang-format version 15.0.7\n' >"$dir/clang-format"
chmod +x "$dir/clang-format"
expect 77 'no clang-format of version 14' env CLANG_FORMAT="$dir/clang-format" PATH="$dir:$PATH" "$check"
# a mutant that does not apply once the file is formatted
cd "$dir" || exit 1
git init -q . && git -c user.name=t -c user.email=t add one two tbl .clang-format tools || exit 1
git -c user.name=t -c user.email=t commit -qm before || exit 1
printf '# Breaks: it.\n\n--- a/two/bad.c\n+++ b/two/bad.c\n@@ -1,2 +1,2 @@\n int main(void) { int a=1;\n-  return a  ; }\n+  return a+1; }\n' >tests/mutants/m.patch
expect 0 '' "$check" --apply
expect 0 '' "$check"
expect 1 '' git apply --check tests/mutants/m.patch
expect 0 '1 patches' tools/dev/carry_mutants.sh HEAD
expect 0 '' git apply tests/mutants/m.patch
expect 0 '' grep -q 'return a + 1;' two/bad.c
expect 0 '' grep -q '^# Breaks: it' tests/mutants/m.patch
