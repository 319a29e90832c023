#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G7: 1,000 clients that send byte by byte end at their limit and delay no one: neither while
# they dribble, nor when all of them reach it together. FDD_LONG, on an idle machine: the
# others' p99 grows by less than a millisecond, and bodies that dribble end too.
. "$(dirname "$0")/lib.sh"
gateway_launch --set http.header_timeout_ms=2000 --set http.max_per_address=2000 --set log.access=yes
bodies=0 limit=6
[ -z "${FDD_LONG:-}" ] || { bodies=300 limit=16; }
says=$("$FDD_BUILD/tests/gateway/dribble" "$port" 1000 "$bodies" $((limit * slow))) || fail "$says"
echo "$says"
read -r with alone <<<"$(sed -E 's/.*others.* p99 ([0-9]+),.* alone [0-9]+, ([0-9]+),.*/\1 \2/' <<<"$says")"
if [ -n "${FDD_LONG:-}" ]; then
    [ $((with - alone)) -lt 1000 ] || fail "others wait for $with us instead of $alone"
else
    [ "$with" -lt $((200000 * slow)) ] || fail "others wait for $with us"
fi
# the loop ends a few of them in an iteration, and answers others in between
run=$(awk '/ status 408 / { if (++n > most) most = n } / status 200 / { n = 0 } END { print most + 0 }' "$dir/http.log")
echo "at most $run of them ended before another was answered"
[ "$run" -gt 0 ] && [ "$run" -lt 600 ] || fail "others wait until all that reached their limit are told"
gateway_stop
