#!/bin/sh
# Installs packages of Debian that are missing, where that is possible, and says so where it is not. Never fails: what
# needs one of them is skipped with the reason.
#
#     tools/packages.sh nats-server redis-server

set -eu
missing=
for package in "$@"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    printf 'vivum: installing%s\n' "$missing" >&2
    for package in $missing; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 && continue
        apt-get update -qq >/dev/null 2>&1 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 \
            || printf 'vivum: %s cannot be installed; what needs it is skipped\n' "$package" >&2
    done
else
    printf 'vivum: not installed:%s; what needs them is skipped (as root: apt-get install%s)\n' "$missing" "$missing" >&2
fi
