"""``torch.sparse.FloatTensor(indices, values, size)`` and its kin: constructors from before `sparse_coo_tensor`, and types."""

from __future__ import annotations

import copyreg
import warnings
from typing import Any

from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.functions.legacy import tensortype
from dynagraph.torch.functions.sparse import COOTensor
from dynagraph.torch.functions.sparse_creation import sparse_coo_tensor

_warned: set[str] = set()


class sparsetensortype(tensortype):
    """The type of ``torch.sparse.FloatTensor``: its instances are COO tensors of the dtype."""

    is_sparse = True

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, COOTensor) and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, size: Any = None, device: Any = None) -> COOTensor:
        where = "cpu" if device is None else devices.device(device).type
        if where != "cpu":
            raise RuntimeError(f"legacy constructor expects device type: cpu but device type: {where} was passed")
        if 2 <= len(args) <= 3 and isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
            _warn("indices, values" + ", shape" * (len(args) == 3 or size is not None))
            if args[0].dtype is not dtypes.int64:
                raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_name(args[0].dtype)}")
            return sparse_coo_tensor(args[0], args[1], args[2] if len(args) == 3 else size)
        shape = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else (args or (0,) if size is None else size)
        if not all(isinstance(n, int) for n in shape):
            raise TypeError(
                f"new() received an invalid combination of arguments - got ({', '.join(type(a).__name__ for a in args)}); "
                f"torch.sparse.{cls.__name__} takes (Tensor indices, Tensor values), (Tensor indices, Tensor values, size) or sizes"
            )
        _warn("shape")
        return sparse_coo_tensor(shape, dtype=cls.dtype)


def _warn(given: str) -> None:
    """Once in a process for each form, as PyTorch does."""
    if given in _warned:
        return
    _warned.add(given)
    warnings.warn(
        f"torch.sparse.SparseTensor({given}, *, device=) is deprecated.  Please use "
        f"torch.sparse_coo_tensor({given}, dtype=, device=).",
        UserWarning,
        stacklevel=3,
    )


_NAMED = ("BFloat16", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")  # those that PyTorch has
TYPES = {
    d.legacy: sparsetensortype(d.legacy, (), {"__module__": "torch.sparse", "dtype": d, "_legacy_dtype": d, "is_cuda": False})
    for d in dtypes.ALL
    if d.legacy.removesuffix("Tensor") in _NAMED
}
NAMESPACES.setdefault("sparse", {}).update(TYPES)


def _type_named(name: str) -> sparsetensortype:
    return TYPES[name]


copyreg.pickle(sparsetensortype, lambda kind: (_type_named, (kind.__name__,)))  # type: ignore[arg-type]

__all__ = ["TYPES", "sparsetensortype"]
