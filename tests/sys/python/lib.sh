# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of the Python module, behind sys/lib.sh.
#   have_python     the module of this tree and the library of this build, or skip
#   py NAME         tests/sys/python/NAME.py, with the daemon of start
have_python() {
    [ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build: python3 cannot load the library"
    command -v python3 >/dev/null || skip "no python3"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "python3 is older than 3.9"
    export FDD_LIBFDCLIENT=$FDD_BUILD/libclient/.libs/libfdclient.so.1
    [ -e "$FDD_LIBFDCLIENT" ] || skip "no shared library in $FDD_BUILD"
    export PYTHONPATH=$FDD_SRC/python PYTHONDONTWRITEBYTECODE=1 FDD_SRC FDD FDCTL WORKER
    unset FDD_INSTANCE
}
py() {
    FDD_SOCKET=$run/fdd.sock FDD_RUN=$run FDD_DIR=$dir FDD_PID=$fdd_pid \
        timeout -k 5 $((300 * slow)) python3 -X dev -W error "$FDD_SRC/tests/sys/python/$1.py" \
        >"$dir/out" 2>&1 || fail "$1.py: exit $?: $(cat "$dir/out")"
    cat "$dir/out"
}
