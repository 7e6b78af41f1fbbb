"""``torch.utils.collect_env``: what computes, for reports of defects."""

from __future__ import annotations

import platform
import sys

import numpy as np

from dynagraph import __version__ as _version
from dynagraph import cuda
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.version import __version__


def get_pretty_env_info() -> str:
    """The versions of what computes, a line each."""
    return "\n".join([
        f"PyTorch version: {__version__}", f"dynagraph version: {_version}", f"NumPy version: {np.__version__}",
        f"Python version: {sys.version.splitlines()[0]}", f"OS: {platform.platform()}", f"Is CUDA available: {cuda.is_available()}",
    ])  # fmt: skip


def main() -> None:
    """Print it."""
    print(get_pretty_env_info())


__getattr__ = getattr_of(__name__)
__all__ = ["get_pretty_env_info", "main"]

if __name__ == "__main__":
    main()
