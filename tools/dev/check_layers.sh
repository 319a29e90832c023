#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Check which modules may use which. In the sources: an allow-list for #include lines.
# In the objects of a build: a graph with an arrow from an object that needs a symbol to
# the one that defines it (nm), and arrows for calls through pointers, which
# tools/dev/layers.callbacks lists, must have no cycle. A function whose address an
# object takes, and an object that calls through a pointer, must be on that list
# (objdump, x86-64 only).
#
# tools/dev/layers.groups lists which group of modules may use which, also for the
# worker, the kernels and the tools; doc/architecture.md shows it.
#
# Usage: check_layers.sh [--graph|--dot|--draw] [SRC]
#   --graph   print the modules in levels, each above all that it uses
#   --dot     print the arrows for graphviz
#   --draw    print the groups of layers.groups, each above all that it uses
# FDD_BUILD: the build tree, else SRC/build. Exit 1: something is not allowed, with
# a message for each; 77: no objects were found, only includes were checked.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
mode=check
case ${1:-} in
--graph|--dot|--draw) mode=${1#--}; shift ;;
-h|--help) sed -n '4,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
-*) echo "check_layers: unknown option $1 (see --help)" >&2; exit 64 ;;
esac
src=$(cd "${1:-${FDD_SRC:-$here/../..}}" && pwd) || exit 1
build=${FDD_BUILD:-$src/build}
callbacks=$src/tools/dev/layers.callbacks groups=$src/tools/dev/layers.groups
page=$src/doc/architecture.md
cd "$src" || exit 1
bad=0

# ---- includes ------------------------------------------------------------------

rule() { # FOLDER ALLOWED-REGEX (root-relative includes)
    local hits
    [ -e "$1" ] || return 0
    hits=$(grep -rHnE '^#include "' "$1" --include='*.[ch]' --include='*.cu' --include='*.cuh' |
        grep -vE '#include "(config\.h)"' |
        sed -nE 's/^([^:]+:[0-9]+):#include "([^"]+)".*/\1 \2/p' |
        awk -v ok="^($2)\$" '$2 !~ ok')
    if [ -n "$hits" ]; then
        echo "includes not allowed in $1:"; echo "$hits"; bad=1
    fi
}
includes() {
    local f h hits
    local proto='libclient/fdproto\.h|libclient/fdring\.h|libclient/fdname\.h|libclient/fdwhere\.h|libclient/tbl/.*'
    rule libclient 'libclient/.*|fdproto\.h|fdring\.h|fdclient(_params|_types)?\.h|tbl/.*'
    rule chat 'chat/.*|fdclient\.h'
    rule http 'http/.*|chat/fdchat\.h|libclient/fdclient\.h|daemon/common/.*'
    rule kernels 'kernels/.*'
    rule daemon/common "daemon/common/.*|daemon/tbl/.*|$proto"
    rule daemon/gate "daemon/gate/.*|daemon/common/.*|daemon/tbl/.*|$proto"
    rule daemon/worker "daemon/worker/.*|daemon/common/.*|daemon/tbl/.*|kernels/.*|$proto"
    rule tools "tools/.*|chat/fdchat\.h|libclient/.*|daemon/common/.*|daemon/tbl/.*"
    local below="libclient/.*|daemon/common/.*|daemon/tbl/.*|tools/fdctl/lib/.*|tools/tbl/.*"
    rule tools/fdctl/lib "$below"
    rule tools/fdbench "tools/fdbench/.*|$below"
    # fdctl's commands may use their library, but not each other
    for f in tools/fdctl/*/; do
        f=${f%/}
        [ "$f" = tools/fdctl/lib ] || rule "$f" "$f/.*|tools/fdctl/commands\.h|chat/fdchat\.h|$below"
    done
    for f in tools/fdctl/*.[ch]; do
        [ ! -e "$f" ] || rule "$f" "tools/fdctl/commands\.h|$below"
    done
    # headers private to a folder
    hits=$(grep -rnE '^#include ".*_priv\.h"' daemon libclient kernels tools --include='*.[ch]' \
        --include='*.cu' --include='*.cuh' 2>/dev/null | while IFS=: read -r f n h; do
            h=${h#*\"}; h=${h%\"*}
            case $h in */*) [ "${f%/*}" = "${h%/*}" ] || echo "$f:$n $h" ;; esac
        done)
    if [ -n "$hits" ]; then echo "private headers included from elsewhere:"; echo "$hits"; bad=1; fi
    # the policy must not use tensors
    for f in scheduler kvcache req; do
        for h in daemon/worker/"$f"[._]*; do
            [ -e "$h" ] || continue
            if grep -nE '#include "(daemon/worker/(runner|model|weights|egress|ingress)|kernels/cpu)' "$h"; then
                echo "$h includes what it must not know"; bad=1
            fi
        done
    done
}

