"""``torch.__config__``: what the library was built with."""

from __future__ import annotations

import platform

import numpy as np

from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.version import __version__


def show() -> str:
    """A text about the build."""
    return f"dynagraph.torch {__version__}\n  - Python {platform.python_version()}, NumPy {np.__version__}\n  - USE_MKL=OFF\n"


def parallel_info() -> str:
    """A text about threads."""
    threads = NAMESPACES["torch"]["get_num_threads"]()
    return f"dynagraph.torch's thread pool:\n\ttorch.get_num_threads() : {threads}\n"


__all__ = ["parallel_info", "show"]
