#!/usr/bin/env bash
# Prints the newest interpreter of a minor version, from pyenv, else from PATH; nothing where there is none.
#   scripts/find_python.sh 3.12
set -euo pipefail
version=$1
if command -v pyenv >/dev/null 2>&1; then
    root=$(pyenv root)
    ls -d "$root/versions/$version".*/bin/python 2>/dev/null | sort -V | tail -n 1 | grep . && exit 0
fi
command -v "python$version" || true
