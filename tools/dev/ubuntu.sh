# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that make trees of Ubuntu with mmdebstrap, also on Debian.
#   ubuntu_key SUITE CACHE   print the file with the archive's key; 1: there is none,
#                            and CACHE/SUITE.out has the reason
# Debian has no package of that key: the one with this fingerprint is extracted from
# the archive's own package and kept in CACHE.
ubuntu_key() {
    local suite=$1 cache=$2 fpr=F6ECB3762474EDA9D21B7022871920D1991BC93C
    local key=$cache/ubuntu-archive.gpg own=/usr/share/keyrings/ubuntu-archive-keyring.gpg work rc=0
    if [ -e "$own" ]; then echo "$own"; return; fi
    if [ -e "$key" ]; then echo "$key"; return; fi
    command -v gpg >/dev/null || { echo "E: no gpg to check Ubuntu's key with" >"$cache/$suite.out"; return 1; }
    work=$(mktemp -d "${TMPDIR:-/tmp}/fdd-key.XXXXXX") || return 1
    chmod 755 "$work"
    mmdebstrap --quiet --variant=extract --include=ubuntu-keyring \
        --aptopt='Acquire::AllowInsecureRepositories "true"' \
        --aptopt='APT::Get::AllowUnauthenticated "true"' \
        "$suite" "$work/key" >"$cache/$suite.out" 2>&1 &&
        mkdir -m 700 "$work/gpg" &&
        gpg -q --homedir "$work/gpg" --no-default-keyring \
            --keyring "$work/key/usr/share/keyrings/ubuntu-archive-keyring.gpg" \
            --export "$fpr" >"$key.new" 2>>"$cache/$suite.out" &&
        [ -s "$key.new" ] && mv "$key.new" "$key" || rc=1
    rm -rf --one-file-system "$work"
    [ $rc = 0 ] && echo "$key"
    return $rc
}
