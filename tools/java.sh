#!/bin/sh
# Finds Java 17 or later, which Spark needs, and prints its home folder. Nothing else of Vivum needs Java.
#
# Looks at JAVA_HOME, then at PATH. Finding none, it installs the distribution's package where it may (root, with apt),
# and otherwise says what to install.

set -eu

say() { printf 'vivum: %s\n' "$*" >&2; }
package=openjdk-17-jre-headless

# Prints the major version of a java program, or nothing. Java 8 and before call themselves 1.8.
major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

# Prints the home of the first Java that is new enough; fails when there is none.
find_java() {
    for each in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java 2>/dev/null || true)"; do
        if [ -n "$each" ] && [ -x "$each" ]; then
            version=$(major "$each")
            if [ "${version:-0}" -ge 17 ]; then
                dirname "$(dirname "$(readlink -f "$each")")"
                return 0
            fi
            say "$each is Java ${version:-of unknown version}: too old for Spark"
        fi
    done
    return 1
}

find_java && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "no Java 17 or later: installing $package"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 || {
        apt-get update -qq >/dev/null 2>&1 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 || true
    }
    unset JAVA_HOME
    find_java && exit 0
fi
say "error: Spark needs Java 17 or later and none was found;" \
    "install one (Debian, Ubuntu: apt-get install $package, as root) or set JAVA_HOME to yours"
exit 1
