"""Functions that PyTorch has removed, and names that say what a tensor is not: errors that say what to use instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES

_REMOVED = "This function was deprecated since version 1.9 and is now removed. "
_INSTEAD = {
    "eig": "`torch.linalg.eig`, or `torch.linalg.eigvals`, gives complex tensors.",
    "lstsq": "`torch.linalg.lstsq` has reversed arguments, and gives residuals in a field of their own.",
    "matrix_rank": "Please use the `torch.linalg.matrix_rank` function instead; its parameter 'symmetric' is 'hermitian' there.",
    "solve": "`torch.linalg.solve` has its arguments reversed, and gives no LU factorization: that is `torch.linalg.lu_factor`'s.",
    "symeig": "`torch.linalg.eigh`, or `torch.linalg.eigvalsh`, takes the lower triangle unless UPLO='U'.",
}


def _refusing(name: str, text: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(text)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Removed from PyTorch: {text}"
    return refuse


for _name, _text in _INSTEAD.items():
    _function = _refusing(_name, _REMOVED + _text)
    NAMESPACES["torch"][_name] = _function
    if _name != "matrix_rank":
        setattr(Tensor, _name, _function)
Tensor.reinforce = _refusing(  # type: ignore[attr-defined]
    "reinforce", "reinforce() was removed.\nUse torch.distributions instead.\nSee https://pytorch.org/docs/main/distributions.html"
)


def _resize(self: Tensor, *sizes: Any) -> Any:
    """`reshape`; deprecated."""
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    return self.reshape(*sizes)  # type: ignore[attr-defined]


def _resize_as(self: Tensor, tensor: Tensor) -> Any:
    """`reshape` to another tensor's shape; deprecated."""
    warnings.warn("non-inplace resize_as is deprecated", stacklevel=2)
    return self.reshape(tensor.shape)  # type: ignore[attr-defined]


def _const_data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return self.data_ptr()  # type: ignore[attr-defined, no-any-return]


def _is_distributed(self: Tensor) -> bool:
    """False."""
    return False


Tensor.resize, Tensor.resize_as = _resize, _resize_as  # type: ignore[attr-defined]
Tensor.const_data_ptr, Tensor.is_distributed = _const_data_ptr, _is_distributed  # type: ignore[attr-defined]
for _name in ("is_maia", "is_mtia", "is_vulkan", "volatile"):
    setattr(Tensor, _name, property(lambda self: False))
Tensor.name = property(lambda self: None)  # type: ignore[attr-defined]

__all__: list[str] = []
