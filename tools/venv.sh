#!/bin/sh
# Makes .venv and installs Vivum into it, or does nothing when that has been done.
#
#     tools/venv.sh base       the library alone: what `pip install .` gives
#     tools/venv.sh spark      with the data pipeline: PySpark is 450 MB and takes a minute or two
#     tools/venv.sh dev        with everything that tests and lint need
#     tools/venv.sh bench      with the peers that benchmarks compare with, too
#
# What was installed is remembered in .venv/vivum-<set>.stamp: a checksum of all that decides the result (the files
# below, the place of the clone, the compiler), and one of the sources that are compiled. The stamp is removed before pip
# starts and written after it has ended well, so a failed or interrupted install is done again. Where only compiled sources
# changed, the sets of developers compile these again and install nothing. A lock lets two makes, or two targets of
# `make -j2`, run at once.
#
# PYTHON=/path/to/python names the interpreter; else the newest of those that are known to work is taken.

set -eu

say() { printf 'vivum: %s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

cd "$(dirname "$0")/.."
here=$(pwd -P)
set_name=${1:-base}
case $set_name in
    base) target=. what="the library" ;;
    spark) target='.[spark]' what="the library and Spark" ;;
    dev) target='.[dev]' what="the library, its tests and its linters" ;;
    bench) target='.[dev,bench]' what="the library, its tests and the peers that it is compared with" ;;
    *) fail "tools/venv.sh knows the sets 'base', 'spark', 'dev' and 'bench', not '$set_name'" ;;
esac
venv_python=.venv/bin/python

# The checksum of everything that decides what an install gives, but for the compiled sources.
wanted_install() {
    {
        printf '%s\n' "$here"
        command -v cc || command -v gcc || command -v clang || true
        cat pyproject.toml tools/venv.sh
        [ ! -f setup.py ] || cat setup.py
    } | cksum
}

# The checksum of the sources that are compiled: a module of plain Python has its declarations (.pxd) beside it.
wanted_build() {
    find src -name '*.pyx' -o -name '*.pxd' | LC_ALL=C sort | while read -r file; do
        for each in "$file" "${file%.pxd}.py"; do
            [ ! -f "$each" ] || { printf '%s\n' "$each"; cat "$each"; }
        done
    done | cksum
}

wanted() { printf '%s; %s\n' "$(wanted_install)" "$(wanted_build)"; }

# Tells whether .venv was made with the interpreter that PYTHON names; true when it names none.
same_python() {
    [ -n "${PYTHON:-}" ] || return 0
    identity='import sys; print(sys.version, sys.base_prefix)'
    [ "$("$PYTHON" -c "$identity" 2>/dev/null)" = "$("$venv_python" -c "$identity" 2>/dev/null)" ]
}

fresh() {
    [ -f ".venv/vivum-$set_name.stamp" ] && [ -x "$venv_python" ] \
        && [ "$(cat ".venv/vivum-$set_name.stamp")" = "$(wanted)" ] && same_python
}

python_works() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Prints the interpreter to use, by its real path: a pyenv shim or a PATH entry may mean another one tomorrow.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 || fail "PYTHON=$PYTHON is not a program; give the path of a Python 3.11 or later"
        python_works "$PYTHON" || fail "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 | head -n 1); Vivum needs Python 3.11 or later"
        "$PYTHON" -c 'import sys; print(sys.executable)'
        return
    fi
    for each in python3.13 python3.12 python3.11 python3; do
        if python_works "$each"; then
            "$each" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    found=$(python3 --version 2>/dev/null) || found="none at all"
    fail "no Python 3.11 or later was found ($found);" \
        "install one (Debian 12, Ubuntu 24.04: apt-get install python3 python3-venv) or name yours: make PYTHON=/path/to/python3.12"
}

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null 2>&1 && return
    apt-get update -qq >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

# Debian ships Python without ensurepip, so `python -m venv` alone fails there. Ways that change nothing outside this
# folder come first.
make_venv() {
    python=$1
    rm -rf .venv
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv .venv
        return
    fi
    if "$python" -m virtualenv --version >/dev/null 2>&1; then
        "$python" -m virtualenv -q .venv
        return
    fi
    if "$python" -m venv --without-pip .venv 2>/dev/null \
        && "$python" -m pip --python "$venv_python" install -q pip >/dev/null 2>&1; then
        return
    fi
    rm -rf .venv
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if can_apt; then
        say "$python has no venv module: installing $package"
        apt_install "$package" 2>/dev/null || apt_install python3-venv || true
        if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            "$python" -m venv .venv
            return
        fi
    fi
    fail "$python cannot make virtual environments;" \
        "install its venv module (Debian, Ubuntu: apt-get install $package, as root) or virtualenv, then try again"
}

