"""Which frames the frame hook captures: the user's own, never the standard library's or NumPy's."""

from __future__ import annotations

import sysconfig
import types

from dynagraph.frontend.executor.calls import OPAQUE_PACKAGES

STANDARD_LIBRARY = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
SITE_PACKAGES = ("site-packages", "dist-packages")


def may_be_captured(function: types.FunctionType, code: types.CodeType) -> bool:
    """Whether a function is the user's, and not disabled."""
    if getattr(function, "__dynagraph_disabled__", False):
        return False
    module = str(function.__globals__.get("__name__", ""))
    if module.split(".")[0] in OPAQUE_PACKAGES or code.co_filename.startswith("<frozen"):
        return False
    in_library = code.co_filename.startswith(STANDARD_LIBRARY) and not any(s in code.co_filename for s in SITE_PACKAGES)
    return not in_library
