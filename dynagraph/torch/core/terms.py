"""Terms that compute at once: what the gradients of `ir/optable` and `primitives.py` are written with, over arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph import products
from dynagraph.autograd import terms
from dynagraph.autograd.terms import ir_dtype
from dynagraph.ir.dtypes import DType
from dynagraph.ir.ops import OPS
from dynagraph.markers import is_compiling
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.batching import Unbatchable, is_unbatchable
from dynagraph.torch.core.batching_loops import looped
from dynagraph.torch.core.large import by_size, is_large, large, large_gradient


def defaults_of(name: str, forward: Callable[..., Any] | None = None) -> dict[str, Any]:
    """The attributes of a row that have a default; of another forward function those that it takes."""
    found = {} if name not in OPS else terms.defaults_of(name)
    if forward is not None and found:
        code = getattr(forward, "__code__", None)
        taken = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        found = {attr: value for attr, value in found.items() if attr in taken}
    return found


# what an op does to arrays; `primitives.py` adds PyTorch's own
FORWARD = {**terms.FORWARD, "matmul": products.matmul, "own_matmul": products.matmul}
BY_SIZE = {ufunc: by_size(ufunc.__name__, ufunc) for ufunc in (np.add, np.subtract, np.multiply, np.divide, np.negative)}
_add, _subtract, _multiply, _divide, _negative = BY_SIZE.values()


class ArrayTerm(terms.ArrayTerm):
    """An array of NumPy's or CuPy's, or one of examples, to PyTorch's functions."""

    __slots__ = ()

    def call(self, op: str, *others: Any, **attrs: Any) -> ArrayTerm:
        operands = (self.array, *(o.array if isinstance(o, ArrayTerm) else self.number(o).array for o in others))
        forward = FORWARD[op] if is_compiling() or not is_large(operands) else large(op, FORWARD[op])
        try:
            return ArrayTerm(forward(*operands, **attrs))
        except (Unbatchable, ValueError) as error:
            if not is_unbatchable(error):
                raise
            return ArrayTerm(looped(FORWARD[op], operands, attrs))

    def make(self, op: str, **attrs: Any) -> ArrayTerm:
        return ArrayTerm(OPS[op].eager(library_of_array(self.array), **attrs))

    # The operators that nearly all gradients are made of, without the way through `call`: Python's numbers take the array's dtype.
    def __add__(self, other: Any) -> ArrayTerm:
        return ArrayTerm(_add(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __sub__(self, other: Any) -> ArrayTerm:
        return ArrayTerm(_subtract(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __rsub__(self, other: Any) -> ArrayTerm:
        return ArrayTerm(_subtract(other, self.array))

    def __mul__(self, other: Any) -> ArrayTerm:
        return ArrayTerm(_multiply(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __truediv__(self, other: Any) -> ArrayTerm:
        return ArrayTerm(_divide(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __neg__(self) -> ArrayTerm:
        return ArrayTerm(_negative(self.array))


class Unsaved(ArrayTerm):
    """An operand that was not kept: its gradient may ask for its shape and dtype only."""

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype):
        self._shape, self._dtype = shape, dtype

    @property
    def array(self) -> Any:  # type: ignore[override]
        raise AssertionError("a gradient reads an operand that its primitive's `saves` does not name")

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def dtype(self) -> DType:
        return ir_dtype(self._dtype)

    def make(self, op: str, **attrs: Any) -> ArrayTerm:
        return ArrayTerm(OPS[op].eager(np, **attrs))


class _Operands:
    """What a gradient reads, as `Node` has it."""

    def __init__(self, attrs: dict[str, Any], names: tuple[str, ...], arrays: tuple[Any, ...]):
        self.attrs = attrs
        self.operands = []
        for name, array in zip(names, arrays):
            term = ArrayTerm(array)
            setattr(self, name, term)
            if name != "out":
                self.operands.append(term)


def in_one_pass(name: str, vjp: Callable[[Any, Any], Any], reads: str, by: str = "") -> Callable[[Any, Any], Any]:
    """A gradient each element of which depends on its own operands alone: of large arrays one compiled function, not one an op.

    `name`: the primitive's; `reads`: what of it the gradient reads, as `Primitive.saves`; `by`: where there are several, by which
    operand it is.
    """
    names = tuple("out" if letter == "o" else letter for letter in reads)

    def kernel(g: Any, *arrays: Any, **attrs: Any) -> Any:
        return vjp(_Operands(attrs, names, arrays), ArrayTerm(g)).array

    def gradient(d: Any, g: Any) -> Any:
        if is_compiling() or not isinstance(g, ArrayTerm):
            return vjp(d, g)
        arrays = (g.array, *[getattr(d, read).array for read in names])
        return ArrayTerm(large_gradient(name, kernel, by)(*arrays, **d.attrs)) if is_large(arrays) else vjp(d, g)

    return gradient


__all__ = ["BY_SIZE", "FORWARD", "ArrayTerm", "Unsaved", "in_one_pass", "ir_dtype"]
