# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Sourced after tests/sys/lib.sh by tests that boot a tree of tests/boot/tree.
#   boot_make [PACKAGE ...]   a tree in $tree, or SKIP with the reason; of release
#                             $boot_suite if that is set
#   boot_install              this build, by make install, into $tree
#   boot_up                   boot it under systemd-nspawn, or SKIP
#   inside CMD ...            run there as root
#   boot_down                 halt it (also done at the end, whatever happens)
# With FDD_BOOT_HERE the test machine itself is the tree, installed and booted
# (tests/boot/vm): $tree is empty, and every function except inside does nothing.
tree=$dir/tree
[ -z "${FDD_BOOT_HERE:-}" ] || tree=
boot_pid='' boot_leader=''
boot_prefix=

boot_end() {
    local rc=$?
    boot_down
    (exit $rc)
    cleanup
}
boot_make() {
    if [ -n "${FDD_BOOT_HERE:-}" ]; then
        trap boot_end EXIT
        return
    fi
    [ "$(id -u)" = 0 ] || skip "systemd-nspawn needs root"
    command -v systemd-nspawn >/dev/null ||
        skip "no systemd-nspawn; tools/setup --with-tests installs systemd-container"
    "$FDD_SRC/tests/boot/tree" ${boot_suite:+--suite "$boot_suite"} "$tree" "$@" 2>"$dir/tree.out"
    case $? in
    0) ;;
    77) skip "$(tail -n 1 "$dir/tree.out")" ;;
    *) fail "tests/boot/tree: $(cat "$dir/tree.out")" ;;
    esac
    trap boot_end EXIT
}
# Uses the prefix of the build, so that the paths in its programs are right. systemd looks
# for services below /usr and /usr/local; those below another prefix are linked there.
boot_install() {
    local d u
    boot_prefix=$(sed -n 's/^prefix = //p' "$FDD_BUILD/Makefile")
    [ -z "${FDD_BOOT_HERE:-}" ] || return 0
    make -s -C "$FDD_BUILD" install DESTDIR="$tree" >"$dir/install" 2>&1 ||
        fail "make install: $(tail -n 20 "$dir/install")"
    echo "$boot_prefix/lib" >"$tree/etc/ld.so.conf.d/fdd.conf"
    chroot "$tree" ldconfig
    case $boot_prefix in
    /usr|/usr/local) return ;;
    esac
    for d in sysusers.d tmpfiles.d; do
        mkdir -p "$tree/etc/$d"
        cp "$tree$boot_prefix/lib/$d"/*.conf "$tree/etc/$d"
    done
    for u in "$tree$boot_prefix"/lib/systemd/system/*; do
        ln -s "$boot_prefix/lib/systemd/system/${u##*/}" "$tree/etc/systemd/system/"
    done
}
# only dbus and systemd; nothing that waits for a network or a terminal
boot_quiet() {
    chroot "$tree" systemctl -q mask systemd-networkd-wait-online.service console-getty.service \
        getty.target systemd-firstboot.service 2>/dev/null
    mkdir -p "$tree/etc/systemd/journald.conf.d"
    printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n' \
        >"$tree/etc/systemd/journald.conf.d/test.conf"
}
boot_up() {
    if [ -n "${FDD_BOOT_HERE:-}" ]; then
        until_true 60 boot_is_up || fail "this machine is not up: $(systemctl --failed)"
        return
    fi
    boot_quiet
    setsid systemd-nspawn --quiet --boot --register=no --keep-unit --private-network \
        --console=pipe -D "$tree" </dev/null >"$dir/console" 2>&1 &
    boot_pid=$!
    if ! until_true 30 boot_found || ! until_true 60 boot_is_up; then
        boot_down
        skip "systemd-nspawn cannot boot here: $(tail -n 3 "$dir/console" | tr '\n' ' ')"
    fi
}
# Finds the child that is process 1 of its own namespace; the first child of nspawn is not.
boot_found() {
    local p
    kill -0 "$boot_pid" 2>/dev/null || return 1
    for p in $(cat /proc/"$boot_pid"/task/*/children 2>/dev/null); do
        grep -qE '^NSpid:.*[[:space:]][0-9]+[[:space:]]1$' "/proc/$p/status" 2>/dev/null || continue
        boot_leader=$p
        return 0
    done
    return 1
}
boot_is_up() {
    case $(inside systemctl is-system-running 2>/dev/null) in
    running|degraded) return 0 ;;
    esac
    return 1
}
inside() {
    local enter=(nsenter -t "$boot_leader" -m -u -i -n -p -C -r -w)
    [ -z "${FDD_BOOT_HERE:-}" ] || enter=()
    ${enter[@]+"${enter[@]}"} env -i \
        PATH="$boot_prefix/sbin:$boot_prefix/bin:/usr/sbin:/usr/bin" HOME=/root LC_ALL=C "$@"
}
boot_down() {
    [ -n "$boot_pid" ] || return 0
    # SIGRTMIN+4 to systemd: power off
    [ -z "$boot_leader" ] || kill -s RTMIN+4 "$boot_leader" 2>/dev/null
    local n=100
    while kill -0 "$boot_pid" 2>/dev/null && [ $n -gt 0 ]; do n=$((n - 1)); sleep 0.1; done
    [ -z "$boot_leader" ] || kill -KILL "$boot_leader" 2>/dev/null
    kill -KILL "$boot_pid" 2>/dev/null
    wait "$boot_pid" 2>/dev/null
    boot_pid='' boot_leader=''
}
