"""The C extensions; where they are not built, importing dynagraph says so."""

import os
import sys
from importlib.util import find_spec

if find_spec("dynagraph._core._dispatch") is None:
    version = ".".join(map(str, sys.version_info[:2]))
    folder = os.path.abspath(os.path.join(__file__, *[os.pardir] * 3))
    raise ImportError(
        f"dynagraph in {folder} has no C extension for Python {version}: if that is a source tree, run "
        f"`{sys.executable} -m pip install --editable .` in it, or start Python in another folder to use an installed dynagraph; "
        "else install dynagraph again for this Python"
    )
