#!/bin/sh
# Make a virtual environment with the interpreter PYTHON; if that is python3, with the first one that is new enough.
# Usage: PYTHON=python3 make-venv.sh FOLDER
set -eu
folder=$1

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

set -- "$PYTHON"
[ "$PYTHON" != python3 ] || set -- python3 python3.13 python3.12 python3.11 python3.14
for candidate in "$@"; do
    if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
        echo "Creating $folder with $("$candidate" --version) ..."
        if "$candidate" -m venv --clear "$folder"; then
            exit 0
        fi
        echo "error: $candidate cannot make a virtual environment" >&2
        echo >&2
        echo "hint: install its venv module (on Debian and Ubuntu: apt install python3-venv)" >&2
        exit 1
    fi
done

echo "error: no Python 3.11 or newer found (looked for $*)" >&2
echo >&2
echo "hint: install Python 3.11 or newer, or name it: make train PYTHON=/path/to/python3.11" >&2
exit 1
