#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Who may include whom: one allow-list over the #include lines.
# Usage: check_layers.sh [SRC]; exit 1 with the offending lines.
cd "${1:-${FDD_SRC:-$(dirname "$0")/../..}}" || exit 1
bad=0
rule() { # FOLDER ALLOWED-REGEX (root-relative includes)
    local hits
    hits=$(grep -rnE '^#include "' "$1" --include='*.[ch]' --include='*.cu' --include='*.cuh' |
        grep -vE '#include "(config\.h)"' |
        sed -nE 's/^([^:]+:[0-9]+):#include "([^"]+)".*/\1 \2/p' |
        awk -v ok="^($2)\$" '$2 !~ ok')
    if [ -n "$hits" ]; then
        echo "includes not allowed in $1:"; echo "$hits"; bad=1
    fi
}
proto='libclient/fdproto\.h|libclient/fdring\.h|libclient/fdwhere\.h|libclient/tbl/.*'
rule libclient 'libclient/.*|fdproto\.h|fdring\.h|fdclient\.h|tbl/.*'
rule kernels 'kernels/.*'
rule daemon/common "daemon/common/.*|daemon/tbl/.*|$proto"
rule daemon/gate "daemon/gate/.*|daemon/common/.*|daemon/tbl/.*|$proto"
rule daemon/worker "daemon/worker/.*|daemon/common/.*|daemon/tbl/.*|kernels/.*|$proto"
rule tools "tools/.*|libclient/.*|daemon/common/.*|daemon/tbl/.*"
# the policy knows no tensors
for f in scheduler kvcache req; do
    for h in "daemon/worker/$f.c" "daemon/worker/$f.h"; do
        [ -e "$h" ] || continue
        if grep -nE '#include "(daemon/worker/(runner|model|weights|egress|ingress)|kernels/cpu)' "$h"; then
            echo "$h includes what it must not know"; bad=1
        fi
    done
done
exit $bad
