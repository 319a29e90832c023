# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# bash completion for fdctl: commands, options (asked from fdctl --help),
# parameter names (asked from the running daemon), files.
_fdctl()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local cmd= i glob=()
    local cmds='status ls generate tokenize detokenize ping stat top trace profile doctor requests clients cancel
        config set reload model memory program drain pause stop debug help version'

    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --runtime-dir|--socket|--admin|--timeout|--wait)
            [ -z "$cmd" ] && glob+=("${COMP_WORDS[i]}" "${COMP_WORDS[i+1]}") && ((i++)) ;;
        -*) ;;
        *) [ -z "$cmd" ] && cmd=${COMP_WORDS[i]} ;;
        esac
    done
    [ "$cmd $prev" = 'profile --batch' ] && return
    case $prev in
    --by) mapfile -t COMPREPLY < <(compgen -W 'op kind layer' -- "$cur"); return ;;
    --runtime-dir) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    --socket|--admin|--ids-file|--prompt-file|--batch|--file|--textfile)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
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
        mapfile -t COMPREPLY < <(compgen -W "$(fdctl "$cmd" --help 2>/dev/null |
            grep -oE '(^|[ ,])--[a-z0-9-]+')" -- "$cur")
        return
    fi
    case $cmd in
    help) mapfile -t COMPREPLY < <(compgen -W "$cmds" -- "$cur") ;;
    config|set)
        mapfile -t COMPREPLY < <(compgen -W "$(fdctl "${glob[@]}" --timeout 1 config \
            2>/dev/null | sed 's/ = .*//')" -- "$cur")
        if [ "$cmd" = set ]; then
            COMPREPLY=("${COMPREPLY[@]/%/=}")
            type compopt >/dev/null 2>&1 && compopt -o nospace
        fi ;;
    cancel)
        mapfile -t COMPREPLY < <(compgen -W "$(fdctl "${glob[@]}" --timeout 1 requests \
            2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$cur") ;;
    debug) mapfile -t COMPREPLY < <(compgen -W 'panic selfcheck kill-worker fail-device
        +sched +batch +kv +ring +selfcheck +faults --level --topic' -- "$cur") ;;
    doctor) mapfile -t COMPREPLY < <(compgen -W 'system limits io_uring memory gpu fdd' \
        -- "$cur") ;;
    stat) mapfile -t COMPREPLY < <(compgen -W "$(fdctl "${glob[@]}" stat -1 2>/dev/null |
        awk '{ print $2 }')" -- "$cur") ;;
    tokenize) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    esac
}
complete -F _fdctl fdctl
