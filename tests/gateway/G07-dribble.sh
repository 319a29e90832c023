#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G7: 1,000 clients that send byte by byte are ended at their time limit and delay no
# other: neither while they send, nor when all reach the limit together, as the loop ends
# only a few in an iteration (checked by strace if installed). FDD_LONG, on an idle
# machine and without strace: the p99 of other clients grows by less than 1 ms, and slow
# bodies are ended too.
. "$(dirname "$0")/lib.sh"
bodies=0 limit=6 calls=
[ -z "${FDD_LONG:-}" ] || { bodies=300 limit=16; }
if [ -z "${FDD_LONG:-}${FDD_SAN_RUN:-}" ] && strace -o /dev/null true 2>/dev/null; then
    calls=$dir/calls real=$HTTP HTTP=$dir/traced
    cat >"$HTTP" <<T
#!/bin/sh
exec strace -D -f -qq -e trace=epoll_wait,sendto -o "$calls" "$real" "\$@"
T
    chmod 755 "$HTTP"
fi
gateway_launch --set http.header_timeout_ms=2000 --set http.max_per_address=2000
says=$("$FDD_BUILD/tests/gateway/dribble" "$port" 1000 "$bodies" $((limit * slow))) || fail "$says"
echo "$says"
read -r with alone <<<"$(sed -E 's/.*others.* p99 ([0-9]+),.* alone [0-9]+, ([0-9]+),.*/\1 \2/' <<<"$says")"
if [ -n "${FDD_LONG:-}" ]; then
    [ $((with - alone)) -lt 1000 ] || fail "others wait for $with us instead of $alone"
else
    [ "$with" -lt $((1000000 * slow)) ] || fail "others wait for $with us"
fi
gateway_stop
[ -n "$calls" ] || exit 0
ends=$(awk '/epoll_wait/ { n = 0 } / 408 / { if (++n > most) most = n; all++ } END { print most + 0, all + 0 }' "$calls")
echo "at most ${ends% *} ends in a loop iteration, ${ends#* } in all"
[ "${ends#* }" -ge 900 ] || fail "strace has not seen them"
[ "${ends% *}" -le 64 ] || fail "others wait until all that reached their limit are told"
