"""``torch.sparse``: functions of sparse tensors."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.functions import sparse_ops as _functions
from dynagraph.torch.functions import sparse_types as _types
from dynagraph.torch.functions.common import publish
from dynagraph.torch.missing import getattr_of

del _functions, _types  # their imports have filled the namespace
publish(globals(), "sparse")


class check_sparse_tensor_invariants:
    """Whether the parts of sparse tensors are checked to fit when they are made: here they always are."""

    def __init__(self, enable: bool = True):
        self.enabled = enable

    @staticmethod
    def is_enabled() -> bool:
        """True."""
        return True

    @staticmethod
    def enable() -> None:
        """Nothing: parts are always checked."""

    @staticmethod
    def disable() -> None:
        """Nothing: parts are always checked."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function


__getattr__ = getattr_of(__name__)
