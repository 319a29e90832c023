# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fish completion for fdctl, fdbench and fdd; complete.sh gives the candidates.
function __fdd_complete
    set -l cur (commandline -ct)
    test -n "$cur"; or set cur ""
    set -l asked /usr/share/fdd/complete.sh
    set -q FDD_COMPLETE; and set asked $FDD_COMPLETE
    for line in (sh $asked (commandline -opc) $cur)
        switch $line
            case :files
                __fish_complete_path (string replace -r '^--[^=]*=' '' -- $cur)
            case :dirs
                __fish_complete_directories (string replace -r '^--[^=]*=' '' -- $cur)
            case ':*'
            case '*'
                printf '%s\n' $line
        end
    end
end
for program in fdctl fdbench fdd
    complete -c $program -f -a '(__fdd_complete)'
end
