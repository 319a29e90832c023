#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# An instance next to the main daemon under a real systemd: fdd@two answers through its
# socket unit, each is stopped separately, and a device has one owner. Each line of output
# is one fact that was checked. SKIP where systemd-nspawn cannot boot a tree.
. "$(dirname "$0")/lib.sh"
. "$FDD_SRC/tests/boot/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "sanitizer build"
[ -e "$DEMO/model.safetensors" ] || skip "no demo model"
seen() { printf 'seen: %s\n' "$*"; }
bad() {
    echo "--- journal"
    inside journalctl --no-pager -o cat -u 'fdd*' 2>/dev/null | tail -n 60
    fail "$*"
}
alice() { inside setpriv --reuid alice --regid alice --init-groups "$@"; }
# NAME FILTER: of fdctl ls; the main daemon's name is empty
row() { inside fdctl ls --json | json "([x for x in d if x['name'] == '$1'] or [{}])[0]$2"; }
row_is() { [ "$(row "$1" "['$2']" 2>/dev/null)" = "$3" ]; }
active() { inside systemctl is-active -q "$1"; }
answers() { # [--instance NAME]
    out=$(alice fdctl "$@" --wait 60 generate -p 'In the beginning' --max-tokens 8 --json 2>&1) ||
        bad "no answer of ${*:-the main daemon}: $out"
    [ "$(json 'len(d["ids"])' <<<"$out")" = 8 ] || bad "not 8 tokens: $out"
}

boot_make
boot_install
conf=$tree$(sed -n "s#^sysconfdir = ##p" "$FDD_BUILD/Makefile" | sed "s#\${prefix}#$boot_prefix#")/fdd
mkdir -p "$conf" "$tree/var/lib/fdd"
cp -rL "$DEMO" "$tree/var/lib/fdd/demo"
ini() { # FILE NAME [LINE ...]
    printf '[model]\npath = /var/lib/fdd/demo\nname = %s\n' "$2" >"$conf/$1"
    printf '%s\n' "${@:3}" >>"$conf/$1"
}
ini fdd.ini one
ini two.ini two
boot_up
inside useradd -m -G fdd alice || fail "useradd"
seen "booted $(inside systemctl --version | head -n 1)"

inside systemctl start fdd.socket fdd@two.socket || bad "systemctl start of both sockets"
answers --instance two
seen "fdd@two.socket started fdd@two for a client"
! active fdd.service || bad "the main daemon was started too"
answers
[ "$(inside fdctl status --json | json 'd["model"]["name"]')" = one ] || bad "the main daemon's model"
[ "$(inside fdctl --instance two status --json | json 'd["model"]["name"]')" = two ] || bad "two's model"
[ "$(inside stat -c %U:%a /run/fdd/two /var/cache/fdd/two | tr '\n' ' ')" = 'fdd:755 fdd:755 ' ] ||
    bad "folders: $(inside stat -c '%n %U:%a' /run/fdd/two /var/cache/fdd/two)"
[ "$(inside fdctl ls --json | json '[x["model"] for x in d]')" = "['one', 'two']" ] ||
    bad "fdctl ls: $(inside fdctl ls)"
seen "fdctl ls shows both, each with its model and folders"

inside systemctl stop fdd@two.socket fdd@two || bad "systemctl stop of the instance"
active fdd.service || bad "the main daemon was stopped with the instance"
answers
inside systemctl start fdd@two.socket
answers --instance two
inside systemctl restart fdd || bad "systemctl restart fdd"
answers --instance two
answers
seen "each is stopped and restarted without the other"

# both name the CPU: the error of the second one names the holder
ini fdd.ini one '[device]' 'list = cpu:1'
ini two.ini two '[device]' 'list = cpu:1'
inside systemctl restart fdd || bad "the main daemon does not start with device.list"
answers
! inside systemctl restart fdd@two 2>/dev/null || bad "two daemons have one device"
said=$(inside journalctl --no-pager -o cat -u fdd@two | grep -E 'device.shared' | tail -n 1)
has "$said" "device cpu-0 is taken by another fdd \(pid $(inside systemctl show --value -p MainPID fdd), "
answers
seen "the second owner of a device is refused: ${said:0:160}"
ini fdd.ini one '[device]' 'list = cpu:1' 'shared = yes'
ini two.ini two '[device]' 'list = cpu:1' 'shared = yes'
inside systemctl stop fdd.service 2>/dev/null
inside systemctl reset-failed fdd@two.service fdd@two.socket 2>/dev/null
inside systemctl start fdd.socket fdd@two.socket
answers
answers --instance two
seen "with device.shared = yes in both they share it"
