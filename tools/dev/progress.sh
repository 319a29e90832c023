# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts whose work takes minutes with its output in a file: shows
# the progress on standard error, on a terminal in one line that changes, else
# in a line every 10 s (FDD_PROGRESS_S).
#   watch NAME FUNCTION...   begin; FUNCTION prints text such as "120 of 430 objects"
#   watched                  end; also called if the script ends or is killed
#   objects LOG              a FUNCTION: how many of n_objects `make V=0` has
#                            compiled
#   suite LOG                a FUNCTION: as objects, then ended tests of n_tests
#   count_objects MAKE-ARGS  sets n_objects
#   count_tests MAKE-ARGS    sets n_tests
watcher=
n_objects=0 n_tests=0
watch() {
    local up
    watched
    exec {up}<> <(:)
    (
    trap 'exit 0' TERM
    echo >&"$up"
    trap '' INT HUP
    name=$1 every=${FDD_PROGRESS_S:-10} t0=$SECONDS
    shift
    [ -t 2 ] && every=0
    next=$((t0 + every))
    exec {tick}<> <(:) # never has data to read
    while [ -d /proc/$$ ]; do
        read -rt 1 -u "$tick" || true
        [ $SECONDS -ge $next ] || continue
        text=$("$@" 2>/dev/null) || true
        next=$((SECONDS + every))
        if [ -t 2 ]; then
            text="$name: ${text:+$text, }$((SECONDS - t0)) s"
            printf '\r\033[K%.*s' "$(($(tput cols 2>/dev/null || echo 80) - 1))" "$text" >&2
        else
            echo "$name: ${text:+$text, }$((SECONDS - t0)) s" >&2
        fi
    done
    ) </dev/null >/dev/null &
    watcher=$!
    # If it ended before its own trap is set, it would run this shell's EXIT trap.
    read -rt 10 -u "$up" || true
    exec {up}>&-
}
watched() {
    [ -n "$watcher" ] || return 0
    kill -TERM "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    watcher=
    [ ! -t 2 ] || printf '\r\033[K' >&2
}
compiled='^  (CC|CXX|NVCC) '
count_objects() {
    n_objects=$(make -n V=0 "$@" 2>/dev/null | grep -cE '^echo "  (CC|CXX|NVCC) ') || true
}
count_tests() { n_tests=$(make -s count-tests "$@" 2>/dev/null) || n_tests=0; }
objects() {
    local n
    n=$(grep -cE "$compiled" "$1") || true
    if [ "$n_objects" -gt 0 ]; then echo "$n of $n_objects objects"; fi
}
suite() {
    local n bad
    n=$(grep -cE '^(PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): ' "$1") || true
    bad=$(grep -cE '^(FAIL|XPASS|ERROR): ' "$1") || true
    if [ "$n" = 0 ]; then objects "$1"; return; fi
    if [ "$n_tests" -gt 0 ]; then n="$n of $n_tests"; fi
    echo "$n tests, $bad failed"
}
