#!/bin/sh
# Builds the site of the documentation into build/site. Warnings are errors, and links are checked.
#
# It has an environment of its own in build/docs: what builds pages has nothing to do with what runs.

set -eu
cd "$(dirname "$0")/.."
venv=build/docs/venv
if [ ! -x "$venv/bin/mkdocs" ]; then
    echo "vivum: installing mkdocs into $venv"
    ${PYTHON:-.venv/bin/python} -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check \
        'mkdocs-material>=9.5' 'mkdocstrings[python]>=0.27' msgspec 2>/dev/null || {
        echo "vivum: error: mkdocs could not be installed from the package index" >&2
        exit 1
    }
fi
"$venv/bin/python" tools/docs.py build/docs/pages
# Not --quiet: it hides warnings from --strict.
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --config-file build/docs/mkdocs.yml \
    --site-dir "$(pwd -P)/build/site" >build/docs/build.log 2>&1 || {
    cat build/docs/build.log >&2
    exit 1
}
echo "vivum: the site is in build/site/index.html: $(find build/site -name '*.html' | wc -l) pages"
