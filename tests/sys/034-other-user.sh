#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# A user without rights and the daemon of another: refusals with exit status 77 that name
# the group with the right, and no file that he may not read. Then the same with source
# and build tree below a folder that only root may enter, like a clone in root's home.
. "$(dirname "$0")/lib.sh"
others || skip "needs root and setpriv"
start --set model.path="$DEMO" --set device.backend=cpu --set ipc.admin_group= --set ipc.group= \
    --set daemon.cache_dir="$dir/cache"
chmod 755 "$run"
expect 0 ctl generate -p 'In the' --max-tokens 2
other() { as_other "$O_FDCTL" --runtime-dir "$run" "$@"; }

expect 77 other profile
has "$out" 'user nobody may not use any admin command'
expect 77 other stop
expect 77 other trace
has "$out" "trace of $run: permission denied; the administrators' group"
expect 77 other trace --perfetto "$dir/n.json"

# statistics: refused; a file for others is not made without the right to read
expect 77 other stat -1
has "$out" 'permission denied|may not|group'
mkdir -m 777 "$dir/text"
expect 77 other stat --textfile "$dir/text/other.prom" -1
[ ! -e "$dir/text/other.prom" ] || fail "a file without permission to read"
chmod 755 "$dir/text"
expect 77 as_other "$O_FDCTL" --runtime-dir "$dir/nothing" stat \
    --textfile "$dir/text/other.prom" -1
has "$out" 'other.prom: Permission denied'

# doctor reports what it can
out=$(other doctor --json 2>&1); rc=$?
[ $rc -le 1 ] || fail "doctor: exit $rc for a user without rights: $out"
has "$out" '"ipc.group"'
stop

# another user's daemon, and a model directory that he cannot read
mkdir -m 700 "$dir/secret" "$dir/nrun"
cp "$DEMO/config.json" "$dir/secret/"
chown 65534 "$dir/nrun"
expect 77 timeout $((30 * slow)) env LD_LIBRARY_PATH="$dir/others" setpriv --reuid 65534 \
    --regid 65534 --clear-groups "$O_FDD" --set daemon.runtime_dir="$dir/nrun" \
    --set daemon.worker="$O_WORKER" --set model.path="$dir/secret"
has "$out" "$dir/secret"
has "$out" 'a copy that user nobody may read: sudo cp -rL --no-preserve=mode,ownership '
harmless() { [[ $out != *chmod* && $out != *chown* && $out != *install* ]] || fail "advice that changes a folder: $out"; }
harmless

# runtime folders of other users, and shared ones: none of them may be changed
foreign() { # RC DIR
    expect "$1" timeout $((30 * slow)) env -u XDG_RUNTIME_DIR LD_LIBRARY_PATH="$dir/others" setpriv \
        --reuid 65534 --regid 65534 --clear-groups "$O_FDD" --set daemon.runtime_dir="$2" \
        --set daemon.worker="$O_WORKER" --set model.path=null --set device.backend=null
    harmless
}
foreign 77 "$dir"
has "$out" "$dir belongs to user root, not to user nobody; fix: another folder: --set daemon.runtime_dir=/tmp/fdd-65534"
mkdir -m 1777 "$dir/tmp"
foreign 77 "$dir/tmp"
has "$out" 'another folder.*daemon\.runtime_dir=/tmp/fdd-65534'
foreign 77 "$dir/text/run"
has "$out" 'cannot create runtime folder .*daemon\.runtime_dir=/tmp/fdd-65534'
# another user's daemon runs there: that is the cause
start --set model.path=null --set device.backend=null
chmod 755 "$run"
foreign 73 "$run"
has "$out" "another fdd \\(pid $fdd_pid, user root\\) runs in $run"
stop

if [ -z "${FDD_PRIVATE:-}" ]; then
    mkdir -m 700 "$dir/private"
    ln -s "$(cd "$FDD_SRC" && pwd)" "$dir/private/src"
    ln -s "$(cd "$FDD_BUILD" && pwd)" "$dir/private/build"
    as_other test -e "$dir/private/src" && fail "others can enter $dir/private"
    FDD_PRIVATE=1 FDD_SRC=$dir/private/src FDD_BUILD=$dir/private/build TMPDIR=$(dirname "$dir") \
        "$dir/private/src/tests/sys/034-other-user.sh" || fail "below a folder of root's own"
fi
