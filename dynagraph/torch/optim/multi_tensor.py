"""One step for all parameters: a formula over one parameter's arrays, applied to those of many.

A *formula* is a function ``formula(xp, arrays, numbers, *flags)``.  Element k of what it gives depends on element k of `arrays`, a
parameter, its gradient and its states, and on `numbers`; it gives the parameter's and the states' new values.  `xp` has `sqrt`,
`abs`, `where`, `maximum` and `minimum`: NumPy, or `OfTensors`.  All operations are exactly rounded, so that kernels and NumPy give
the same bits.

- Plain calls run a kernel, compiled for rows of any length (large.py tells when), over all parameters as one piece of work of the
  thread pool (`run_each`).  Until it is ready NumPy computes, in parts; so it does for arrays without a common order in
  memory.
- In captured code the formula is captured once, and its nodes are made again for the other parameters
  (`frontend/library/optimizers.py`).
- Tensors that gradients go through, and arrays on a GPU, are computed one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph._core._dispatch import run_each
from dynagraph.driver.unasked import compile_unasked
from dynagraph.markers import is_compiling
from dynagraph.torch.core.tensor import Tensor, quiet

Formula = Callable[..., tuple[Any, ...]]
_kernels: dict[Any, Any] = {}
PART = 1 << 14  # elements that NumPy computes at a time
_SINGLE, _DOUBLE = np.dtype("f"), np.dtype("d")


class OfTensors:
    """The functions of formulas, of tensors."""

    sqrt = staticmethod(lambda x: x.sqrt())
    abs = staticmethod(lambda x: x.abs())
    where = staticmethod(lambda condition, x, y: _where(condition, x, y))
    maximum = staticmethod(lambda x, y: x.clamp(min=y) if not isinstance(y, Tensor) else x.maximum(y))
    minimum = staticmethod(lambda x, y: x.clamp(max=y) if not isinstance(y, Tensor) else x.minimum(y))


def _where(condition: Any, x: Any, y: Any) -> Any:
    if not isinstance(condition, Tensor):
        return x if condition else y
    like: Any = x if isinstance(x, Tensor) else y
    x, y = (v if isinstance(v, Tensor) else like.new_full((), v) for v in (x, y))
    return x.where(condition, y)


def computed_in(dtype: np.dtype) -> np.dtype:
    """The dtype in which parameters of a dtype are computed: halves in float32, rounded once."""
    return _DOUBLE if dtype is _DOUBLE or dtype == _DOUBLE else _SINGLE


def store(formula: Formula, flags: tuple[Any, ...], arrays: Sequence[Any], numbers: Sequence[Any]) -> None:
    """Apply a formula to one parameter's arrays, and store what it gives in them."""
    dtype = arrays[0].dtype
    wide = computed_in(dtype)
    values = arrays if wide is dtype or wide == dtype else [array.astype(wide) for array in arrays]
    for array, value in zip((arrays[0], *arrays[2:]), formula(np, values, numbers, *flags)):
        array[...] = value


def kernel_of(formula: Formula, flags: tuple[Any, ...], count: int) -> Any:
    """The compiled function that stores a formula's results in rows; its last argument is an array of `count` numbers."""
    key = (formula, flags, count)
    found = _kernels.get(key)
    if found is None:

        def kernel(*operands: Any) -> None:
            numbers = operands[-1]
            if is_compiling():
                store(formula, flags, operands[:-1], numbers)
            else:  # in parts whose temporaries stay in the cache
                for begin in range(0, operands[0].size, PART):
                    store(formula, flags, [array[begin : begin + PART] for array in operands[:-1]], numbers)

        kernel.__name__ = kernel.__qualname__ = formula.__name__
        found = _kernels[key] = compile_unasked(kernel, exact=True)
    return found


def kernels() -> dict[Any, Any]:
    """The kernels that steps have asked for, by formula, flags and count of numbers: `stats` of each says how its calls went."""
    return dict(_kernels)


def store_all(formula: Formula, flags: tuple[Any, ...], rows: list[tuple[Any, ...]], numbers: Any) -> None:
    """Apply a formula to the arrays of many parameters, in NumPy's memory; `numbers`: an array."""
    kernel = kernel_of(formula, flags, len(numbers))
    left = run_each(kernel.entries, rows, numbers)
    if left:
        quiet(_one_by_one, (kernel, formula, flags, left, numbers), {})


def _one_by_one(kernel: Any, formula: Formula, flags: tuple[Any, ...], rows: list[tuple[Any, ...]], numbers: Any) -> None:
    for arrays in rows:
        if all(array.flags.c_contiguous for array in arrays):
            kernel(*[array.reshape(-1) for array in arrays], numbers)
        else:
            store(formula, flags, arrays, [numbers[k] for k in range(len(numbers))])


__all__ = ["Formula", "OfTensors", "computed_in", "kernel_of", "kernels", "store", "store_all"]
