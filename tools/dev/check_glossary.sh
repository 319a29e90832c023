#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Check that doc/GLOSSARY.md defines each term once; that the tree has the new public
# names of doc/RENAMED.tsv and no old one, and new names are unique and have no old
# word of the glossary; and that documents use the glossary's terms.
# Usage: check_glossary.sh [SRC]
cd "${1:-${FDD_SRC:-$(dirname "$0")/../..}}" || exit 1
bad=0
say() { echo "$1"; bad=1; }
gloss=doc/GLOSSARY.md list=doc/RENAMED.tsv
rows() { grep -E '^\| ' $gloss | grep -vE '^\| (term|---) '; }

# ---- the glossary: three columns, no term twice, no term among the old words ----
while IFS= read -r line; do
    n=${line//[^|]/}
    [ ${#n} = 4 ] || say "$gloss: not three columns: $line"
done < <(rows)
old_words() { # between backticks, before "Legal:", of the third column; and the last paragraph
    { rows | awk -F'|' '{sub(/Legal.*/, "", $4); print $4}'
      sed -n '/^Words to write around/,$p' $gloss; } | grep -oE '`[^`]+`' | tr -d '`' | sort -u
}
terms() { # "a, b (c)" is two terms
    rows | awk -F'|' '{gsub(/\([^)]*\)/, "", $2); print $2}' | tr ',' '\n' |
        sed 's/^ *//; s/ *$//' | grep .
}
dup=$(terms | sort | uniq -d)
[ -z "$dup" ] || say "$gloss: terms defined twice: $(echo "$dup" | tr '\n' ' ')"
both=$(comm -12 <(terms | sort -u) <(old_words))
[ -z "$both" ] || say "$gloss: both a term and an old word: $(echo "$both" | tr '\n' ' ')"
[ "$(old_words | wc -l)" -ge 60 ] || say "$gloss: only $(old_words | wc -l) old words found: is the table's form right?"

# ---- RENAMED.tsv --------------------------------------------------------------
table() { sed -n '/^[^#]/p' $list | tail -n +2; }
last() { local s=${1##*.}; s=${s##*=}; printf '%s' "$s"; }
counter_row() { # gate.name or worker.name
    local side=${1%%.*}
    grep -qE "^CNT_${side^^}\\(${1#*.}," daemon/tbl/counters.h
}
metric() { # made from a counter's or a histogram's name, or a row of its own
    local side n=${1#fdd_}
    side=${n%%_*} n=${n#*_}
    grep -qwE "${1#fdd_}" daemon/tbl/vllm_names.h && return
    case $side in gate|worker) ;; *) return 1 ;; esac
    counter_row "$side.$n" || counter_row "$side.${n%_total}" ||
        counter_row "$side.$(printf '%s' "${n%_total}" | sed 's/_seconds$/_ns/')"
}
field() { # struct NAME.FIELD of the library
    sed -n "/^${1%.*} {/,/^};/p" libclient/fdclient*.h | sed 's,/\*.*,,' |
        grep -qE "\\b${1##*.}(\\[[^]]*\\])*[,;]"
}
has() { # NAME KIND
    case $2 in
    param) grep -qE "^PAR_[A-Z]+ *\\(${1%%.*}, ${1#*.}," daemon/tbl/params.h ;;
    option) grep -rqF "{ \"${1##*--}\"," tools daemon --include='*.c' ;;
    json) grep -rqF "\"$(last "$1")\"" tools daemon --include='*.c' ;;
    metric) metric "$1" ;;
    counter) counter_row "$1" ;;
    histogram) grep -qE "^CNT_HIST\\($1," daemon/tbl/histograms.h ;;
    topic) grep -qE "^LOG_TOPIC\\($1," daemon/tbl/log_topics.h ;;
    command) grep -qE "^CTL_CMD\\($1," daemon/tbl/ctl_cmds.h ;;
    proto) grep -qwF "$(last "$1")" libclient/fdproto.h ;;
    lib) cat libclient/fdclient*.h | grep -qwF "$(last "$1")" ;;
    field) field "$1" ;;
    file) grep -rqF "/${1%%HASH*}" daemon --include='*.c' ;;
    text) grep -rqF -e "$1" tools daemon --include='*.c' ;;
    *) return 2 ;;
    esac
}
# Kinds whose old names have no other meaning. A JSON key is not among them: it may be
# the key of another answer.
exact=" topic counter histogram command param metric lib field file text "
while IFS=$'\t' read -r old new kind rest; do
    if [ -z "$old" ] || [ -z "$new" ] || [ -z "$kind" ] || [ -n "$rest" ]; then
        say "$list: not three columns: $old $new $kind $rest"
        continue
    fi
    [ "$old" != "$new" ] || say "$list: $old stays as it is"
    has "$new" "$kind"
    case $? in
    0) ;;
    2) say "$list: unknown kind $kind of $old"; continue ;;
    *) say "$list: the tree has no $kind $new" ;;
    esac
    case $exact in *" $kind "*) has "$old" "$kind" && say "$list: the tree still has the $kind $old" ;; esac
done < <(table)
dup=$(table | awk -F'\t' '{print $3 " " $2}' | sort | uniq -d; table | cut -f 1,3 | sort | uniq -d)
[ -z "$dup" ] || say "$list: twice: $dup"
while IFS= read -r w; do
    hit=$(table | grep -v -e 'FDC_D_BAD_WORDS' -e 'fdc_model_info\.name' | cut -f 2 | tr '._' '  ' | grep -iwF -- "$w")
    [ -z "$hit" ] || say "$list: new name holds the old word '$w': $hit"
done < <(old_words)

# ---- documents that are younger than the glossary -----------------------------------
# Old words that are wrong in every sense: nobody has to read the sentences that a search finds.
never='beside|anew|so many|nobody|what waits|whoever|made step|company|drain rate|lanes? of users?'
never="$never|cards?|ceilings?|share of the ceiling|structural lie|side request|side requests|let go of"
for f in doc/*.md AUTHORS CHANGELOG.md CONTRIBUTING.md SECURITY.md; do
    { [ -e "$f" ] && [ "$f" != $gloss ]; } || continue
    # leave out lines between ```: they name code
    hits=$(awk '/^```/ { c = !c } c { $0 = "" } { print }' "$f" | grep -niwE "$never") && say "$f: old words ($gloss):
$hits"
done
exit $bad
