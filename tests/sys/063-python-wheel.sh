#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# `pip install ./python` makes a wheel of this version with its types, which works where
# it is installed; offline, with the installed setuptools.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/python/lib.sh"
have_python
unset PYTHONPATH
# Finds a python with pip and the tools for wheels; Debian: python3-pip.
python=
for p in python3 /usr/bin/python3; do
    "$p" -W ignore - 2>/dev/null <<'EOT' && python=$p && break
import setuptools, pip
if tuple(map(int, setuptools.__version__.split(".")[:2])) < (70, 1):
    import wheel
assert tuple(map(int, setuptools.__version__.split(".")[:1])) >= (61,)
EOT
done
[ -n "$python" ] || skip "no python3 with pip, setuptools of 61 or newer, and wheel"

cp -R "$FDD_SRC/python" "$dir/source" || fail "cp"
chmod -R u+w "$dir/source"
version=$(sed -n 's/^AC_INIT(\[fdd\], \[\([^]]*\)\].*/\1/p' "$FDD_SRC/configure.ac")
pip() { "$python" -m pip --disable-pip-version-check --isolated "$@" >"$dir/out" 2>&1; }
# The library is not there while the wheel is made.
FDD_LIBFDCLIENT=/nonexistent pip wheel --no-deps --no-index --no-build-isolation -w "$dir/wheels" \
    "$dir/source" || fail "pip wheel: $(tail -n 30 "$dir/out")"
wheel=$dir/wheels/fdclient-$version-py3-none-any.whl
[ -e "$wheel" ] || fail "it made $(ls "$dir/wheels")"
"$python" -m zipfile -l "$wheel" | sed -n '2,$s/ .*//p' | sort >"$dir/files"
for f in fdclient/__init__.py fdclient/py.typed "fdclient-$version.dist-info/METADATA"; do
    grep -qx "$f" "$dir/files" || fail "the wheel has no $f: $(cat "$dir/files")"
done
[ "$(grep -cv dist-info "$dir/files")" = 2 ] || fail "more in the wheel: $(cat "$dir/files")"
pip install --no-deps --no-index --target "$dir/site" "$wheel" || fail "pip install: $(cat "$dir/out")"
grep -qx 'Requires-Python: >=3.9' "$dir/site"/fdclient-*/METADATA || fail "no Requires-Python"
grep -q '^Requires-Dist' "$dir/site"/fdclient-*/METADATA && fail "it depends on something"
cd "$dir" || exit 1
export PYTHONPATH=$dir/site
expect 0 "$python" -c 'import fdclient, importlib.metadata as m
print(fdclient.__file__, fdclient.__version__ == m.version("fdclient"))'
has "$out" "^$dir/site/fdclient/__init__.py True\$"
[ -e "$DEMO/model.safetensors" ] || exit 0
start --set model.path="$DEMO"
expect 0 env FDD_SOCKET="$run/fdd.sock" "$python" -c 'import fdclient
print(fdclient.Client().generate("In the beginning", max_new=8, temperature=0).text)'
[ "$out" = "$(ctl generate -p 'In the beginning' --max-tokens 8 --temperature 0)" ] ||
    fail "it printed: $out"
stop
