"""What the functions of linear algebra share: checks, LAPACK's errors, factors that NumPy does not give, gradients of rows.

Matrices stand in the last two dimensions.  Results lie in columns, as LAPACK writes them, wherever PyTorch's do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.errors import GradientError
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.ops import OPS
from dynagraph.ir.optable.call_gradients import GRADIENTS
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, library_of_array
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES, check_tensor

BLOCK = 32  # columns that are factored at a time; what comes after them is a product of matrices


class LinAlgError(RuntimeError):
    """A matrix has no inverse, no factors, or an iteration did not converge."""


LinAlgError.__module__, LinAlgError.__name__, LinAlgError.__qualname__ = "torch._C", "_LinAlgError", "_LinAlgError"  # as PyTorch's
NAMESPACES.setdefault("linalg", {})["LinAlgError"] = LinAlgError

# -- checks -----------------------------------------------------------------------------------------------------------


def check_matrices(x: Any, who: str, argument: str = "A", square: bool = True, floats: bool = True) -> Tensor:
    """RuntimeError unless it is a matrix or a stack of matrices, square and of floating point numbers where these are asked for."""
    check_tensor(x, who, argument)
    if x._array.ndim < 2:
        raise RuntimeError(f"{who}: The input tensor {argument} must have at least 2 dimensions.")
    if square:
        m, n = x._array.shape[-2:]
        if m != n:
            raise RuntimeError(f"{who}: {argument} must be batches of square matrices, but they are {m} by {n} matrices")
    if floats:
        check_floats(x, who)
    return x


def check_floats(x: Tensor, who: str, low: bool = False) -> None:
    """RuntimeError unless it is of floating point or complex numbers; of halves only where `low`."""
    kind = x._array.dtype.kind
    if kind not in "fcV":
        raise RuntimeError(f"{who}: Expected a floating point or complex tensor as input. Got {dtypes.scalar_name(x.dtype)}")
    if not low and (kind == "V" or x._array.dtype.itemsize == 2):
        raise RuntimeError(f"{who}: Low precision dtypes not supported. Got {dtypes.scalar_name(x.dtype)}")


def check_same_dtype(a: Tensor, b: Tensor, who: str, first: str = "A", second: str = "B") -> None:
    if a._array.dtype != b._array.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (a, b)]
        raise RuntimeError(
            f"{who}: Expected {first} and {second} to have the same dtype, but found {first} of type {names[0]} and {second} of "
            f"type {names[1]} instead"
        )


def batch_of(a: Tensor, b: Tensor, who: str) -> tuple[int, ...]:
    """The shape of the stacks that two operands broadcast to."""
    try:
        return np.broadcast_shapes(a._array.shape[:-2], b._array.shape[:-2])
    except ValueError:
        s, t = list(a._array.shape[:-2]), list(b._array.shape[:-2])
        rank = max(len(s), len(t))
        s, t = [1] * (rank - len(s)) + s, [1] * (rank - len(t)) + t
        k = next(k for k in range(rank - 1, -1, -1) if s[k] != t[k] and 1 not in (s[k], t[k]))
        raise RuntimeError(
            f"The size of tensor a ({s[k]}) must match the size of tensor b ({t[k]}) at non-singleton dimension {k}"
        ) from None


def raise_where(info: Any, who: str, says: Callable[[int], str], error: type[Exception] = LinAlgError) -> None:
    """The error of the first matrix whose number in `info` is not zero."""
    if info.any():
        first = int(np.flatnonzero(info)[0])
        place = f"(Batch element {first}): " if info.ndim else ""
        raise error(f"{who}: {place}{says(int(info.reshape(-1)[first]))}")


# -- arrays -----------------------------------------------------------------------------------------------------------


def in_columns(x: Any) -> Any:
    """The same matrices, laid out by columns."""
    if x.ndim < 2:
        return x
    return in_c_order(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    swapped = x.swapaxes(-1, -2)
    return swapped.conj() if x.dtype.kind == "c" else swapped


def factored(a: Any) -> tuple[Any, Any, Any]:
    """PA = LU with partial pivoting, by blocks of columns: L and U in one array, the rows exchanged, counted from 1, and which
    diagonal element of U, counted from 1, is the first zero (0: none).  G. Golub and C. Van Loan, "Matrix Computations", 3.4.
    """
    *batch, m, n = a.shape
    lu = a.reshape(math.prod(batch), m, n).copy()
    each, k = library_of_array(a).arange(lu.shape[0]), min(m, n)
    pivots = library_of_array(a).empty((lu.shape[0], k), np.int32)
    for start in range(0, k, BLOCK):
        stop = min(start + BLOCK, k)
        for j in range(start, stop):
            column = lu[:, j:, j]
            sizes = np.abs(column.real) + np.abs(column.imag) if lu.dtype.kind == "c" else np.abs(column)
            place = np.argmax(sizes, axis=1) + j
            pivots[:, j] = place + 1
            chosen = lu[each, place]
            lu[each, place] = lu[:, j]
            lu[:, j] = chosen
            pivot = lu[:, j, j]
            lu[:, j + 1 :, j] /= np.where(pivot == 0, 1, pivot)[:, None]
            lu[:, j + 1 :, j + 1 : stop] -= lu[:, j + 1 :, j, None] * lu[:, j, None, j + 1 : stop]
        if stop < n:
            above = solved_triangular(lu[:, start:stop, start:stop], lu[:, start:stop, stop:], upper=False, unit=True)
            lu[:, start:stop, stop:] = above
            lu[:, stop:, stop:] -= lu[:, stop:, start:stop] @ above
    zero = np.einsum("bjj->bj", lu[:, :k, :k]) == 0
    info = np.where(zero.any(1), np.argmax(zero, 1) + 1, 0) if k else library_of_array(a).zeros(lu.shape[0])
    return lu.reshape(a.shape), pivots.reshape(*batch, k), info.astype(np.int32).reshape(batch)


def permutation_of(pivots: Any, m: int) -> Any:
    """Which rows of PA are which of A's, from rows that were exchanged one after the other."""
    batch = pivots.shape[:-1]
    flat = pivots.reshape(math.prod(batch), pivots.shape[-1])
    order = np.tile(library_of_array(flat).arange(m), (flat.shape[0], 1))
    each = library_of_array(flat).arange(flat.shape[0])
    for j in range(flat.shape[1]):
        place = flat[:, j] - 1
        chosen = order[each, place]
        order[each, place] = order[:, j]
        order[:, j] = chosen
    return order.reshape(*batch, m)


