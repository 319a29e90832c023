#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Completion of fdctl, fdbench and fdd in bash, zsh and fish: every command and every
# option of --help is offered, and names of instances, parameters and values. Regression:
# only bash had completion, and fdd had none.
. "$(dirname "$0")/lib.sh"
unset FDD_SOCKET FDD_INSTANCE FDD_RUNTIME_DIR RUNTIME_DIRECTORY XDG_RUNTIME_DIR
comp=$(cd "$FDD_SRC/conf/completions" && pwd)
export FDD_COMPLETE=$comp/complete.sh PATH=$(dirname "$FDCTL"):$PATH
export FDD_RUNTIME_DIR=$run HOME=$dir

cat >"$dir/ask.zsh" <<'EOT'
fpath=($ZCOMP $fpath)
autoload -Uz _fdd
# a stand-in for zsh's own completion functions
compadd() { local -a a=("$@"); while [[ $a[1] != -- ]]; do shift a; done; shift a
    print -rl -- "${(@M)a:#${PREFIX}*}" }
compset() { : }
_files() { print -r -- ":files $*" }
words=("$@") CURRENT=$# PREFIX=$words[-1]
f() { _fdd }
f
EOT
cat >"$dir/ask.bash" <<'EOT'
source "$BCOMP/fdd.bash"
# splits the line as readline does
COMP_WORDS=()
for w; do
    if [[ $w == ?*=* ]]; then COMP_WORDS+=("${w%%=*}" = ); [[ -z ${w#*=} ]] || COMP_WORDS+=("${w#*=}")
    else COMP_WORDS+=("$w"); fi
done
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
_fdd_complete
cur=${COMP_WORDS[COMP_CWORD]}; lead=; [[ ${*: -1} == ?*=* ]] && lead=${*: -1} lead=${lead%%=*}=
for w in "${COMPREPLY[@]}"; do printf '%s%s\n' "$lead" "$w"; done
EOT
offered() { # SHELL WORD...: candidates for the last word
    local sh=$1; shift
    case $sh in
    bash) BCOMP=$comp bash --norc "$dir/ask.bash" "$@" ;;
    zsh) ZCOMP=$comp zsh -f "$dir/ask.zsh" "$@" ;;
    fish) fish --no-config -c "source $comp/fdd.fish; complete -C \"$*\"" | cut -f 1 ;;
    esac
}
gives() { # SHELL WANT WORD...
    local sh=$1 want=$2; shift 2
    offered "$sh" "$@" >"$dir/offered" 2>"$dir/err"
    [ ! -s "$dir/err" ] || fail "$sh: $*: $(cat "$dir/err")"
    grep -qxF -- "$want" "$dir/offered" || fail "$sh does not offer $want for: $*
$(head -n 40 "$dir/offered")"
}
options_of() { # long and short ones of a help text's table and of its usage
    { grep -oE '^ +(-[A-Za-z], )?--?[A-Za-z][a-z0-9-]*' | grep -oE -- '--?[A-Za-z][a-z0-9-]*'
    } | sort -u
}
all_offered() { # SHELL PROGRAM [COMMAND]
    local sh=$1 o; shift
    offered "$sh" "$@" -- >"$dir/long"
    offered "$sh" "$@" - >"$dir/short"
    "$@" --help | options_of >"$dir/options"
    [ -s "$dir/options" ] || fail "no options in $* --help"
    while IFS= read -r o; do
        case $o in
        --*) grep -qxF -- "$o" "$dir/long" || fail "$sh: $* --: no $o in $(tr '\n' ' ' <"$dir/long")" ;;
        *) grep -qxF -- "$o" "$dir/short" || fail "$sh: $* -: no $o in $(tr '\n' ' ' <"$dir/short")" ;;
        esac
    done <"$dir/options"
}
commands_of() { "$1" help | awk '/^commands:/ { c = 1; next } /^options:/ { c = 0 } c && NF { print $1 }'; }

"$FDD" --instance quail --set daemon.worker="$WORKER" --set model.path=null 2>"$dir/log" &
fdd_pid=$!
fdctl --instance quail --wait $((20 * slow)) ping >/dev/null || fail "no daemon"
tried=0
for sh in bash zsh fish; do
    command -v $sh >/dev/null || { echo "$sh is not here and was left out"; continue; }
    tried=$((tried + 1))
    for p in fdctl fdbench; do
        offered $sh $p "" >"$dir/words"
        for c in $(commands_of $p); do
            grep -qx "$c" "$dir/words" || fail "$sh: no command $c of $p in $(tr '\n' ' ' <"$dir/words")"
            case $c in
            help|version) ;;
            debug) gives $sh --level fdctl debug --; gives $sh --topic fdctl debug --
                gives $sh selfcheck fdctl debug s ;;
            *) all_offered $sh $p "$c" ;;
            esac
        done
        all_offered $sh $p
        gives $sh profile fdctl help p
        gives $sh quail $p --instance qu
        gives $sh quail $p --instance ""
        gives $sh --instance=quail $p --instance=qu
    done
    all_offered $sh fdd
    gives $sh quail fdd --instance q
    gives $sh device.list= fdd --set device.l
    gives $sh log.level fdctl --instance quail config log.le
    gives $sh log.level= fdctl --instance quail set log.le
    gives $sh poisson fdbench serve --arrival p
    gives $sh both fdctl stat --names b
    gives $sh requests_done fdctl --instance quail stat requests_d
    # files and folders are completed by the shell; options with a number offer nothing
    (cd "$comp" && offered $sh fdctl generate --prompt-file fdd.b) >"$dir/offered"
    grep -qE '^fdd\.bash|^:files' "$dir/offered" || fail "$sh: no files: $(cat "$dir/offered")"
    [ -z "$(offered $sh fdctl --timeout "" | head -n 3)" ] || fail "$sh offers something for a number"
    # an option's value does not count as a command
    gives $sh generate fdctl --timeout 3 gen
done
[ $tried -gt 0 ] || skip "no shell"
stop
