"""External calls: a step of the compiled program calls NumPy (LAPACK, FFTs, sorts), over memory of the program.

A row is a function with the NumPy function's signature that gives the shapes of the results; `arrays` names the parameters that
are arrays.  NumPy itself says the dtypes, and how results lie in memory, asked with tiny arrays that lie as the operands.  Where
the function raises, or gives something else than was foreseen, the program bails out, and the call runs eagerly: at most
rarely, or the row must decline.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np

from dynagraph.doors.numpy import linalg  # noqa: F401  (what its doors decline falls to rows here)
from dynagraph.doors.numpy.arguments import as_dim, flag, numpy_error, one_axis, only, several_axes
from dynagraph.doors.numpy.builder import Builder, Unsupported, WeakFloat, is_weak, known_dtype
from dynagraph.doors.numpy.layout import Order, c_order, copy_order, is_packed, order_by_strides, order_of
from dynagraph.doors.numpy.reductions import check_count
from dynagraph.doors.numpy.table import Door, register_fallback, register_function, register_method
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.external_calls import FunctionCall, Slot, function_of
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Strided
from dynagraph.ir.shapes import Dim, Shape, SymInt, numel

Shapes = Union[Shape, list[Shape]]  # a list: the function gives a tuple


@dataclass(frozen=True)
class ExternalFunction:
    """One row: what the door of a NumPy function does."""

    path: str  # under the array namespace
    rule: Callable[..., Shapes]
    arrays: tuple[str, ...]
    dtype: Callable[[Node], DType] | None  # None: ask NumPy
    order: Callable[[Strided], Order] | None = None  # where the dtype is known: how the result lies, by the first operand; None: C
    warns: Callable[..., Node | None] | None = None
    takes_out: bool = False

    def __call__(self, b: Builder, /, *args: Any, **kwargs: Any) -> Any:
        signature = inspect.signature(self.rule)
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        operands: dict[str, Node] = {}
        numbers: dict[str, Any] = {}  # of Python, which are weak: NumPy gets them as they are
        any_weak = False
        for name, value in given.items():
            if self._is_array(signature, name, value):
                given[name] = node = _operand(b, value)
                weak = is_weak(value)
                if weak and not isinstance(value, (WeakFloat, SymInt)):
                    numbers[name] = value
                else:
                    operands[name] = node
                    any_weak |= weak
        only(bool(operands), self.path, self.arrays[0], numbers, "an array")
        fits = not any_weak or all(map(_takes_weak, operands.values()))
        only(fits, self.path, "number", "one that varies", "with wide dtypes only")
        shapes = self.rule(*bound.args, **bound.kwargs)
        warning = None if self.warns is None else self.warns(b, **given)
        for name, value in given.items():
            is_operand = name in operands
            static = numbers.get(name, value)
            given[name] = Slot(list(operands).index(name)) if is_operand else _static(static, f"{self.path}: {name}")
        call = FunctionCall(self.path, bound.args, tuple(sorted(bound.kwargs.items())), takes_out=self.takes_out)
        return self._nodes(b, call, list(operands.values()), shapes, warning)

    def _is_array(self, signature: inspect.Signature, name: str, value: Any) -> bool:
        """Parameters that may be arrays or something else (numbers of bins, axes) are arrays where arrays or lists are given."""
        if name in self.arrays:
            return value is not None or signature.parameters[name].default is not None
        return f"{name}?" in self.arrays and isinstance(value, (Node, list))

    def _nodes(self, b: Builder, call: FunctionCall, operands: list[Node], shapes: Shapes, warning: Node | None) -> Any:
        several = isinstance(shapes, list)
        wanted = shapes if isinstance(shapes, list) else [shapes]
        kind: type = tuple
        if self.dtype is not None:
            kinds = [self.dtype(operands[0])] * len(wanted)
            first = b.layout(operands[0])
            orders = [c_order(len(s)) if self.order is None or s is not operands[0].shape else self.order(first) for s in wanted]
            laid = [(order, 0) for order in orders]
        else:
            kinds, laid, kind = _asked(b, call, operands, wanted, several)
        if warning is not None:
            call = replace(call, warns_if=Slot(len(operands)))
            operands = [*operands, warning]
        nodes = []
        for k, (dtype, shape, place) in enumerate(zip(kinds, wanted, laid)):
            result = k if several else None
            node = b.call("external_call", *operands, call=call, result=result, dtype=dtype, shape=shape)
            nodes.append(_placed(b, node, *place))
        if not several:
            return nodes[0]
        return kind(nodes) if kind is tuple else kind(*nodes)  # named tuples of NumPy's


def _operand(b: Builder, value: Any) -> Node:
    if isinstance(value, WeakFloat):
        return value.node
    return b.as_node(value)


def _takes_weak(node: Node) -> bool:
    """Whether a Python number, which is weak, makes of the node's dtype what a 0-d array makes of it."""
    return np.result_type(node.dtype.numpy, 1.0) == np.result_type(node.dtype.numpy, np.float64)