def solved_triangular(a: Any, b: Any, upper: bool, unit: bool = False) -> Any:
    """X of AX = B; nothing but one triangle of A is read.  A zero on its diagonal gives infinities and NaNs."""
    n = a.shape[-1]
    if not upper:  # in the reverse order, rows and columns, it is an upper one
        return solved_triangular(a[..., ::-1, ::-1], b[..., ::-1, :], True, unit)[..., ::-1, :]
    if n <= BLOCK:
        return _substituted(a, b, unit)
    half = n // 2
    last = solved_triangular(a[..., half:, half:], b[..., half:, :], True, unit)
    first = solved_triangular(a[..., :half, :half], b[..., :half, :] - a[..., :half, half:] @ last, True, unit)
    batch = np.broadcast_shapes(first.shape[:-2], last.shape[:-2])
    return np.concatenate([np.broadcast_to(x, batch + x.shape[-2:]) for x in (first, last)], axis=-2)


def _substituted(a: Any, b: Any, unit: bool) -> Any:
    n = a.shape[-1]
    triangle = np.triu(a, 1) + library_of_array(a).eye(n, dtype=a.dtype) if unit else np.triu(a)
    try:
        return np.linalg.solve(triangle, b)  # without exchanges: elimination changes no triangle
    except np.linalg.LinAlgError:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        x = np.broadcast_to(b, batch + b.shape[-2:]).copy()
        for k in range(n - 1, -1, -1):
            known = (triangle[..., k, None, k + 1 :] @ x[..., k + 1 :, :])[..., 0, :]
            x[..., k, :] = (x[..., k, :] - known) / triangle[..., k, k, None]
        return x


