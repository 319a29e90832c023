#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Count uses of words that the project avoids (doc/GLOSSARY.md). words.list has them: a
# "never" word may only be in lines that its last column allows, a "fall" word has legal
# uses too. words.counts has the number of lines with the word for each folder; without
# a row it is 0. A count may only fall. Left out are data, corpora, the glossary and the
# list of renamed names.
# Usage: check_words.sh [--write | --table | --show WORD [FOLDER]]
#   --write   lower the counts in words.counts to what the tree has; raises none
#   --table   print all counts
#   --show    print the lines
set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
src=${FDD_SRC:-$(cd "$here/../.." && pwd)}
cd "$src" || exit 1
list=$here/words.list counts=$here/words.counts
files() {
    "$here/dist_files.sh" --list | grep -vE '^(doc/(GLOSSARY\.md|RENAMED\.tsv)|tests/fuzz/corpus/|conf/models/|LICENSE|tests/parity/.*\.(json|txt|bin)|tests/bench/held_out\.txt|tools/dev/demo_chat\.txt|tests/unit/config\.golden|tests/sys/tools\.golden|tests/chat/|tests/sys/tools\.golden|tools/dev/(check_(words|glossary)\.sh|words\.)|tests/mutants/.*\.patch$|tests/findings\.tsv|.*\.(safetensors|png|svg|bin|gz)$)'
}
# One line per hit: word <TAB> folder (of two levels at most) <TAB> file:line:text
hits() { # PATTERN [LEGAL]
    files | tr '\n' '\0' | xargs -0 grep -IHniwE -e "$1" -- 2>/dev/null |
        grep -vE -e "${2:-^\$}"
}
folder() { awk -F: '{ n = split($1, p, "/"); print n == 1 ? "." : n == 2 ? p[1] : p[1] "/" p[2] }'; }
rows() { # kind <TAB> pattern <TAB> folder <TAB> count, of what the tree has
    local kind word legal
    while IFS=$'\t' read -r kind word _ legal; do
        case $kind in never|fall) ;; *) continue ;; esac
        hits "$word" "$legal" | folder | sort | uniq -c |
            awk -v k="$kind" -v w="$word" '{ print k "\t" w "\t" $2 "\t" $1 }'
    done <"$list"
}
case ${1:-} in
--show)
    word=${2:?which word}
    hits "$word" "$(awk -F'\t' -v w="$word" '$2 == w { print $4 }' "$list")" | grep -E "^${3:-.}"
    exit 0 ;;
--table) rows; exit 0 ;;
--write|'') ;;
*) sed -n '4,14s/^# //p' "$0"; exit 64 ;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
rows >"$tmp/now"
awk -F'\t' -v write="${1:-}" -v out="$tmp/new" -v first="$([ -s "$counts" ]; echo $?)" '
    FILENAME == ARGV[1] { may[$1 FS $2 FS $3] = $4; old += $1 == "never" ? $4 : 0; next }
    {
        k = $1 FS $2 FS $3
        now += $1 == "never" ? $4 : 0
        if (!first && $4 > may[k] + 0) {
            printf "%s: \"%s\" in %d lines, %d may be: tools/dev/check_words.sh --show \"%s\" %s\n",
                $3, $2, $4, may[k], $2, $3
            bad = 1
            print k FS may[k] + 0 >out
        } else {
            fell += !first && $4 < may[k]
            print k FS $4 >out
        }
    }
    END {
        printf "words without a use left: %d lines hold one; words with legal uses: see --table\n", now
        exit bad
    }' "$counts" "$tmp/now"
rc=$?
if [ "${1:-}" = --write ]; then
    grep -vP '\t0$' "$tmp/new" >"$counts"
fi
exit $rc
