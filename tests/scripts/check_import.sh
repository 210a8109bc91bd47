#!/bin/sh
# check_import.sh DECODE - runs tests/scripts/check_import.py in build/venv, a virtual environment with the
# packages of scripts/requirements.txt except matplotlib. The environment is made anew when these have
# changed. Where it cannot be made, this says so and checks nothing; in CI that is a failure.
set -eu

cd "$(dirname "$0")/../.."
venv=build/venv needed=build/requirements.txt
mkdir -p build
grep -v '^matplotlib' scripts/requirements.txt >$needed
if ! cmp -s $needed "$venv/requirements.txt"; then
    echo "check-import: making $venv"
    rm -rf "$venv"
    if ! { python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --no-compile -r $needed; }; then
        rm -rf "$venv"
        echo "check-import: skipped: found no python3 with venv, or no network that has the packages of" \
            "scripts/requirements.txt"
        [ -z "${CI:-}" ]
        exit
    fi
    cp $needed "$venv/requirements.txt"
fi
exec "$venv/bin/python" tests/scripts/check_import.py "$1"
