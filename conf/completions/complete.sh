# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Prints the candidates for the last word of a command line of fdctl, fdbench or fdd, for
# the completions of bash, zsh and fish.
# Usage: sh complete.sh WORD...; one candidate per line. ":files" and ":dirs" tell the
# shell to complete file and folder names, ":nospace" to add no blank. Commands and options
# come from --help, names of instances from fdctl ls, parameters from the daemon.
prog=$1; shift
name=${prog##*/}
case $prog in
*/*) fdctl=${prog%/*}/fdctl fdd=${prog%/*}/fdd ;;
*) fdctl=fdctl fdd=fdd ;;
esac
cur= cmd= want= prev=
ask() { "$@" 2>/dev/null </dev/null; }
help_of() { # [COMMAND]
    if [ -n "${1-}" ]; then ask "$prog" "$1" --help; else ask "$prog" --help; fi
}
# Prints a line "OPTION VALUE" for each option of a help text; VALUE is - for a flag. It
# reads both the table of options and the options in brackets in the usage.
options() {
    awk '{
        line = $0
        sub(/^ +/, "", line)
        if (line ~ /^-[A-Za-z-]/) table(line)
        while (match($0, /\[-[^]]*\]/)) {
            words(substr($0, RSTART + 1, RLENGTH - 2))
            $0 = substr($0, RSTART + RLENGTH)
        }
    }
    function table(s,   part) { split(s, part, /   */); words(part[1]) }
    function words(s,   t, n, i, k, opt, value) {
        n = split(s, t, /[ ,|]+/)
        if (s ~ /[a-z]\|[a-z]/) { n = split(s, t, /[ ,]+/) }
        for (i = 1; i <= n; i++) {
            if (t[i] !~ /^--?[A-Za-z]/ || t[i] ~ /^-[A-Za-z][A-Za-z]/) continue
            for (k = i + 1; k <= n && t[k] ~ /^-/; k++) continue
            value = k <= n && (t[k] ~ /^[A-Z]+([=,.A-Za-z]*)$/ || t[k] ~ /[|=]/) ? t[k] : "-"
            print t[i], value
        }
    }' | awk '$2 != "-" { has[$1] = $2 } !($1 in at) { at[$1] = ++n; name[n] = $1 }
        END { for (i = 1; i <= n; i++) print name[i], (name[i] in has ? has[name[i]] : "-") }'
}
value_of() { # OPTION: its value in $opts; empty: no such option
    printf '%s\n' "$opts" | awk -v o="$1" '$1 == o { print $2; exit }'
}
commands() { help_of | awk '/^commands:/ { on = 1; next } /^options:/ { on = 0 } on && NF { print $1 }'; }
offer() { # prints the lines of standard input that begin with $cur
    while IFS= read -r w; do
        case $w in "$cur"*) printf '%s%s\n' "$lead" "$w" ;; esac
    done
}
instances() {
    ask "$fdctl" ls | awk 'NR > 1 && $1 != "-" { print $1 }'
    dir=$(ask "$fdd" --help | grep -oE '/[^ ]*/NAME\.ini' | head -n 1)
    for f in "${dir%/NAME.ini}"/*.ini; do
        f=${f##*/}; f=${f%.ini}
        case $f in fdd|devices|'*'|*[!a-z0-9_-]*) ;; *) echo "$f" ;; esac
    done
}
parameters() {
    ask "$fdctl" --timeout 1 config | sed -n 's/ = .*//p' | grep . ||
        ask "$fdd" --print-ini | awk '/^\[/ { s = $0; gsub(/[][]/, "", s) }
            /^;? ?#?[a-z_]+ *=/ { k = $0; sub(/ *=.*/, "", k); gsub(/[;# ]/, "", k); print s "." k }'
}
value() { # OPTION VALUE
    case $1 in
    --instance) instances | sort -u | offer; return ;;
    --set|-s) echo :nospace; parameters | sed 's/$/=/' | offer; return ;;
    --by) printf 'op\nkind\nlayer\n' | offer; return ;;
    --arrival) printf 'poisson\ngamma\nconstant\nramp\n' | offer; return ;;
    -i) [ "$name" != fdd ] || { instances | sort -u | offer; return; } ;;
    esac
    case $2 in
    *FILE*|PATH) echo :files ;;
    DIR) echo :dirs ;;
    *'|'*) printf '%s\n' "$2" | tr '|' '\n' | offer ;;
    esac
}
word() { # candidates for a word that is not an option
    case $cmd in
    help) commands | offer ;;
    config) parameters | offer ;;
    set) echo :nospace; parameters | sed 's/$/=/' | offer ;;
    cancel) ask "$fdctl" --timeout 1 requests | awk 'NR > 1 { print $1 }' | offer ;;
    debug) { help_of debug | awk '/^words:/ { on = 1; next } on && NF { print $1 }'
        printf '%s\n' +sched +batch +kv +ring +selfcheck +faults; } | offer ;;
    doctor) printf '%s\n' system limits io_uring memory gpu fdd | offer ;;
    stat) ask "$fdctl" stat -1 | awk '{ print $2 }' | offer ;;
    tokenize) echo :files ;;
    esac
}

lead= n=$#
opts=$(help_of | options)
while [ $# -gt 1 ]; do
    w=$1; shift
    case $w in
    --*=*) prev= ;;
    -*) prev=$w
        [ "$(value_of "$w")" != - ] && [ -n "$(value_of "$w")" ] && [ $# -gt 1 ] || continue
        # query the daemon that the command line names
        case $cmd$w in
        --runtime-dir) export FDD_RUNTIME_DIR="$1"; unset FDD_SOCKET FDD_INSTANCE ;;
        --instance) export FDD_INSTANCE="$1"; unset FDD_SOCKET ;;
        --socket) export FDD_SOCKET="$1" ;;
        esac
        prev=; shift ;;
    *) prev=
        if [ -z "$cmd" ] && [ "$name" != fdd ]; then
            cmd=$w
            opts=$(help_of "$cmd" | options)
        fi ;;
    esac
done
cur=${1-}
case $cur in
--*=*)
    prev=${cur%%=*}; lead=$prev=; cur=${cur#*=} ;;
esac
want=; [ -z "$prev" ] || want=$(value_of "$prev")
if [ -n "$want" ] && [ "$want" != - ]; then
    value "$prev" "$want"
elif [ -z "$lead" ]; then
    case $cur in
    -*) printf '%s\n' "$opts" | awk 'NF { print $1 }' | offer ;;
    *) if [ -z "$cmd" ] && [ "$name" != fdd ]; then commands | offer; else word; fi ;;
    esac
fi
exit 0