if fresh; then
    # Git may have written a source anew as it was: what was compiled of it is as new as that.
    find src -name '*.so' -exec touch {} +
    exit 0
fi
[ -w . ] || fail "$here is not writable for $(id -un); clone the repository to a folder of your own"

# Another make may be at it. The script's own file is the lock: nothing is left behind, and a dead holder lets go.
exec 9<tools/venv.sh
if command -v flock >/dev/null 2>&1 && ! flock -n 9; then
    say "another make is installing: waiting for it"
    flock 9
fi
if fresh; then
    exit 0
fi

# Whether all but the compiled sources is as it was installed. The sets of developers have Cython.
installed() {
    case $set_name in dev | bench) ;; *) return 1 ;; esac
    stamp=.venv/vivum-$set_name.stamp
    [ -f "$stamp" ] && [ "$(sed 's/;.*//' "$stamp")" = "$(wanted_install)" ] && same_python
}

if installed; then
    say "compiling what has changed"
    checksum=$(wanted)
    "$venv_python" setup.py -q build_ext --inplace >.venv/build.log 2>&1 || {
        cat .venv/build.log >&2
        fail "the sources could not be compiled; the lines above say why"
    }
    for each in .venv/vivum-*.stamp; do printf '%s\n' "$checksum" >"$each"; done
    exit 0
fi

python=$(find_python)
rm -f .venv/vivum-*.stamp
# An environment of another interpreter, half made, or copied from another folder is of no use.
if [ -d .venv ]; then
    made_with=$("$venv_python" -c 'import sys, pip; print(sys.prefix)' 2>/dev/null) || made_with=
    if [ "$made_with" != "$here/.venv" ]; then
        say "the .venv that is here does not work: making a new one"
        rm -rf .venv
    elif [ -f .venv/vivum-place ] && [ "$(cat .venv/vivum-place)" != "$here" ]; then
        say "the .venv that is here was made in another folder: making a new one"
        rm -rf .venv
    elif ! same_python; then
        say "the .venv that is here was made with another Python: making a new one"
        rm -rf .venv
    fi
fi
if [ ! -d .venv ]; then
    say "making .venv with $("$python" --version) ($python)"
    make_venv "$python"
    printf '%s\n' "$here" >.venv/vivum-place
fi

say "installing $what into .venv (a minute or two the first time); all that pip says is in .venv/install.log"
checksum=$(wanted)
# No user-wide install and no foreign PYTHONPATH may leak in; pip prints what went wrong, and only that.
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV 2>/dev/null || true
log=.venv/install.log
began=$(date +%s)

# Print the steps of pip that take long, with the time since the start. All else is in the log.
show_steps() {
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        case $line in
            "Collecting "* | "  Downloading "* | "Obtaining "* | "Building "* | "Installing collected packages"* | *"still running"*)
                took=$(($(date +%s) - began))
                printf '  %3d s  %s\n' "$took" "$(printf '%.100s' "${line#  }")" >&2
                ;;
        esac
    done
}

: >"$log"
{
    "$venv_python" -m pip install --disable-pip-version-check --progress-bar off -e "$target" 2>&1 || touch "$log.failed"
} | show_steps
if [ -e "$log.failed" ]; then
    rm -f "$log.failed"
    grep -v '^WARNING: Location .* is ignored' "$log" >&2 || true
    fail "pip could not install $what; the lines above say why. Nothing needs cleaning: run the same command again"
fi
printf '%s\n' "$checksum" >.venv/stamp.new
[ "$set_name" = base ] || cp .venv/stamp.new .venv/vivum-base.stamp
case $set_name in dev | bench) cp .venv/stamp.new .venv/vivum-spark.stamp ;; esac
[ "$set_name" != bench ] || cp .venv/stamp.new .venv/vivum-dev.stamp
mv .venv/stamp.new ".venv/vivum-$set_name.stamp"
