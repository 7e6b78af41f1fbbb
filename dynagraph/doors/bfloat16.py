"""bfloat16 arrays: which functions are captured.  NumPy has bfloat16 from ml_dtypes, CuPy has its own.

ml_dtypes computes in float32 and rounds each result, as kernels do; but it has no loop for every ufunc, NumPy's own functions take
its dtype for one of bytes (it is no `np.inexact`), and its sums are rounded at every step.  So the tables name what means the same;
anything else breaks, and runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.doors.numpy import Door, Unsupported
from dynagraph.doors.numpy.builder import Chosen, is_weak, leaves
from dynagraph.doors.numpy.elementwise import UFUNCS
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.python_operators import BINARY, UNARY

# by the names of doors
_OPERATORS = [s for s, row in (BINARY | UNARY).items() if row.ufunc in UFUNCS and UFUNCS[row.ufunc].bfloat16]
_ELEMENTWISE = [ufunc.__name__ for ufunc, row in UFUNCS.items() if row.bfloat16]
_MADE_AND_MOVED = [
    "where", "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "eye", "identity", "array",
    "asarray", "asanyarray", "ascontiguousarray", "copy", "astype", "reshape", "ravel", "transpose", "swapaxes", "moveaxis",
    "rollaxis", "matrix_transpose", "expand_dims", "squeeze", "broadcast_to", "broadcast_arrays", "concatenate", "stack", "vstack",
    "hstack", "dstack", "column_stack", "append", "split", "array_split", "hsplit", "vsplit", "dsplit", "unstack", "atleast_1d",
    "atleast_2d", "atleast_3d", "roll", "rot90", "flip", "fliplr", "flipud", "tile", "repeat", "tril", "triu", "diag", "diagonal",
    "take", "take_along_axis", "shape", "ndim", "size", "real", "isscalar", "iscomplexobj", "isrealobj", "result_type", "can_cast",
    "ndarray.astype", "ndarray.conj", "ndarray.conjugate", "ndarray.copy", "ndarray.fill", "ndarray.flatten", "ndarray.reshape",
    "ndarray.swapaxes", "ndarray.to_device", "ndarray.transpose",
]  # fmt: skip
_CHOOSING = ["amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "ndarray.any", "ndarray.all"]
_SUMS = ["sum", "prod", "mean"]
_ANYWHERE = [*_OPERATORS, "getitem", "len", *_ELEMENTWISE, *_MADE_AND_MOVED, *_CHOOSING, "@", "matmul"]
IN_NUMPY = frozenset((*_ANYWHERE, "divmod"))
# CuPy's kernels sum in float32, as ours do; its where() gives float32; degrees and radians of its have not been compared
ON_DEVICE = frozenset((*_ANYWHERE, *_SUMS)) - {"where", "degrees", "radians"}
ON_TAPE = IN_NUMPY | ON_DEVICE  # where values are those of the plain run, and only gradients are computed otherwise
# of CuPy's where operands are of one dtype: which one it makes of two is its own affair
_OF_ONE_DTYPE = frozenset(("concatenate", "stack", "vstack", "hstack", "@", "matmul"))


def check(door: Door, given: Any, result: Any, names: frozenset[str], is_scalar: Callable[[Node], bool]) -> None:
    """Refuse a call that takes or gives bfloat16 and may mean something else than what the door has made of it.

    `names`: the doors that are open: `IN_NUMPY`, `ON_DEVICE` or `ON_TAPE`.
    """
    nodes = [x for x in leaves(given) if isinstance(x, Node)]
    operands = [n for n in nodes if n.dtype is dtypes.bfloat16]
    made = [x.data if isinstance(x, Chosen) else x for x in leaves(result) if isinstance(x, (Node, Chosen))]
    if not operands and not any(n.dtype is dtypes.bfloat16 for n in made):
        return
    if door.name not in names and not door.has_effect:  # functions with effects are ours, and called as they are
        raise Unsupported("UNSUPPORTED_DTYPE", f"{door.name}: of bfloat16")
    if isinstance(result, Chosen):
        raise Unsupported("UNSUPPORTED_DTYPE", f"{door.name}: what a mask chooses of an array of bfloat16")
    if operands and all(map(is_scalar, nodes)) and names is not ON_TAPE:
        raise Unsupported("UNSUPPORTED_DTYPE", f"{door.name}: of scalars of bfloat16 alone, which are ml_dtypes' affair")
    mixed = any(n.dtype not in (dtypes.bfloat16, dtypes.bool_) for n in nodes) or any(map(is_weak, leaves(given)))
    if names is ON_DEVICE and door.name in _OF_ONE_DTYPE and mixed:
        raise Unsupported("UNSUPPORTED_DTYPE", f"CuPy: {door.name} of bfloat16 and another dtype")


__all__ = ["IN_NUMPY", "ON_DEVICE", "ON_TAPE", "check"]
