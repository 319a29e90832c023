#!/bin/bash
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# G23: the page works under its Content-Security-Policy, and by keyboard only, in headless
# Chromium. Skipped without Chromium. FDD_SHOTS=DIR saves screenshots too.
. "$(dirname "$0")/lib.sh"
[ -z "${FDD_SAN_RUN:-}" ] || skip "a browser's time is not that of a sanitizer build"
browser=
for b in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $b)
done
[ -n "$browser" ] || skip "no chromium (apt-get install chromium)"
# a slow model, so that an answer can be stopped even on a fast machine
start --set model.path="$DEMO" --set device.step_delay_us=5000
template=$DEMO/chat_template.jinja

# the page's headers, size, HEAD, and the parameter that turns it off
gateway --set chat.template="$template"
curl -sS -D "$dir/head" "$url/" -o "$dir/page.html"
[ "$(stat -c %s "$dir/page.html")" -le 40960 ] || fail "the page is larger than 40 KiB"
cmp -s "$dir/page.html" "$FDD_SRC/http/page.html" || fail "the page is not http/page.html"
grep -qi "^content-security-policy: default-src 'none'; script-src 'sha256-[A-Za-z0-9+/]*='; " "$dir/head" ||
    fail "no policy: $(cat "$dir/head")"
! grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|<link|<img|url\(' "$dir/page.html" ||
    fail "the page has what its policy forbids"
! grep -oE 'https?://[^"]*' "$dir/page.html" | grep -v '^http://www.w3.org/2000/svg$' || fail "the page names others"
has "$(curl -sSI "$url/")" "Content-Length: $(stat -c %s "$dir/page.html")"
has "$(curl -sS -H 'Host: evil.example' "$url/")" host_not_local
# live figures: one flat object of at most 1 KiB, complete after the first request
until_true 10 sh -c "curl -sS '$url/fdd/live' | grep -q '\"users\":0'" || fail "no figures: $(curl -sS "$url/fdd/live")"
[ "$(curl -sS "$url/fdd/live" | wc -c)" -le 1024 ] || fail "the figures are larger than 1 KiB"
FDD_CTL="$FDCTL --runtime-dir $run" FDD_BROWSER=$browser FDD_DIR=$dir py "$gw/g23_page.py" || fail "see above"
gateway_stop

printf %s secret-key | sha256sum | sed 's/ .*/ someone/' >"$dir/keys"
gateway --set chat.template="$template" --set keys.file="$dir/keys"
[ "$(curl -s -o /dev/null -w '%{http_code}' "$url/")" = 200 ] || fail "the page wants a key"
[ "$(curl -s -o /dev/null -w '%{http_code}' "$url/fdd/live")" = 401 ] || fail "figures without a key"
FDD_BROWSER=$browser FDD_DIR=$dir py "$gw/g23_page.py" keys || fail "see above"
gateway_stop

gateway --set http.page=no
has "$(curl -sS "$url/")" 'page_off'
[ "$(curl -s -o /dev/null -w '%{http_code}' "$url/")" = 404 ] || fail "http.page = no, and the page is there"
gateway_stop
stop