def _static(value: Any, who: str) -> Any:
    """An argument that is part of the program: lists as tuples, no arrays."""
    if isinstance(value, (tuple, list)):
        return tuple(_static(v, who) for v in value)
    if isinstance(value, (Node, WeakFloat, np.ndarray)):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who} that is an array is not captured")
    hash(value)  # TypeError: nothing that NumPy takes
    return value


# -- asking NumPy ---------------------------------------------------------------------------------------------------------


def _asked(
    b: Builder, call: FunctionCall, operands: Sequence[Node], shapes: list[Shape], several: bool
) -> tuple[list[DType], list[tuple[Order, int]], type]:
    """The results' dtypes, how they lie in memory and the type of their tuple, as NumPy gives them for tiny arrays."""
    who, matters = str(call.function), any(len(s) > 1 for s in shapes)
    given = [_laid_as(b.layout(node), _tiny(node), who) if matters else _tiny(node) for node in operands]
    tiny = call.map(lambda v: 2 if isinstance(v, SymInt) else v)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            value = tiny.run(np, given)
    except Exception as error:  # whatever it is that NumPy says of these arguments: it will say it again
        raise numpy_error(f"{call.function}: {error}") from error
    values = value if several else (value,)
    if len(values) != len(shapes) or any(np.ndim(v) != len(s) for v, s in zip(values, shapes)):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{call.function}: a result of another rank than {shapes}")
    arrays = [np.asarray(v) for v in values]
    return [known_dtype(v.dtype, who) for v in arrays], [_place_of(v, who) for v in arrays], type(value)


