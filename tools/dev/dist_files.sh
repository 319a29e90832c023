#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The files of a tarball: every file that git tracks except .ci and .git*;
# automake adds the generated ones. Usage:
#   dist_files.sh --list            one name a line
#   dist_files.sh --copy DISTDIR    copy them, and write DISTDIR/.tarball: commit,
#                                   time and the list, for a tree without git
#   dist_files.sh --tar FOLDER      that folder as a tar archive whose bytes
#                                   depend only on the content
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
src=$(cd "$here/../.." && pwd -P)
list() {
    if [ -e "$src/.tarball" ] && [ "$(wc -l <"$src/.tarball")" -gt 2 ]; then
        tail -n +3 "$src/.tarball"
    elif [ -e "$src/.git" ]; then
        git -c safe.directory="$src" -c core.quotePath=false -C "$src" ls-files |
            grep -vE '^(\.ci/|\.git)' | LC_ALL=C sort
    else
        echo "make dist: $src has neither git nor a tarball's list of files (.tarball)" >&2
        return 1
    fi
}
epoch() {
    local t
    t=$("$here/version.sh" --epoch)
    [ -n "$t" ] || { echo "make dist: no commit and no SOURCE_DATE_EPOCH to date files with" >&2
        return 1; }
    echo "$t"
}
case ${1-} in
--list) list ;;
--copy)
    names=$(list) time=$(epoch) to=$(cd "$2" && pwd)
    cd "$src"
    while IFS= read -r f; do
        [ -e "$f" ] || continue # deleted, but not committed
        mkdir -p "$to/${f%/*}"
        cp -f "$f" "$to/$f"
    done < <(printf '%s\n' "$names" | sed 's|^[^/]*$|./&|')
    { "$here/version.sh" | grep . || echo; echo "$time"; printf '%s\n' "$names"; } >"$to/.tarball" ;;
--tar)
    time=$(epoch)
    exec tar --format=ustar --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner \
        --mode=u+rwX,go+rX,go-w -cf - "$2" ;;
*) echo "dist_files.sh: --list, --copy or --tar, not ${1-}" >&2; exit 64 ;;
esac
