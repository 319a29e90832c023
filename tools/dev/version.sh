#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Print or write the commit of a source tree. Usage:
#   version.sh                  print abc1234, abc1234-dirty or nothing
#   version.sh --header FILE    write it as a C header, unless FILE says so already
#   version.sh --epoch          print the time of the commit in seconds since 1970
# A tarball has both in the file .tarball (make dist writes it).
# Without that file and without git the commit is not known, which is no error.
set -uo pipefail
src=$(cd "$(dirname "$0")/../.." && pwd -P)
# The tree may be another user's (sudo make install); no hooks of it are run.
ask() { git -c safe.directory="$src" -c core.fsmonitor=false -C "$src" "$@" 2>/dev/null; }
# not the commit of another repository around this tree
ours() { [ "$(ask rev-parse --show-toplevel)" = "$src" ]; }
commit() {
    local id
    if [ -e "$src/.tarball" ]; then
        sed -n 1p "$src/.tarball"
    elif ours && id=$(ask rev-parse HEAD); then
        [ -z "$(ask status --porcelain --untracked-files=no)" ] && echo "${id:0:7}" ||
            echo "${id:0:7}-dirty"
    fi
}
case ${1-} in
'') commit ;;
--epoch)
    if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then echo "$SOURCE_DATE_EPOCH"
    elif [ -e "$src/.tarball" ]; then sed -n 2p "$src/.tarball"
    elif ours; then ask log -1 --format=%ct
    fi ;;
--header)
    text="#define FDD_COMMIT \"$(commit)\""
    [ "$(cat "$2" 2>/dev/null)" = "$text" ] || { echo "$text" >"$2.tmp" && mv "$2.tmp" "$2"; } ;;
*) echo "version.sh: unknown argument $1" >&2; exit 64 ;;
esac
