#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Daemon, worker and a request under the restrictions of fdd.service, without systemd;
# first a check that these work. tests/gpu/run does the same with a GPU.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
export FDD_SRC FDD_BUILD
under=$FDD_SRC/tests/gpu/restricted
"$under" true 2>"$dir/under"
rc=$?
[ $rc != 77 ] || skip "$(tail -n 1 "$dir/under")"
[ $rc = 0 ] || fail "restricted true: exit $rc: $(cat "$dir/under")"
# a call that the filter lacks ends the program by SIGSYS
for call in 'os.chroot("/")' 'os.setuid(os.getuid())' 'ctypes.CDLL(None).mount(0, 0, 0, 0, 0)' \
    'ctypes.CDLL(None).swapoff(0)'; do
    "$under" python3 -c "import ctypes, os; $call" >/dev/null 2>&1
    rc=$?
    [ $rc = 159 ] || fail "$call under the filter: exit $rc, not SIGSYS"
done
"$under" python3 - >"$dir/held" 2>&1 <<'PY' || fail "restrictions: $(cat "$dir/held")"
import ctypes, errno, mmap, os, socket
def refused(want, call, *args, **kw):
    try:
        call(*args, **kw)
    except OSError as e:
        assert e.errno == want, e
    else:
        raise AssertionError("%s %s was not refused" % (call, args))
refused(errno.EPERM, mmap.mmap, -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
refused(errno.EAFNOSUPPORT, socket.socket, socket.AF_INET, socket.SOCK_STREAM)
socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()
lib = ctypes.CDLL(None, use_errno=True)
assert lib.unshare(0x10000000) == -1 and ctypes.get_errno() == errno.EPERM
os.chown(".", -1, -1)
assert lib.prctl(39, 0, 0, 0, 0) == 1 # PR_GET_NO_NEW_PRIVS
PY
export FDD_UNDER=$under
start --set model.path="$DEMO"
grep -q '^Seccomp:.2' "/proc/$(ctl status --json | json 'd["worker"]["pid"]')/status" ||
    fail "the worker runs without the filter"
expect 0 ctl generate -p 'In the beginning' --max-tokens 32
expect 0 ctl reload
stop
! grep -q 'SIGSYS\|Bad system call\|signal 31' "$dir/log" || fail "a call was refused"
