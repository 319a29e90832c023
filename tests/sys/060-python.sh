#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The Python module without a daemon: layouts, constants and functions are those of the C
# header, a different header is detected, a library that is missing or of another version
# is refused with a sentence, and the types are correct.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/python/lib.sh"
have_python

python3 "$FDD_SRC/tests/sys/python/layout.py" "$FDD_SRC/libclient" >"$dir/out" ||
    fail "fdclient.py is not as fdclient.h: $(cat "$dir/out")"
# Each of these must be detected: one more field, one type less, another value,
# one more argument.
drift() { # FILE SED WHAT-IT-SAYS
    rm -rf "$dir/headers"
    cp -R "$FDD_SRC/libclient" "$dir/headers"
    sed -i -E "$2" "$dir/headers/$1"
    ! cmp -s "$FDD_SRC/libclient/$1" "$dir/headers/$1" || fail "$1 has nothing to change: $2"
    ! python3 "$FDD_SRC/tests/sys/python/layout.py" "$dir/headers" >"$dir/out" 2>&1 ||
        fail "not noticed: $1 after $2"
    has "$(cat "$dir/out")" "$3"
}
p=fdclient_params.h t=fdclient_types.h h=fdclient.h
drift $p 's/^    uint32_t max_new;/    uint32_t other; &/' 'offset of fdc_params.max_new: 8 .*, 12 in C'
drift $p 's/^    uint32_t top_k; /    uint64_t top_k; /' 'size of fdc_params.top_k: 4 .*, 8 in C'
drift $p 's/^    uint32_t no_resume;/    uint32_t no_going_on;/' 'no_resume'
drift $t 's/^(    FDC_E_TIMEOUT = )-51/\1-61/' 'FDC_E_TIMEOUT: -51 .*, -61 in C'
drift $t 's/^    FDC_T_SPECIAL = 15/    FDC_T_MORE = 16, &/' 'FDC_T_MORE is in the header'
drift $t 's/^#define FDC_F_ALONE .*/&\n#define FDC_F_MORE (1u << 13)/' 'FDC_F_MORE is in the header'
drift $t 's/^struct fdc_special \{/struct fdc_more {\n int a; };\n&/' 'struct fdc_more is in the header'
drift $h 's/^int fdc_dispatch\(fdc_t \*s\)/int fdc_dispatch(fdc_t *s, int a)/' 'fdc_dispatch\(\) has 2 arg'
drift $h 's/^int fdc_dispatch\(/int fdc_more(int a);\n&/' 'fdc_more\(\) is in the header'

# The version is the project's.
version=$(sed -n 's/^AC_INIT(\[fdd\], \[\([^]]*\)\].*/\1/p' "$FDD_SRC/configure.ac")
[ "$(python3 -c 'import fdclient; print(fdclient.__version__)')" = "$version" ] ||
    fail "fdclient.__version__ is not $version"

refused() { # PATTERN LIBRARY
    out=$(FDD_LIBFDCLIENT=$2 python3 -c 'import fdclient' 2>&1) && fail "imported with $2"
    has "$out" "^ImportError: .*$1"
}
refused 'libfdclient1, or name its file in FDD_LIBFDCLIENT \(now /none\)' /none
# a library with all names, whose version is not one that this module knows
python3 - >"$dir/other.c" <<'EOT'
import fdclient
for name in fdclient._FUNCTIONS:
    if name.startswith("fdc_version"):
        continue
    print(f"int {name}(void) {{ return 0; }}")
print("unsigned fdc_version(void) { return VERSION; }")
print("const char *fdc_version_string(void) { return STRING; }")
EOT
other() { # VERSION STRING
    cc -shared -fPIC -DVERSION="$1" -DSTRING="\"$2\"" -o "$dir/other.so" "$dir/other.c" ||
        fail "cc"
}
other 0x020000 2.0.0
refused 'other.so is libfdclient 2.0.0, and this fdclient needs 1.0 or newer, below 2.0' "$dir/other.so"
other 0x00ff00 0.255.0
refused 'is libfdclient 0.255.0' "$dir/other.so"
other 0x010100 1.1.0
expect 0 env FDD_LIBFDCLIENT="$dir/other.so" python3 -c 'import fdclient'
# without fdc_version() it is older than 1.0
echo 'int fdc_open(void) { return 0; }' >"$dir/old.c"
cc -shared -fPIC -o "$dir/old.so" "$dir/old.c" || fail "cc"
refused 'undefined symbol: fdc_version' "$dir/old.so"

# Older ones do not know typing.Unpack.
version=$(mypy --version 2>/dev/null | sed -nE 's/^mypy ([0-9]+)\.([0-9]+).*/\1 \2/p')
if [ -n "$version" ] && { read -r major minor <<<"$version"; [ "$major" -gt 1 ] || [ "$minor" -ge 8 ]; }; then
    cp "$FDD_SRC/tests/sys/python/typed.py" "$dir/"
    MYPYPATH=$FDD_SRC/python mypy --strict --cache-dir "$dir/mypy" "$FDD_SRC/python/fdclient" \
        "$dir/typed.py" >"$dir/out" 2>&1 || fail "mypy: $(cat "$dir/out")"
    # errors in a program are reported
    cat >"$dir/wrong.py" <<'EOT'
import fdclient
fdclient.Client().generate("x", temprature=1.0)
fdclient.Client().generate("x", max_new="many")
EOT
    MYPYPATH=$FDD_SRC/python mypy --strict --cache-dir "$dir/mypy" "$dir/wrong.py" >"$dir/out" 2>&1
    [ "$(grep -c ': error: ' "$dir/out")" = 2 ] || fail "mypy of wrong.py: $(cat "$dir/out")"
else
    echo "no mypy of version 1.8 or later: types are not checked"
fi
