"""The error for files that cannot be read."""

from __future__ import annotations

import pickle


class LoadError(RuntimeError, pickle.UnpicklingError):
    """A file is damaged, cut off, or not what it says it is.  It is both of the errors that PyTorch raises for such files."""


__all__ = ["LoadError"]
