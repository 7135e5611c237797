#!/bin/sh
# Does what README.md says, literally, as an ordinary user in a fresh clone and a fresh virtual environment: once with a
# compiler and once without (and without `make demo`, which would be the same). Prints the time from the clone to the first message.
#
#     tools/newcomer.sh          needs root, to become an ordinary user; else it is tried as who you are
#
# PYTHON names the interpreter that the user has as python3; it must be readable for everybody.

set -eu
cd "$(dirname "$0")/.."
repository=$(pwd -P)
python=${PYTHON:-/usr/bin/python3}
java_home=$(tools/java.sh)
user=nobody
say() { printf 'vivum: %s\n' "$*"; }

for compiler in with without; do
    folder=$(mktemp -d "${TMPDIR:-/tmp}/vivum-newcomer.XXXXXX")
    trap 'rm -rf "$folder"' EXIT INT TERM
    mkdir "$folder/home" "$folder/bin"
    ln -s "$python" "$folder/bin/python3"
    began=$(date +%s)
    git clone -q "file://$repository" "$folder/vivum"
    say "$compiler a compiler, in $folder/vivum"
    set -- env -u VIRTUAL_ENV -u PYTHONPATH HOME="$folder/home" JAVA_HOME="$java_home" \
        VIVUM_DOMAIN="newcomer-$$" PATH="$folder/bin:/usr/local/bin:/usr/bin:/bin"
    # setuptools takes the compiler from CC.
    options=
    if [ "$compiler" = without ]; then
        set -- "$@" CC=/nonexistent/cc CXX=/nonexistent/c++
        options=--no-make
    fi
    if [ "$(id -u)" = 0 ]; then
        chown -R "$user" "$folder"
        set -- setpriv --reuid "$user" --regid nogroup --clear-groups "$@"
    fi
    if ! (cd "$folder/vivum" && "$@" python3 tools/newcomer.py README.md $options) >"$folder.log" 2>&1; then
        cat "$folder.log" >&2
        say "error: the README does not do what it says, $compiler a compiler"
        exit 1
    fi
    wanted=compiled
    [ "$compiler" = with ] || wanted='plain Python'
    grep -q "^  vivum .*, $wanted\$" "$folder.log" || { say "error: the install is not: $wanted"; exit 1; }
    say "$compiler a compiler: $(sed -n 's/^first message //p' "$folder.log"), all of it $(($(date +%s) - began)) s"
    rm -rf "$folder" "$folder.log"
done