# ---- objects -------------------------------------------------------------------

folders="daemon/common daemon/gate daemon/worker libclient"
# checked only by groups
grouped="chat http kernels kernels/cpu kernels/cuda tools/fdbench tools/fdctl $(cd tools/fdctl 2>/dev/null &&
    find . -mindepth 1 -type d | sed 's|^\.|tools/fdctl|' | sort | tr '\n' ' ')"

# Read the groups and which may use which (layers.groups) and report errors of the list;
# with DRAW print the groups, each above all that it uses, else check lines of symbols().
groups() { # [DRAW]
    awk -v draw="${1:-}" -v list="$groups" '
    function say(s) { print s; bad = 1 }
    function fits(m, p,    re) {
        re = p; gsub(/\./, "\\.", re); gsub(/\*/, "[^/]*", re)
        return m ~ "^" re "$"
    }
    function group_of(m,    i, w) {
        if (m in group) return group[m]
        for (i = 1; i <= n_pat && !fits(m, pat[i]); i++) continue
        group[m] = i <= n_pat ? of[i] : ""
        if (group[m] == "COMMAND") { # a folder, or a file of its own
            split(m, w, "/"); group[m] = "COMMAND " w[3]
        }
        return group[m]
    }
    function name(g) { return substr(g, 1, 8) == "COMMAND " ? "COMMAND" : g }
    # level of g; a group reached again during its own visit closes a cycle
    function visit(g,    n, w, i) {
        if (state[g] == 1) { say("layers.groups: a cycle through " g); return 0 }
        if (state[g] == 2) return level[g]
        state[g] = 1
        n = split(uses[g], w, " ")
        for (i = 1; i <= n; i++)
            if (visit(w[i]) >= level[g]) level[g] = level[w[i]] + 1
        state[g] = 2
        return level[g]
    }
    function reaches(a, b,    n, w, i) { # by two arrows or more
        n = split(uses[a], w, " ")
        for (i = 1; i <= n; i++)
            if (w[i] != b && (index(" " uses[w[i]] " ", " " b " ") || reaches(w[i], b))) return 1
        return 0
    }
    function show(    l, i, n, w, k, text) {
        for (l = n_group; l >= 0; l--)
            for (i = 1; i <= n_group; i++) {
                if (level[order[i]] != l) continue
                n = split(uses[order[i]], w, " "); text = ""
                for (k = 1; k <= n; k++)
                    if (!reaches(order[i], w[k])) text = text " " w[k]
                print text == "" ? "    " order[i] : sprintf("    %-10s ►", order[i]) text
            }
    }
    BEGIN {
        while ((getline line < list) > 0) {
            if (line ~ /^#/ || line == "") continue
            n = split(line, w, " "); g = w[1]
            if (sub(/:$/, "", g) != 1 || line !~ / > /) { say("layers.groups: " line); continue }
            if (!(g in uses)) { order[++n_group] = g; uses[g] = "" }
            for (i = 2; w[i] != ">"; i++) { pat[++n_pat] = w[i]; of[n_pat] = g }
            for (i++; i <= n; i++) if (w[i] != "none") uses[g] = uses[g] " " w[i]
        }
        for (i = 1; i <= n_group; i++) {
            n = split(uses[order[i]], w, " ")
            for (k = 1; k <= n; k++) if (!(w[k] in uses)) say("layers.groups: no group " w[k])
        }
        for (i = 1; i <= n_group; i++) visit(order[i])
        if (draw != "") { show(); exit bad }
    }
    # the first definition counts: http defines some names of daemon/common/param_check
    $1 == "D" { if (!($3 in def)) def[$3] = $2; mod[$2] = 1 }
    $1 == "U" { need[$2] = need[$2] " " $3; mod[$2] = 1 }
    END {
        if (draw != "") exit bad
        for (m in mod) {
            if (group_of(m) == "") say(m " is in no group of layers.groups")
            has[name(group_of(m))] = 1
        }
        for (m in need) {
            a = group_of(m); n = split(need[m], w, " ")
            for (i = 1; i <= n; i++) {
                if (!(w[i] in def)) continue
                b = group_of(def[w[i]])
                if (a == b || a == "" || b == "") continue
                if (index(" " uses[name(a)] " ", " " name(b) " ") == 0 || (name(a) == name(b)))
                    say(m " (" a ") needs " w[i] "() of " def[w[i]] " (" b "), which layers.groups does not allow")
                used[name(a), name(b)] = 1
            }
        }
        # a build without CUDA has only a few of the objects
        for (i = 1; i <= n_group; i++) {
            n = order[i] == "cuda" ? 0 : split(uses[order[i]], w, " ")
            for (k = 1; k <= n; k++)
                if (has[order[i]] && has[w[k]] && !((order[i], w[k]) in used))
                    say("layers.groups: " order[i] " does not need " w[k])
        }
        exit bad
    }'
}
# Check that the drawing in doc/architecture.md has the groups of the list.
page_is_current() {
    [ -e "$page" ] && [ -e "$groups" ] || return 0
    diff <(groups draw </dev/null) <(awk '/^<!-- end of layers -->/ { on = 0 }
        on && NF; /^<!-- layers/ { on = 1 }' "$page") >"$work/page" ||
        { echo "doc/architecture.md is not what --draw prints:"; cat "$work/page"; bad=1; }
}
# "OBJECT MODULE" a line: the module is the source's path without its suffix.
# An object without a source is left from an older build.
objects() { # FOLDER ...
    local d o at m
    for d in "$@"; do
        at=$build/$d
        # libtool's objects for the shared library, if it is built
        [ ! -d "$at/.libs" ] || at=$at/.libs
        for o in "$at"/*.o; do
            m=$(basename "$o" .o)
            m=$d/${m##*-}
            [ ! -e "$o" ] || { [ ! -e "$m.c" ] && [ ! -e "$m.cu" ]; } || echo "$o $m"
        done
    done
}

# Print the lines to check: D MODULE SYMBOL (defines), U MODULE SYMBOL
# (needs), T MODULE FUNCTION (takes its address), I MODULE (calls through a
# pointer).
symbols() { # LIST
    local files
    files=$(cut -d ' ' -f 1 "$1")
    # shellcheck disable=SC2086
    nm -A -P $files | awk -v list="$1" '
        BEGIN { while ((getline line < list) > 0) { split(line, w, " "); module[w[1] ":"] = w[2] } }
        $3 ~ /^[Uvw]$/ { print "U", module[$1], $2; next }
        $3 ~ /^[A-Z]$/ { print "D", module[$1], $2 }'
}
pointers() { # LIST
    local files
    files=$(cut -d ' ' -f 1 "$1")
    # shellcheck disable=SC2086
    { objdump -t $files; objdump -dr --no-show-raw-insn $files; echo "== data"; objdump -r $files; } |
        awk -v list="$1" '
        function clean(s) { sub(/\..*/, "", s); return s }
        function flush(    keep) {
            if (held == "") return
            keep = m; m = held_m; taken(held); m = keep; held = ""
        }
        function taken(f) { if (f != "" && !seen[m, f]++) print "T", m, clean(f) }
        # the function at SYMBOL+OFFSET of a relocation, or ""
        function target(s, add,    name, off) {
            name = s; off = 0
            if (match(s, /[+-]0x[0-9a-f]+$/)) {
                name = substr(s, 1, RSTART - 1)
                off = number(substr(s, RSTART + 3)) * (substr(s, RSTART, 1) == "-" ? -1 : 1)
            }
            off += add
            if (name ~ /^\./)
                return at[m, name, off]
            return off == 0 && (name in func_of || (m, name) in here_f) ? name : ""
        }
        function number(h,    i, n) {
            n = 0
            for (i = 1; i <= length(h); i++)
                n = n * 16 + index("0123456789abcdef", substr(h, i, 1)) - 1
            # offsets are small: 2^32 or more is a negative one
            return n >= 4294967296 ? n - 18446744073709551616 : n
        }
        BEGIN { while ((getline line < list) > 0) { split(line, w, " "); module[w[1]] = w[2] } }
        /:     file format / { sub(/:     file format .*/, ""); m = module[$0]; sect = ""; next }
        /^== data/ { data = 1; next }
        # symbol tables: name, section and address of each function
        !data && substr($0, 24, 1) == "F" && substr($0, 18, 1) != "<" {
            f = $NF; sect = $0; sub(/\t.*/, "", sect); sub(/.* /, "", sect)
            at[m, sect, number($1)] = f
            if (substr($0, 18, 1) == "l") here_f[m, f] = 1
            else func_of[f] = 1
            next
        }
        # code: instructions that name a function without a call or jump; a relocation
        # on the next line has the exact name, objdump only guesses
        !data && /^ +[0-9a-f]+:\t[a-z]/ {
            flush()
            call = $2 ~ /^(call|j|notrack|bnd)/
            star = $2 ~ /^call/ && $3 ~ /^\*/
            calls[m] += star
            if (!call && match($0, /# [0-9a-f]+ <[^>+]+>$/)) {
                f = substr($0, RSTART, RLENGTH - 1); sub(/.*</, "", f)
                if ((m, f) in here_f || f in func_of) { held = f; held_m = m }
            }
            next
        }
        !data && /^\t+[0-9a-f]+: R_/ {
            held = ""
            if (star && $2 ~ /GOTPCREL/) calls[m]--
            if (!call && $2 !~ /PLT32/) taken(target($3, $2 ~ /PC32|GOTPCREL/ ? 4 : 0))
            next
        }
        # data: full pointers; a jump table has differences
        data && /^RELOCATION RECORDS FOR/ { flush(); sect = $4; next }
        data && $2 ~ /^R_X86_64_64$/ && sect ~ /^\[\.(data|rodata|tdata)/ { taken(target($3, 0)) }
        END { flush(); for (m in calls) if (calls[m] > 0) print "I", m }'
}

# Check the lines of symbols() and pointers() and the list of callbacks.
judge() {
    awk -v mode="$mode" '
    function arrow(a, b, why) {
        if (a == b) return
        if (!((a, b) in sym)) { out[a] = out[a] " " b }
        if (index(" " sym[a, b] " ", " " why " ") == 0)
            sym[a, b] = sym[a, b] (sym[a, b] == "" ? "" : " ") why
    }
    function say(s) { print s; bad = 1 }
    function is_listed(s,    i, w) { # FUNCTION may begin or end with *
        for (i = 1; i <= n_listed; i++) {
            if (listed[i] == s) return 1
            if (index(listed[i], "*") == 0) continue
            split(listed[i], w, "*")
            if (index(s, w[1]) == 1 && substr(s, length(s) - length(w[2]) + 1) == w[2]) return 1
        }
        return 0
    }
    function visit(v,    n, w, i, u, size) {
        num[v] = low[v] = ++count; stack[++top] = v; on[v] = 1
        n = split(out[v], w, " ")
        for (i = 1; i <= n; i++) {
            u = w[i]
            if (!(u in num)) { visit(u); if (low[u] < low[v]) low[v] = low[u] }
            else if (on[u] && num[u] < low[v]) low[v] = num[u]
        }
        # a component is found after all that it uses, so their levels are known
        if (low[v] == num[v]) {
            n_comp++; size = 0
            do { u = stack[top--]; on[u] = 0; comp[u] = n_comp; member[n_comp] = member[n_comp] " " u; size++ } while (u != v)
            sizes[n_comp] = size
        }
    }
    function cycle(c,    n, w, i, j, k, x, text) {
        n = split(member[c], w, " "); order(w, n)
        text = "a cycle of " n " modules:"
        for (i = 1; i <= n; i++) {
            k = split(out[w[i]], x, " ")
            for (j = 1; j <= k; j++)
                if (comp[x[j]] == c) text = text "\n  " w[i] " -> " x[j] ": " sym[w[i], x[j]]
        }
        say(text)
    }
    $1 == "D" { def[$3] = $2; mod[$2] = 1 }
    $1 == "U" { need[$2] = need[$2] " " $3; mod[$2] = 1 }
    $1 == "T" { take[$2 " " $3] = 1 }
    $1 == "I" { through[$2] = 1 }
    $1 == "M" { missing[$2] = 1 }
    $1 == "C" { # at, caller, callee, function
        if ($3 ~ /\// && !($3 in mod)) say($2 ": there is no module " $3)
        if ($4 ~ /\// && !($4 in mod)) say($2 ": there is no module " $4)
        listed[++n_listed] = $4 " " $5; caller[$3] = 1
        if ($3 ~ /\// && $4 ~ /\//) cb[++n_cb] = $3 " " $4 " " $5
    }
    END {
        for (m in missing) say("no object of " m ".c: build first")
        for (m in need) {
            n = split(need[m], w, " ")
            for (i = 1; i <= n; i++) if (w[i] in def) arrow(m, def[w[i]], w[i])
        }
        for (i = 1; i <= n_cb; i++) { split(cb[i], w, " "); arrow(w[1], w[2], "*" w[3]) }
        for (t in take) {
            split(t, w, " ")
            d = w[2] in def ? def[w[2]] : w[1]
            if (!is_listed(d " " w[2]))
                say(w[1] " takes the address of " w[2] "() of " d ", which layers.callbacks does not list")
        }
        for (m in through)
            if (!(m in caller)) say(m " calls through a pointer, and layers.callbacks does not say whom")
        for (m in mod) if (!(m in num)) visit(m)
        for (c = 1; c <= n_comp; c++) if (sizes[c] > 1) cycle(c)
        if (mode == "graph") graph()
        if (mode == "dot") dot()
        exit bad
    }
    function graph(    c, i, n, w, j, k, x, l, max, d, nd, dirs, text, name, line) {
        max = 0
        for (c = 1; c <= n_comp; c++) {
            n = split(member[c], w, " "); l = 0
            for (i = 1; i <= n; i++) {
                k = split(out[w[i]], x, " ")
                for (j = 1; j <= k; j++)
                    if (comp[x[j]] != c && level[comp[x[j]]] + 1 > l) l = level[comp[x[j]]] + 1
            }
            level[c] = l
            if (l > max) max = l
        }
        nd = split("daemon/gate daemon/worker daemon/common libclient", dirs, " ")
        for (d = 1; d <= nd; d++) {
            print dirs[d]
            for (l = max; l >= 0; l--) {
                line = ""
                for (m in mod)
                    if (level[comp[m]] == l && index(m, dirs[d] "/") == 1)
                        line = line " " substr(m, length(dirs[d]) + 2)
                if (line == "") continue
                n = split(line, w, " "); order(w, n)
                for (i = 1; i <= n; i++) {
                    m = dirs[d] "/" w[i]; text = ""
                    k = split(out[m], x, " ")
                    for (j = 1; j <= k; j++)
                        if (index(x[j], dirs[d] "/") == 1) text = text " " substr(x[j], length(dirs[d]) + 2)
                    k = split(text, x, " "); order(x, k); text = ""
                    for (j = 1; j <= k; j++) text = text " " x[j]
                    print sprintf("  %2d  %-18s", l, w[i]) (text == "" ? "" : " ->" text)
                }
            }
        }
    }
    function order(a, n,    i, j, t) {
        for (i = 2; i <= n; i++) {
            t = a[i]
            for (j = i - 1; j >= 1 && a[j] > t; j--) a[j + 1] = a[j]
            a[j + 1] = t
        }
    }
    function dot(    k, w) {
        print "digraph fdd {"
        for (k in sym) { split(k, w, SUBSEP); printf "  \"%s\" -> \"%s\"%s;\n", w[1], w[2], sym[k] ~ /^\*/ ? " [style=dashed]" : "" }
        print "}"
    }'
}

# A line of the list: CALLER CALLEE FUNCTION reason. A name without / is external.
list_lines() {
    [ -e "$callbacks" ] || return 0
    awk '/^#/ || NF == 0 { next }
        NF < 4 { print "L", FILENAME ":" FNR; next }
        { print "C", "layers.callbacks:" FNR, $1, $2, $3 }' "$callbacks"
}
list_is_true() { # every function is there
    local at caller callee fn
    while read -r _ at caller callee fn; do
        [ -n "${callee:-}" ] || { echo "$at: CALLER CALLEE FUNCTION WHY"; bad=1; continue; }
        [ "$callee" != "${callee##*/}" ] || continue
        grep -qE "(^|[^A-Za-z0-9_])${fn//\*/[a-z0-9_]*}([^A-Za-z0-9_]|\$)" "$callee.c" 2>/dev/null ||
            { echo "$at: $callee.c has no $fn() that $caller may call"; bad=1; }
    done < <(list_lines)
}

# Each module of the gate has its own state: none may use that of all.
struct_gate() {
    local n
    [ -d daemon/gate ] || return 0
    n=$(grep -rnw 'struct gate' daemon --include='*.[ch]' | grep -cvE '^daemon/gate/gate\.[ch]:')
    if [ "$mode" = graph ] || [ "$n" != 0 ]; then echo "lines outside gate.[ch] that name struct gate: $n"; fi
    [ "$n" = 0 ] || bad=1
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
[ "$mode" != draw ] || { groups draw </dev/null; exit; }
[ "$mode" = dot ] || { includes; struct_gate; list_is_true; page_is_current; }
# shellcheck disable=SC2086
objects $folders >"$work/objects"
if [ ! -s "$work/objects" ]; then
    echo "no objects in $build: only includes were judged"
    [ $bad = 0 ] && exit 77
    exit 1
fi
read -r first _ <"$work/objects"
if ! command -v nm >/dev/null || ! command -v objdump >/dev/null ||
    objdump -t "$first" | grep -q '__gnu_lto_slim'; then
    echo "no nm and objdump, or objects without code (-flto) in $build: only includes were judged"
    [ $bad = 0 ] && exit 77
    exit 1
fi
if [ -e "$groups" ] && [ "$mode" = check ]; then
    # shellcheck disable=SC2086
    objects $folders $grouped >"$work/all"
    symbols "$work/all" | groups || bad=1
fi
rc=0
{
    for d in $folders; do
        for f in "$d"/*.c; do
            m=${f%.c}
            [ ! -e "$f" ] || grep -q " $m\$" "$work/objects" || echo "M $m"
        done
    done
    symbols "$work/objects"
    if objdump -f "$first" | grep -q elf64-x86-64; then pointers "$work/objects"; else rc=77; fi
    list_lines
    echo "rc $rc" >"$work/rc"
} | judge || bad=1
read -r _ rc <"$work/rc"
[ "$rc" = 0 ] || echo "callbacks are looked for in x86-64 objects only: these were judged by the list"
[ $bad = 0 ] || exit 1
exit "$rc"
