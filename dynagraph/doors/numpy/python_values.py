"""NumPy functions of Python values alone: NumPy computes them at capture, and the result is a constant.

So is what depends on arrays that are known themselves, such as ``np.array([1, 2])``.  These doors are asked after those of the
families: a function may have one of each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.doors.numpy import attributes, external_calls, indexing  # noqa: F401  (these doors come after theirs)
from dynagraph.doors.numpy.arguments import is_contiguous, numpy_error, only
from dynagraph.doors.numpy.builder import Builder, Unsupported, WeakFloat, known_dtype
from dynagraph.doors.numpy.linalg import EINSUM
from dynagraph.doors.numpy.table import Door, method, register_method
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt

MAX_ELEMENTS = 1 << 16  # of a constant
PURE = {
    np: """
        angle argpartition argsort argwhere bartlett base_repr binary_repr bincount bitwise_count blackman block choose
        common_type compress convolve corrcoef correlate cov cross cumulative_prod cumulative_sum delete diag_indices
        diagflat digitize ediff1d einsum_path extract flatnonzero format_float_positional format_float_scientific gcd
        geomspace gradient hamming hanning histogram histogram2d histogram_bin_edges histogramdd i0 imag indices insert
        interp intersect1d iscomplex isdtype isin isreal ix_ kaiser kron lcm ldexp lexsort logspace median mintypecode
        nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanquantile nanstd nanvar
        nonzero packbits partition percentile poly polyadd polyder polydiv polyfit polyint polymul polysub polyval quantile
        ravel_multi_index real real_if_close resize roots searchsorted select setdiff1d setxor1d sort spacing
        take_along_axis trapezoid tri tril_indices trim_zeros triu_indices typename union1d unique unique_all unique_counts
        unique_inverse unique_values unpackbits unravel_index unwrap vander linspace arange array_equal array_equiv allclose
        average diag diagonal repeat roll trace""",
    np.linalg: """cholesky cond cross det diagonal eigvalsh inv matrix_norm matrix_power matrix_rank norm multi_dot outer pinv solve
        svdvals tensorinv tensorsolve trace vecdot vector_norm""",
    np.fft: "fftfreq rfftfreq fftshift ifftshift",
    EINSUM: "_parse_eq_to_batch_matmul _parse_output_order",  # of a subscript and shapes, with caches
}


def of_python_values(function: object) -> Door | None:
    """The door of a function without side effects, for Python values and known arrays; None where it is not known to be one."""
    entry = _DOORS.get(id(function))
    return None if entry is None else entry[1]


def _door(function: Callable[..., Any]) -> Door:
    def answer(b: Builder, *args: Any, **kwargs: Any) -> Any:
        given = [_known(b, x, function.__name__) for x in args]
        named = {name: _known(b, x, function.__name__) for name, x in kwargs.items()}
        only("out" not in kwargs, function.__name__, "out", "...", "leave it out")
        try:
            with warnings.catch_warnings(), np.errstate(divide="raise", over="raise", invalid="raise"):
                warnings.simplefilter("error")
                result = function(*given, **named)
        except Exception as error:  # whatever it is: NumPy raises or warns in the plain run, too
            raise numpy_error(f"{function.__name__}: {error}") from None
        return _embedded(b, result, {})

    return Door(function.__name__, answer)


def _known(b: Builder, value: Any, who: str) -> Any:
    """An argument as NumPy takes it."""
    if isinstance(value, Node):
        found = b.known(value)
        if found is None:
            raise Unsupported("UNSUPPORTED_FUNCTION", f"{who}: of arrays is not captured")
        if value.ndim > 1 and not is_contiguous(b, value):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: of arrays in another order of memory than C")
        return found[()] if b.is_scalar(value) else found.copy()
    if isinstance(value, WeakFloat):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: a float that changes")
    if isinstance(value, SymInt):
        return int(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_known(b, v, who) for v in value)
    if isinstance(value, slice):
        return slice(*(_known(b, v, who) for v in (value.start, value.stop, value.step)))
    return value


def _embedded(b: Builder, result: Any, seen: dict[int, Any]) -> Any:
    """What NumPy gave, with nodes for arrays: new ones at each call, and one for one."""
    if type(result) in (tuple, list):
        return type(result)(_embedded(b, r, seen) for r in result)
    if isinstance(result, np.generic):
        known_dtype(result.dtype, "the result")
        return b.as_node(result)
    if not isinstance(result, np.ndarray):
        only(isinstance(result, (bool, int, float, str, type, np.dtype, type(None))), "the result", "type", type(result), "arrays")
        return result
    plain = type(result) is np.ndarray and result.ndim > 0 and result.size <= MAX_ELEMENTS
    only(plain and (result.ndim == 1 or result.flags.c_contiguous), "the result", "shape", result.shape, "a plain array")
    known_dtype(result.dtype, "the result")
    if id(result) not in seen:
        seen[id(result)] = b.call("copy", b.graph.constant(result))
    return seen[id(result)]


_DOORS: dict[int, tuple[object, Door]] = {}
for _module, _names in PURE.items():
    for _function in (getattr(_module, name, None) for name in _names.split()):
        if _function is not None:  # older versions of NumPy lack some
            _DOORS[id(_function)] = (_function, _door(_function))


METHODS = "argpartition argsort choose compress item nonzero searchsorted tolist __float__ __index__ __int__"


def _method(name: str, otherwise: Door | None) -> Callable[..., Any]:
    """The method of an array that is known; of others what the door says that is there."""
    answer = _door(getattr(np.ndarray, name))

    def door(b: Builder, x: Node, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return answer(b, x, *args, **kwargs)
        except Unsupported:
            if otherwise is None:
                raise
        return otherwise(b, x, *args, **kwargs)

    return door


for _name in METHODS.split():
    _behind = method(_name)
    register_method(_name, Door(f"ndarray.{_name}", _method(_name, _behind), "value" if _behind is None else _behind.returns))

__all__ = ["PURE", "of_python_values"]
