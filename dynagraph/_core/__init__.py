"""The C extensions; where they are not built, importing dynagraph says so."""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("dynagraph._core._dispatch") is None:
    version = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(
        f"dynagraph in {Path(__file__).parents[2]} has no C extension for Python {version}: if that is a source tree, run "
        f"`{sys.executable} -m pip install --editable .` in it, or start Python in another folder to use an installed dynagraph; "
        "else install dynagraph again for this Python"
    )
