# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# bash completion for fdbench: commands, options (asked from fdbench --help),
# files and folders.
_fdbench()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local cmd= i
    local cmds='serve latency ipc start help version'

    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --runtime-dir|--socket|--admin|--timeout|--wait) [ -z "$cmd" ] && ((i++)) ;;
        -*) ;;
        *) [ -z "$cmd" ] && cmd=${COMP_WORDS[i]} ;;
        esac
    done
    case $prev in
    --runtime-dir|--model) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    --socket|--admin|--csv|--json|--html|--trace|--dataset|--fdd|--config)
        # the --json of ipc and start has no value
        if [ "$prev" != --json ] || [[ $cmd == serve || $cmd == latency ]]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
        fi ;;
    --arrival) mapfile -t COMPREPLY < <(compgen -W 'poisson gamma constant ramp' -- "$cur")
        return ;;
    -m) [ "$cmd" = start ] && mapfile -t COMPREPLY < <(compgen -d -- "$cur") && return ;;
    esac
    if [ -z "$cmd" ]; then
        if [[ $cur == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W '--runtime-dir --socket --admin --timeout
                --wait --help --version' -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -W "$cmds" -- "$cur")
        fi
        return
    fi
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(fdbench "$cmd" --help 2>/dev/null |
            grep -oE '(^|[ ,])--[a-z0-9-]+')" -- "$cur")
        return
    fi
    [ "$cmd" = help ] && mapfile -t COMPREPLY < <(compgen -W "$cmds" -- "$cur")
}
complete -F _fdbench fdbench
