"""Packages that some datasets need, and others do not: an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, package: str, what: str) -> Any:
    """A module of an optional package; ImportError says what needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs {package}: pip install {package}", name=module) from error


def image_of(array: Any, what: str) -> Any:
    """An image of Pillow's: of (H, W) or (H, W, C) numbers of uint8."""
    return needed("PIL.Image", "pillow", what).fromarray(array)


__all__ = ["image_of", "needed"]