def _place_of(array: np.ndarray, who: str) -> tuple[Order, int]:
    """The order of a result's axes in memory, and how many elements stand around it on all sides (np.histogram2d cuts them off)."""
    order, strides = order_of(array.shape, array.strides), tuple(s // array.itemsize for s in array.strides)
    for margin in (0, 1):
        around = Strided(tuple(d + 2 * margin for d in array.shape), strides)
        if array.ndim < 2 or array.size == 0 or is_packed(around, order):
            return order, margin
    raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: a result with gaps in memory")


def _placed(b: Builder, node: Node, order: Order, margin: int) -> Node:
    if margin == 0:
        return b.lay(node, order)
    whole = b.lay(b.call("pad", node, widths=((margin, margin),) * node.ndim), order)
    return b.call("slice", whole, starts=(margin,) * node.ndim, steps=(1,) * node.ndim, shape=node.shape)


def _laid_as(x: Strided, values: np.ndarray, who: str) -> np.ndarray:
    """The values in memory as an operand lies there: in the same order, with gaps where it has gaps."""
    order = order_by_strides(x)
    only(all(d == 1 or s != 0 for d, s in zip(x.shape, x.strides)), who, "strides", x.strides, "a broadcast array; copy it first")
    if not order or is_packed(x, order):
        return values.transpose(order).copy().transpose([order.index(k) for k in range(len(order))])
    with_gaps = np.zeros([2 * d for d in values.shape], values.dtype).transpose(order).copy()
    room = with_gaps.transpose([order.index(k) for k in range(len(order))])[tuple(slice(0, 2 * d, 2) for d in values.shape)]
    room[...] = values
    return room


def _tiny(node: Node) -> np.ndarray:
    """An array of the rank and dtype of the node that functions can do something with: ones on the diagonal, sorted if 1-d."""
    if node.ndim == 0:
        return np.ones((), node.dtype.numpy)
    if node.ndim == 1:
        return np.arange(2).astype(node.dtype.numpy)
    return np.broadcast_to(np.eye(2, dtype=node.dtype.numpy), (2,) * node.ndim).copy()


def reduced_shape(x: Node, axes: Sequence[int], keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if k in axes else d for k, d in enumerate(x.shape))
    return tuple(d for k, d in enumerate(x.shape) if k not in axes)


# -- registration ---------------------------------------------------------------------------------------------------------

ROWS: dict[str, ExternalFunction] = {}


def called_out(
    path: str, *arrays: str, dtype: Callable[[Node], DType] | None = None, order: Callable[[Strided], Order] | None = None,
    method: str | None = None, returns: str = "value", fallback: bool = False, warns: Callable[..., Node | None] | None = None,
    takes_out: bool = False,
) -> Callable[[Callable[..., Shapes]], Callable[..., Shapes]]:
    """Register a rule as the row of ``numpy.path``.  ``fallback``: only for what the function's other door declines.

    A name in `arrays` with a question mark is an array only where an array or a list is given.  ``warns(b, **arguments)`` is the
    bool that says whether NumPy gives a warning: the program then bails out, for the warning belongs to the user's line.
    `takes_out`: the function has ``out=``, for an array in any order.
    """

    def register(rule: Callable[..., Shapes]) -> Callable[..., Shapes]:
        try:
            function = function_of(np, path)
        except AttributeError:  # this NumPy has none
            return rule
        row = ROWS[path] = ExternalFunction(path, rule, arrays, dtype, order, warns, takes_out)
        door = Door(path, row, returns, calls_out=True)
        if fallback:
            register_fallback(function, door)
        else:
            register_function(function, door)
        if method is not None:
            register_method(method, door)
        return rule

    return register


def _same_as(
    *paths: str, warns: Callable[..., Node | None] | None = None, takes_out: bool = False
) -> Callable[[Callable[..., Shapes]], Callable[..., Shapes]]:
    """Rows of one array `a` whose rule is the same."""

    def register(rule: Callable[..., Shapes]) -> Callable[..., Shapes]:
        for path in paths:
            called_out(path, "a", warns=warns, takes_out=takes_out)(rule)
        return rule

    return register


# -- Fourier transforms ---------------------------------------------------------------------------------------------------


def _count(n: Any, otherwise: Dim, who: str) -> Dim:
    count = otherwise if n is None else as_dim(n, who)
    if count < 1:
        raise numpy_error(f"{who}: invalid number of data points ({count}) specified")
    return count


def _with_axis(a: Node, axis: Any, who: str, size: Callable[[Dim], Dim]) -> Shape:
    position = one_axis(axis, a.ndim, who)
    return tuple(size(d) if k == position else d for k, d in enumerate(a.shape))


@_same_as("fft.fft", "fft.ifft", takes_out=True)
def _fft(a: Node, n: Any = None, axis: Any = -1, norm: Any = None) -> Shapes:
    return _with_axis(a, axis, "fft", lambda d: _count(n, d, "fft"))


@_same_as("fft.rfft", "fft.ihfft", takes_out=True)
def _rfft(a: Node, n: Any = None, axis: Any = -1, norm: Any = None) -> Shapes:
    return _with_axis(a, axis, "rfft", lambda d: _count(n, d, "rfft") // 2 + 1)


@_same_as("fft.irfft", "fft.hfft", takes_out=True)
def _irfft(a: Node, n: Any = None, axis: Any = -1, norm: Any = None) -> Shapes:
    return _with_axis(a, axis, "irfft", lambda d: _count(n, (d - 1) * 2, "irfft"))


def _transformed(a: Node, s: Any, axes: Any, who: str, last: Callable[[Dim], Dim], otherwise: Callable[[Dim], Dim]) -> Shape:
    """The shape of a transform over several axes, the last one of which may change its length."""
    if axes is None:
        only(s is None, who, "s", s, "name the axes too")
        axes = tuple(range(a.ndim))
    named = several_axes(axes, a.ndim, who)
    sizes = [None] * len(named) if s is None else list(s)
    if len(sizes) != len(named) or not named:
        raise numpy_error(f"{who}: shape and axes have different lengths")
    shape = list(a.shape)
    for k, (axis, size) in enumerate(zip(named, sizes)):
        is_last = k == len(named) - 1
        count = _count(None if size == -1 else size, otherwise(shape[axis]) if is_last else shape[axis], who)
        shape[axis] = last(count) if is_last else count
    return tuple(shape)


def _unchanged(d: Dim) -> Dim:
    return d


@_same_as("fft.fftn", "fft.ifftn")
def _fftn(a: Node, s: Any = None, axes: Any = None, norm: Any = None) -> Shapes:
    return _transformed(a, s, axes, "fftn", _unchanged, _unchanged)


@_same_as("fft.fft2", "fft.ifft2")
def _fft2(a: Node, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Shapes:
    return _transformed(a, s, axes, "fft2", _unchanged, _unchanged)


@_same_as("fft.rfftn")
def _rfftn(a: Node, s: Any = None, axes: Any = None, norm: Any = None) -> Shapes:
    return _transformed(a, s, axes, "rfftn", lambda d: d // 2 + 1, _unchanged)


@_same_as("fft.rfft2")
def _rfft2(a: Node, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Shapes:
    return _transformed(a, s, axes, "rfft2", lambda d: d // 2 + 1, _unchanged)


@_same_as("fft.irfftn")
def _irfftn(a: Node, s: Any = None, axes: Any = None, norm: Any = None) -> Shapes:
    return _transformed(a, s, axes, "irfftn", _unchanged, lambda d: (d - 1) * 2)


@_same_as("fft.irfft2")
def _irfft2(a: Node, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Shapes:
    return _transformed(a, s, axes, "irfft2", _unchanged, lambda d: (d - 1) * 2)


# -- sorting --------------------------------------------------------------------------------------------------------------


def _own(a: Node) -> DType:
    return a.dtype


def _places(a: Node) -> DType:
    return dtypes.int64


def _along(a: Node, axis: Any, who: str) -> Shape:
    if axis is None:
        return (numel(a.shape),)
    one_axis(axis, a.ndim, who)
    return a.shape


@called_out("sort", "a", dtype=_own, order=copy_order)
def _sort(a: Node, axis: Any = -1, kind: Any = None, order: Any = None, **stable: Any) -> Shapes:
    return _along(a, axis, "sort")


@called_out("argsort", "a", dtype=_places, method="argsort")
def _argsort(a: Node, axis: Any = -1, kind: Any = None, order: Any = None, **stable: Any) -> Shapes:
    return _along(a, axis, "argsort")


@called_out("partition", "a", dtype=_own, order=copy_order)
def _partition(a: Node, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Shapes:
    return _along(a, axis, "partition")


@called_out("argpartition", "a", dtype=_places, method="argpartition")
def _argpartition(a: Node, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Shapes:
    return _along(a, axis, "argpartition")


@_same_as("sort_complex")
def _sort_complex(a: Node) -> Shapes:
    return _along(a, -1, "sort_complex")


@called_out("lexsort", "keys", dtype=_places)
def _lexsort(keys: Node, axis: Any = -1) -> Shapes:
    if keys.ndim == 0:
        raise numpy_error("lexsort: need sequence of keys with len > 0 in lexsort")
    only(keys.ndim > 1, "lexsort", "keys", keys.shape, "a sequence of arrays")
    one_axis(axis, keys.ndim - 1, "lexsort")
    return keys.shape[1:]


@called_out("searchsorted", "a", "v", "sorter", dtype=_places, method="searchsorted")
def _searchsorted(a: Node, v: Node, side: Any = "left", sorter: Node | None = None) -> Shapes:
    if a.ndim != 1 or (sorter is not None and sorter.shape != a.shape):
        raise numpy_error("searchsorted: takes a 1-d array")
    return v.shape


@called_out("digitize", "x", "bins", dtype=_places)
def _digitize(x: Node, bins: Node, right: Any = False) -> Shapes:
    if bins.ndim != 1:
        raise numpy_error("digitize: object of too small depth for desired array")
    return x.shape


@called_out("isin", "element", "test_elements", returns="array")
def _isin(element: Node, test_elements: Node, assume_unique: Any = False, invert: Any = False, **kind: Any) -> Shapes:
    return element.shape


# -- statistics -----------------------------------------------------------------------------------------------------------


def _over(a: Node, axis: Any, keepdims: Any, overwritten: Any, who: str) -> Shape:
    only(not flag(overwritten, who), who, "overwrite_input", overwritten, "the input stays as it is")
    only(a.ndim > 0 or keepdims is np._NoValue or not keepdims, who, "keepdims", keepdims, "of 0-d arrays NumPy makes a 0-d array")
    axes = tuple(range(a.ndim)) if axis is None else several_axes(axis, a.ndim, who)
    check_count(a, axes, 0, who)
    return reduced_shape(a, axes, keepdims is not np._NoValue and flag(keepdims, who))


def _all_nan(b: Builder, *, a: Node, axis: Any = None, **others: Any) -> Node | None:
    """Whether some slice holds nothing but NaN."""
    if not a.dtype.is_inexact:
        return None
    axes = tuple(range(a.ndim)) if axis is None else tuple(sorted(several_axes(axis, a.ndim, "axis")))
    slices = b.call("all", b.call("isnan", a), axis=axes, keepdims=False)
    return b.call("any", slices, axis=tuple(range(slices.ndim)), keepdims=False) if slices.ndim else slices


@_same_as("nanmedian", warns=_all_nan)
@_same_as("median")
def _median(a: Node, axis: Any = None, *, overwrite_input: Any = False, keepdims: Any = False) -> Shapes:
    return _over(a, axis, keepdims, overwrite_input, "median")


def _quantile(
    a: Node, q: Node, axis: Any = None, *, overwrite_input: Any = False, method: Any = "linear", keepdims: Any = False,
    weights: Node | None = None,
) -> Shapes:
    return q.shape + _over(a, axis, keepdims, overwrite_input, "quantile")


for _name in ("percentile", "quantile", "nanpercentile", "nanquantile"):
    called_out(_name, "a", "q", "weights", warns=_all_nan if _name.startswith("nan") else None)(_quantile)


def _n_bins(bins: Any, who: str) -> Dim:
    if isinstance(bins, Node):
        if bins.ndim != 1:
            raise numpy_error(f"{who}: bins must be 1-d where they are given as an array")
        return bins.shape[0] - 1
    if isinstance(bins, str):
        raise Unsupported("DATA_DEPENDENT", f"{who}: bins={bins!r}: how many there are depends on the data")
    return as_dim(bins, who)


@called_out("histogram", "a", "bins?", "weights")
def _histogram(a: Node, bins: Any = 10, range: Any = None, density: Any = None, weights: Node | None = None) -> Shapes:
    n = _n_bins(bins, "histogram")
    return [(n,), (n + 1,)]


@called_out("histogram_bin_edges", "a", "bins?", "weights")
def _histogram_bin_edges(a: Node, bins: Any = 10, range: Any = None, weights: Node | None = None) -> Shapes:
    return (_n_bins(bins, "histogram_bin_edges") + 1,)


@called_out("histogram2d", "x", "y", "weights")
def _histogram2d(x: Node, y: Node, bins: Any = 10, range: Any = None, density: Any = None, weights: Node | None = None) -> Shapes:
    several = isinstance(bins, (tuple, list))
    only(not several or len(bins) == 2, "histogram2d", "bins", bins, "a number or two")
    first, second = bins if several else (bins, bins)
    rows, columns = as_dim(first, "histogram2d"), as_dim(second, "histogram2d")
    return [(rows, columns), (rows + 1,), (columns + 1,)]


@called_out("bincount", "x", "weights")
def _bincount(x: Node, /, weights: Node | None = None, minlength: Any = 0) -> Shapes:
    # where an element is larger the call runs eagerly
    n = as_dim(minlength, "bincount")
    if n == 0:
        raise Unsupported("DATA_DEPENDENT", "bincount: how long the result is depends on the data; pass minlength=")
    return (n,)


@called_out("interp", "x", "xp", "fp")
def _interp(x: Node, xp: Node, fp: Node, left: Any = None, right: Any = None, period: Any = None) -> Shapes:
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape[0] != fp.shape[0]:
        raise numpy_error("interp: fp and xp are not of the same length")
    return x.shape


def _overlap(a: Node, v: Node, mode: Any, who: str) -> Shape:
    if a.ndim > 1 or v.ndim > 1:
        raise numpy_error(f"{who}: object too deep for desired array")
    n, m = numel(a.shape), numel(v.shape)
    if n == 0 or m == 0:
        raise numpy_error(f"{who}: takes no empty arrays")
    longer, shorter = (n, m) if n >= m else (m, n)
    sizes = {"full": n + m - 1, "same": longer, "valid": longer - shorter + 1}
    only(mode in sizes, who, "mode", mode, f"one of {', '.join(sizes)}")
    return (sizes[mode],)


@called_out("convolve", "a", "v")
def _convolve(a: Node, v: Node, mode: Any = "full") -> Shapes:
    return _overlap(a, v, mode, "convolve")


@called_out("correlate", "a", "v")
def _correlate(a: Node, v: Node, mode: Any = "valid") -> Shapes:
    return _overlap(a, v, mode, "correlate")


# -- bits -----------------------------------------------------------------------------------------------------------------


@called_out("packbits", "a")
def _packbits(a: Node, /, axis: Any = None, bitorder: Any = "big") -> Shapes:
    if axis is None:
        return ((numel(a.shape) + 7) // 8,)
    return _with_axis(a, axis, "packbits", lambda d: (d + 7) // 8)


@called_out("unpackbits", "a")
def _unpackbits(a: Node, /, axis: Any = None, count: Any = None, bitorder: Any = "big") -> Shapes:
    only(count is None, "unpackbits", "count", count, "all bits")
    if axis is None:
        return (numel(a.shape) * 8,)
    return _with_axis(a, axis, "unpackbits", lambda d: d * 8)


def rows() -> Iterator[ExternalFunction]:
    """All rows, for the documentation and the tests."""
    yield from ROWS.values()


__all__ = ["ROWS", "ExternalFunction", "rows"]
