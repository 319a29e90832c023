# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# bash completion for fdctl, fdbench and fdd; complete.sh gives the candidates.
_fdd_complete()
{
    local i line cur words=()

    # bash splits NAME=VALUE at the =: join it again
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if ((i > 0)) && [[ ${COMP_WORDS[i]} == = || ${words[-1]} == *= ]]; then
            words[-1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    cur=${words[-1]}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${cur#--*=}") ;;
        :dirs) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "${cur#--*=}") ;;
        :nospace) type compopt >/dev/null 2>&1 && compopt -o nospace 2>/dev/null ;;
        *) [[ $cur == *=* ]] && line=${line#"${cur%%=*}="}
            COMPREPLY+=("$line") ;;
        esac
    done < <(sh "${FDD_COMPLETE:-/usr/share/fdd/complete.sh}" "${words[@]}")
}
complete -F _fdd_complete fdctl fdbench fdd