def eliminated(a: Any, b: Any) -> Any:
    """X of AX = B by elimination; of singular matrices infinities and NaNs, where LAPACK gives up."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    lu, pivots, _ = factored(np.broadcast_to(a, batch + a.shape[-2:]))
    order = permutation_of(pivots, a.shape[-1])
    rows = np.take_along_axis(np.broadcast_to(b, batch + b.shape[-2:]), order[..., None], -2)
    return solved_triangular(lu, solved_triangular(lu, rows, upper=False, unit=True), upper=True)


# -- gradients of external calls --------------------------------------------------------------------------------------


class _Call:
    """A node, or one of its results, as the rule of an external call sees it."""

    __slots__ = ("attrs", "of", "operands", "results")

    def __init__(self, d: Any, call: FunctionCall, result: int | None, several: bool):
        self.attrs = {**d.attrs, "call": call, "result": result}
        self.operands = d.operands
        self.of, self.results = d, d.outs if several else None

    @property
    def out(self) -> Any:
        return self.of.out if self.results is None else self.results[self.attrs["result"]]

    @property
    def node(self) -> Any:
        """What errors name."""
        return self

    location, name = "", "backward"


def by_rule(function: str, several: bool = False, **static: Any) -> Callable[[Any, Any], Any]:
    """The gradients by all operands, by the rule of an external call of NumPy's function, whose keywords are the primitive's attrs
    and `static`.
    """
    rule = GRADIENTS[function]

    def of(d: Any, g: Any, result: int | None) -> Any:
        more = {**d.attrs, **static}
        operands = d.operands
        call = FunctionCall(function, tuple(map(Slot, range(len(operands)))), tuple(more.items()))
        try:
            return rule(_Call(d, call, result, several), g, *operands, **more)
        except GradientError as error:
            raise RuntimeError(str(error)) from None

    def vjp(d: Any, g: Any) -> Any:
        if not several:
            return of(d, g, None)
        total: list[Any] | None = None
        for k, one in enumerate(g):
            if one is not None:
                found = of(d, one, k)
                total = list(found) if total is None else list(map(_sum, total, found))
        return total

    return vjp


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def of_call(name: str, term: Any, *others: Any, shape: tuple[int, ...], result: int | None = None, **more: Any) -> Any:
    """``np.name(term, *others)`` in a gradient."""
    call = FunctionCall(name, tuple(map(Slot, range(1 + len(others)))), tuple(more.items()))
    return term.call("external_call", *others, call=call, result=result, dtype=term.dtype, shape=shape)


def _called(*operands: Any, call: FunctionCall, result: int | None, dtype: Any, shape: Any) -> Any:
    """What the row gives, without its checks: captures follow it."""
    function: Any = np
    for part in call.function.split("."):  # type: ignore[union-attr]
        function = getattr(function, part)
    arguments = [operands[value.position] if isinstance(value, Slot) else value for value in call.args]
    try:
        found = function(*arguments, **dict(call.kwargs))
    except np.linalg.LinAlgError:  # a gradient is infinite then
        if call.function == "linalg.inv":
            return eliminated(operands[0], library_of_array(operands[0]).eye(operands[0].shape[-1], dtype=operands[0].dtype))
        if call.function == "linalg.solve":
            return eliminated(*operands)
        raise
    return found if result is None else found[result]


EXTERNAL_CALL = define("external_call", _called, OPS["external_call"].vjp, "*o", backward="ExternalCallBackward0")

__all__ = [
    "BLOCK", "EXTERNAL_CALL", "LinAlgError", "adjoint", "batch_of", "by_rule", "check_floats", "check_matrices",
    "check_same_dtype", "eliminated", "factored", "in_columns", "of_call", "permutation_of", "raise_where", "solved_triangular",
]  # fmt: skip
