"""Pooling: maxima, means and norms of windows, of fixed sizes and of as many as are asked for.

Windows are taken along one dimension after another, which gives the same maxima, places and sums as all at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.ir.optable.pooling import (
    adaptive_max_pool,
    adaptive_mean,
    adaptive_mean_back,
    avg_pool,
    avg_pool_back,
    max_pool,
    max_pool_back,
)
from dynagraph.torch.core.arrays import in_c_order, library_of_array, put_beside, ufunc_at
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.activations import in_single, only_floats, relu
from dynagraph.torch.functions.arithmetic import mul
from dynagraph.torch.functions.arithmetic import pow as power
from dynagraph.torch.functions.common import NAMESPACES, as_sequence, check_tensor, function, integer
from dynagraph.torch.functions.convolution import Pairs, Sizes, padded
from dynagraph.torch.functions.elementary import abs as absolute
from dynagraph.torch.functions.elementary import sign
from dynagraph.torch.functions.reductions import mean
from dynagraph.torch.functions.shapes import unsqueeze
from dynagraph.torch.functions.windows import (
    check_rank_1,
    given_sizes,
    given_windows,
    how_many,
    listed,
    only_size,
    placed_windows,
    refuse_bools,
)

# -- maxima -----------------------------------------------------------------------------------------------------------


def _lowest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _maximum_along(x: Any, place: Any, axis: int, parts: Sequence[Any]) -> tuple[Any, Any]:
    """The greatest of the parts along an axis, which slices or arrays of places choose, and where it stood.

    The first of several, but of NaNs the last.  `place` is negative in the border, which is not chosen.
    """
    behind = x.ndim - axis - 1
    at = [(Ellipsis, part, *(slice(None),) * behind) for part in parts]
    best, where = x[at[0]], np.broadcast_to(place[at[0]], x[at[0]].shape)
    for key in at[1:]:
        other, other_place = x[key], place[key]
        better = other > best
        if x.dtype.kind in "fV":
            better |= np.isnan(other)
        best, where = np.where(better, other, best), np.where(better | (where < 0), other_place, where)
    return best, where


def _places(shape: Sizes) -> Any:
    return np.arange(math.prod(shape)).reshape(shape)


def _slices(kernel: int, stride: int, dilation: int, count: int) -> list[slice]:
    """For each element of windows, those elements of all of them."""
    return [slice(k * dilation, k * dilation + stride * (count - 1) + 1, stride) for k in range(kernel)]


def _ends(shape: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes, padding: Sizes, places: Sizes) -> Pairs:
    """The border that all windows lie in: it may be wider at the end."""
    return tuple(
        (p, max((count - 1) * s + d * (k - 1) + 1 - n - p, 0))
        for n, k, s, d, p, count in zip(shape, kernel, stride, dilation, padding, places)
    )


def _has_kernels(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype.kind == "f" and x.dtype.itemsize in (4, 8)


def _max_pool(x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, places: Sizes) -> tuple[Any, Any]:
    n = len(kernel)
    shape = x.shape[x.ndim - n :]
    if _has_kernels(x) and math.prod(shape) < 2**31:  # places are counted in vectors of 32-bit integers
        return max_pool(x, kernel, stride, padding, dilation, places)
    border = _ends(shape, kernel, stride, dilation, padding, places)
    values, where = padded(x, border, _lowest(x.dtype)), padded(put_beside(_places(shape), x), border, -1)
    for k in reversed(range(n)):
        parts = _slices(kernel[k], stride[k], dilation[k], places[k])
        values, where = _maximum_along(values, where, values.ndim - n + k, parts)
    return _owned(values, where, math.prod(kernel) > 1)


def _owned(values: Any, where: Any, computed: bool) -> tuple[Any, Any]:
    """Both in memory of their own: where all windows have one element, `values` shares the input's."""
    if computed:
        return in_c_order(values), in_c_order(where)
    return values.copy(), np.broadcast_to(where, values.shape).copy()


def _adaptive_bounds(size: int, count: int) -> tuple[Any, Any]:
    numbers = np.arange(count)
    return numbers * size // count, ((numbers + 1) * size + count - 1) // count


def _adaptive_max_pool(x: Any, places: Sizes) -> tuple[Any, Any]:
    n = len(places)
    shape = x.shape[x.ndim - n :]
    if _has_kernels(x) and x.size and all(places):
        return adaptive_max_pool(x, places)
    values, where, computed = x, put_beside(_places(shape), x), False
    for k in reversed(range(n)):
        starts, ends = _adaptive_bounds(shape[k], places[k])
        longest = int((ends - starts).max()) if places[k] else 1
        parts = [put_beside(np.minimum(starts + j, ends - 1), x) for j in range(longest)]
        computed = computed or longest > 1
        values, where = _maximum_along(values, where, values.ndim - n + k, parts)
    return _owned(values, where, computed)


def _fractional_starts(samples: Any, size: int, kernel: int, count: int) -> Any:
    """Where windows begin: steps of two lengths, as many as fit; for each image and channel."""
    if count == 1:
        return library_of_array(samples).full((*samples.shape, 1), size - kernel)
    step = samples.dtype.type((size - kernel) / (count - 1))
    numbers = library_of_array(samples).arange(count - 1)
    starts = ((samples[..., None] + numbers.astype(samples.dtype)) * step).astype(np.int64)
    starts = starts - (samples[..., None] * step).astype(np.int64)
    return np.concatenate((starts, library_of_array(samples).full((*samples.shape, 1), size - kernel)), axis=-1)


def _fractional_max_pool(x: Any, samples: Any, kernel: Sizes, places: Sizes) -> tuple[Any, Any]:
    n = len(kernel)
    shape = x.shape[2:]
    order = range(n) if n == 3 else reversed(range(n))  # images take the first sample for the width
    starts = [np.zeros(0)] * n
    for number, k in enumerate(order):
        starts[k] = _fractional_starts(samples[..., number], shape[k], kernel[k], places[k])
    flat = x.reshape(*x.shape[:2], math.prod(shape))
    best = where = None
    for offset in np.ndindex(*kernel):
        place = library_of_array(x).zeros((1,) * (2 + n), np.int64)
        for k in range(n):
            along = (starts[k] + offset[k]).reshape(*x.shape[:2], *(places[k] if j == k else 1 for j in range(n)))
            place = place * shape[k] + along
        value = np.take_along_axis(flat, place.reshape(*x.shape[:2], math.prod(places)), 2).reshape(place.shape)
        if best is None:
            best, where = value, place
        else:
            better = (value > best) | np.isnan(value)
            best, where = np.where(better, value, best), np.where(better, place, where)
    return best, where


def _put_places(g: Any, places: Any, shape: Sizes, count: int) -> Any:
    """Added up at places among the last dimensions, which are counted as one; what stood nowhere (-1) goes nowhere."""
    if _has_kernels(g):
        return max_pool_back(g, places, shape[len(shape) - count :])
    front = shape[: len(shape) - count]
    rows, columns = math.prod(front), math.prod(shape[len(front) :])
    made = library_of_array(g).zeros(rows * columns, g.dtype)
    offsets = (library_of_array(g).arange(rows) * columns).reshape(rows, 1)
    found = places.reshape(rows, math.prod(places.shape[len(front) :]))
    stood = np.where(places < 0, g.dtype.type(0), g)
    ufunc_at(np.add, made, (np.maximum(found, 0) + offsets).reshape(-1), stood.reshape(-1))
    return made.reshape(shape)


def _take_places(x: Any, places: Any, count: int) -> Any:
    front = x.shape[: x.ndim - count]
    size, found = math.prod(x.shape[len(front) :]), math.prod(places.shape[len(front) :])
    at = np.maximum(places, 0).reshape(*front, found)
    taken = np.take_along_axis(x.reshape(*front, size), at, len(front)).reshape(places.shape)
    return np.where(places < 0, x.dtype.type(0), taken)


def _max_vjp(d: Any, g: Any) -> Any:
    return g[0].call("put_places", d.outs[1], shape=d.x.shape, count=len(d.attrs["places"]))


define(
    "put_places",
    _put_places,
    (lambda d, g: g.call("take_places", d.y, count=d.attrs["count"]), lambda d, g: None),
    ("y", ""),
)
define(
    "take_places",
    _take_places,
    (lambda d, g: g.call("put_places", d.y, shape=d.x.shape, count=d.attrs["count"]), lambda d, g: None),
    ("y", ""),
)
for _n in (2, 3):
    _about: dict[str, Any] = {"outputs": 2, "differentiable": (0,)}
    define(f"max_pool{_n}d", _max_pool, (_max_vjp,), ("p",), backward=f"MaxPool{_n}DWithIndicesBackward0", **_about)
    define(f"adaptive_max_pool{_n}d", _adaptive_max_pool, (_max_vjp,), ("p",), backward=f"AdaptiveMaxPool{_n}DBackward0", **_about)
    define(
        f"fractional_max_pool{_n}d", _fractional_max_pool, (_max_vjp, lambda d, g: None), ("p", ""),
        backward=f"FractionalMaxPool{_n}DBackward0", **_about,
    )  # fmt: skip

# -- means ------------------------------------------------------------------------------------------------------------


def _divisor(shape: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, places: Sizes, whole: bool, override: Any) -> Any:
    """How many elements each window counts: those of the border, if `whole`, but not those behind it."""
    if override is not None:
        return override
    result = np.ones((1,) * len(shape))
    for k, n in enumerate(shape):
        starts = np.arange(places[k]) * stride[k] - padding[k]
        ends = np.minimum(starts + kernel[k], n + padding[k])
        counts = ends - starts if whole else np.minimum(ends, n) - np.maximum(starts, 0)
        result = result * counts.reshape(-1, *(1,) * (len(shape) - k - 1))
    return result


def _quotient(total: Any, divisor: Any) -> Any:
    divisor = put_beside(np.asarray(divisor), total)
    if total.dtype.kind in "iu":
        return np.trunc(total / divisor).astype(total.dtype)
    return total / divisor.astype(total.dtype)


def _avg_pool(
    x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, places: Sizes, whole: bool, override: Any, shape: Any = None
) -> Any:
    n = len(kernel)
    shape = x.shape[x.ndim - n :]
    if _has_kernels(x):
        return avg_pool(x, kernel=kernel, stride=stride, padding=padding, places=places, whole=whole, divisor=override)
    total = padded(x, _ends(shape, kernel, stride, (1,) * n, padding, places))
    for k in reversed(range(n)):
        behind = (slice(None),) * (n - k - 1)
        parts = [total[(Ellipsis, part, *behind)] for part in _slices(kernel[k], stride[k], 1, places[k])]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
    return _quotient(total, _divisor(shape, kernel, stride, padding, places, whole, override))


def _avg_pool_back(
    g: Any, kernel: Sizes, stride: Sizes, padding: Sizes, places: Sizes, whole: bool, override: Any, shape: Sizes
) -> Any:
    n = len(kernel)
    if _has_kernels(g):
        return avg_pool_back(g, kernel=kernel, stride=stride, padding=padding, sizes=shape, whole=whole, divisor=override)
    border = _ends(shape, kernel, stride, (1,) * n, padding, places)
    share = _quotient(g, _divisor(shape, kernel, stride, padding, places, whole, override))
    for k in range(n):
        axis = share.ndim - n + k
        long = shape[k] + sum(border[k])
        made = library_of_array(g).zeros((*share.shape[:axis], long, *share.shape[axis + 1 :]), share.dtype)
        for part in _slices(kernel[k], stride[k], 1, places[k]):
            made[(Ellipsis, part, *(slice(None),) * (n - k - 1))] += share
        share = made[(Ellipsis, slice(padding[k], padding[k] + shape[k]), *(slice(None),) * (n - k - 1))]
    return in_c_order(share)


def _adaptive_avg_pool(x: Any, places: Sizes, shape: Any = None) -> Any:
    n = len(places)
    for k in reversed(range(n)):
        axis = x.ndim - n + k
        if _has_kernels(x) and x.size and places[k]:
            x = adaptive_mean(x, axis, places[k])
            continue
        behind = (slice(None),) * (n - k - 1)
        bounds = tuple(zip(*(b.tolist() for b in _adaptive_bounds(x.shape[axis], places[k]))))
        parts = [np.mean(x[(Ellipsis, slice(a, b), *behind)], axis=axis, keepdims=True) for a, b in bounds]
        x = np.concatenate(parts, axis=axis) if parts else x[(Ellipsis, slice(0, 0), *behind)]
    return x


def _adaptive_avg_pool_back(g: Any, places: Sizes, shape: Sizes) -> Any:
    n = len(places)
    for k in range(n):
        axis = g.ndim - n + k
        if _has_kernels(g) and g.size:
            g = adaptive_mean_back(g, axis, shape[k])
            continue
        behind = (slice(None),) * (n - k - 1)
        made = library_of_array(g).zeros((*g.shape[:axis], shape[k], *g.shape[axis + 1 :]), g.dtype)
        for j, (a, b) in enumerate(zip(*(b.tolist() for b in _adaptive_bounds(shape[k], places[k])))):
            made[(Ellipsis, slice(a, b), *behind)] += g[(Ellipsis, slice(j, j + 1), *behind)] / (b - a)
        g = made
    return g


def _shaped(d: Any) -> dict[str, Any]:
    return {**d.attrs, "shape": d.x.shape[d.x.ndim - len(d.attrs["places"]) :]}


for _name, _forward, _back in (
    ("avg_pool", _avg_pool, _avg_pool_back),
    ("adaptive_avg_pool", _adaptive_avg_pool, _adaptive_avg_pool_back),
):
    define(f"{_name}_back", _back, (lambda d, g, _name=_name: g.call(f"{_name}2d", **d.attrs),), ("",))
    for _n in (2, 3):
        define(
            f"{_name}{_n}d", in_single(_forward), (lambda d, g, _name=_name: g.call(f"{_name}_back", **_shaped(d)),), ("",),
            backward=f"{_name.title().replace('_', '')}{_n}DBackward0",
        )  # fmt: skip

# -- functions --------------------------------------------------------------------------------------------------------


def _max_pooling(n: int) -> None:
    who = f"max_pool{n}d"

    def both(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = True,
    ) -> tuple[Tensor, Tensor]:
        x = check_tensor(input, who, "input")
        if n == 1:
            return _max_pool1d(x, kernel_size, stride, padding, dilation, ceil_mode)
        windows = given_windows(who, n, kernel_size, stride, padding, dilation)
        about = placed_windows(who, x, windows, ceil_mode)
        refuse_bools(x, who)
        return apply(PRIMITIVES[who], x, **about)

    def compute(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        found = both(input, kernel_size, stride, padding, dilation, ceil_mode)
        return found if return_indices else found[0]

    compute.__name__ = compute.__qualname__ = who
    compute.__doc__ = "The greatest element of each window; with `return_indices` where it stood, too."
    both.__name__ = both.__qualname__ = f"{who}_with_indices"
    both.__doc__ = "The greatest element of each window, and where it stood."
    for place in ("torch", "functional"):
        function(who, method=False, namespace=place)(compute)
    function(both.__name__, method=False, namespace="functional")(both)
    if n == 1:
        function(both.__name__, method=False)(both)


def _max_pool1d(x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[Tensor, Tensor]:
    if x._array.ndim not in (2, 3):
        raise RuntimeError(
            "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:"
            f"{listed(x._array.shape)}"
        )
    found = []
    for what, value in (("kernel_size", kernel_size), ("stride", stride), ("padding", padding), ("dilation", dilation)):
        if value is None or value == ():
            value = kernel_size
        given = as_sequence(value)
        if len(given) != 1:
            raise RuntimeError(
                f"max_pool1d() {what} must be an int, list of ints or tuple of ints of size 1 but got size {len(given)}"
            )
        found.append(given[0])
    kernel, step, pad, gap = found
    for what, value in (("kernel_size", kernel), ("stride", step), ("dilation", gap)):
        if value <= 0:
            raise RuntimeError(f"max_pool1d() {what} must be greater than zero, but got {value}")
    if pad < 0 or pad > kernel // 2:
        rule = "must be non-negative, but got" if pad < 0 else "should be at most half of kernel size, but got padding="
        raise RuntimeError(f"max_pool1d() padding {rule}{f' {pad}' if pad < 0 else f'{pad} and kernel_size={kernel}'}")
    count = how_many(x._array.shape[-1], kernel, step, pad, gap, ceil_mode)
    if count <= 0:
        raise RuntimeError(f"max_pool1d() Invalid computed output size: {count}")
    only_floats(x, "max_pool1d_impl")
    about = {"kernel": (1, kernel), "stride": (1, step), "padding": (0, pad), "dilation": (1, gap), "places": (1, count)}
    values, places = apply(PRIMITIVES["max_pool2d"], unsqueeze(x, -2), **about)
    return values.squeeze(-2), places.squeeze(-2)


def _avg_pooling(n: int) -> None:
    who = f"avg_pool{n}d"

    def compute(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        x = check_tensor(input, who, "input")
        windows = given_windows(who, n, kernel_size, stride, padding, 1)
        divisor = divisor_override
        if isinstance(divisor, bool) or not isinstance(divisor, (int, np.integer, type(None))):
            raise TypeError(f"{who}(): argument 'divisor_override' must be int, not {type(divisor).__name__}")
        if divisor == 0:
            raise RuntimeError("divisor must be not zero")
        rank = x._array.ndim
        if n == 2 and rank not in (3, 4):
            raise IndexError(f"Dimension out of range (expected to be in range of [-{rank}, {rank - 1}], but got -3)")
        about = placed_windows(who, x, windows, ceil_mode)
        del about["dilation"]
        refuse_bools(x, who)
        return apply(PRIMITIVES[who], x, whole=bool(count_include_pad), override=divisor, **about)

    compute.__name__ = compute.__qualname__ = who
    compute.__doc__ = "The mean of each window; with `count_include_pad` the border counts as zeros."
    function(who, method=False, namespace="functional")(compute)


@function(method=False)
@function(method=False, namespace="functional")
def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
) -> Tensor:
    """The mean of each window; with `count_include_pad` the border counts as zeros."""
    x = check_tensor(input, "avg_pool1d", "input")
    check_rank_1(x, "avg_pool1d")
    kernel = only_size(kernel_size, "avg_pool1d", "kernel_size")
    step = kernel if stride is None or stride == () else only_size(stride, "avg_pool1d", "stride")
    pad = only_size(padding, "avg_pool1d", "padding")
    windows = given_windows("avg_pool2d", 2, (1, kernel), (1, step), (0, pad), 1)
    about = placed_windows("avg_pool2d", unsqueeze(x.detach(), -2), windows, ceil_mode)
    del about["dilation"]
    refuse_bools(x, "avg_pool2d")
    return apply(PRIMITIVES["avg_pool2d"], unsqueeze(x, -2), whole=bool(count_include_pad), override=None, **about).squeeze(-2)


def _outputs(who: str, x: Tensor, output_size: Any, n: int) -> Sizes:
    """How many windows; None is as many as there are elements."""
    shape = x._array.shape
    size = integer(output_size)
    given = (size,) * n if size is None or isinstance(size, int) else tuple(size)
    if len(given) != n:
        what = "internal error: output_size.size() must be" if "max" in who else "output_size must be"
        raise RuntimeError(f"{who}{'()' if 'max' in who else ''}: {what} {n}")
    found = tuple(shape[len(shape) - n + k] if m is None else int(m) for k, m in enumerate(given))
    if len(shape) not in (n + 1, n + 2):
        raise RuntimeError(f"{who}(): Expected {n + 1}D or {n + 2}D tensor, but got{':' if 'max' in who else ''} {listed(shape)}")
    first = len(shape) - n - ("max" in who)
    for k in range(first, len(shape)):
        if shape[k] == 0:
            raise RuntimeError(
                f"{who}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {listed(shape)} "
                f"with dimension {k} being empty"
            )
    if any(m < 0 for m in found):
        if "max" in who:
            bad = next(m for m in found if m < 0)
            made = (*shape[: len(shape) - n], *found)
            raise RuntimeError(f"Trying to create tensor with negative dimension {bad}: {listed(made)}")
        raise RuntimeError(
            f"{who}: elements of output_size must be greater than or equal to 0 but received {{{', '.join(map(str, found))}}}"
        )
    return found


def _adaptive(n: int) -> None:
    average, greatest = f"adaptive_avg_pool{n}d", f"adaptive_max_pool{n}d"

    def averages(input: Tensor, output_size: Any) -> Tensor:
        x = check_tensor(input, average, "input")
        if n == 1:
            check_rank_1(x, average)
            count = only_size(output_size, average, "output_size")
            return _adaptive_avg(unsqueeze(x, -2), "adaptive_avg_pool2d", (1, count)).squeeze(-2)
        return _adaptive_avg(x, average, _outputs(average, x, output_size, n))

    def both(input: Tensor, output_size: Any, return_indices: bool = True) -> tuple[Tensor, Tensor]:
        x = check_tensor(input, greatest, "input")
        if n == 1:
            check_rank_1(x, greatest)
            count = only_size(output_size, greatest, "output_size")
            only_floats(x, "adaptive_max_pool2d")
            values, places = apply(PRIMITIVES["adaptive_max_pool2d"], unsqueeze(x, -2), places=(1, count))
            return values.squeeze(-2), places.squeeze(-2)
        counts = _outputs(greatest, x, output_size, n)
        return apply(PRIMITIVES[greatest], only_floats(x, greatest), places=counts)

    def maxima(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        found = both(input, output_size)
        return found if return_indices else found[0]

    for name, compute, doc in (
        (average, averages, "The means of as many windows as are asked for."),
        (greatest, maxima, "The greatest elements of as many windows as are asked for."),
        (f"{greatest}_with_indices", both, "The greatest elements of as many windows as are asked for, and where they stood."),
    ):
        compute.__name__ = compute.__qualname__ = name  # type: ignore[attr-defined]
        compute.__doc__ = doc
        function(name, method=False, namespace="functional")(compute)
    if n == 1:
        function(average, method=False)(averages)
        function(greatest, method=False)(both)


def _adaptive_avg(x: Tensor, who: str, counts: Sizes) -> Tensor:
    if all(m == 1 for m in counts):
        return mean(x, tuple(range(-len(counts), 0)), True)
    return apply(PRIMITIVES[who], only_floats(x, who), places=counts)


for _n in (1, 2, 3):
    _max_pooling(_n)
    _adaptive(_n)
_avg_pooling(2)
_avg_pooling(3)


def _lp_pooling(n: int) -> None:
    who = f"lp_pool{n}d"

    def compute(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
        x = check_tensor(input, who, "input")
        kernel = given_sizes(kernel_size, n, who, "kernel_size")
        means = NAMESPACES["functional"][f"avg_pool{n}d"](power(x, norm_type), kernel_size, stride, 0, ceil_mode)
        return power(mul(mul(sign(means), relu(absolute(means))), math.prod(kernel)), 1.0 / norm_type)

    compute.__name__ = compute.__qualname__ = who
    compute.__doc__ = "The norm of each window."
    function(who, method=False, namespace="functional")(compute)


for _n in (1, 2, 3):
    _lp_pooling(_n)

__all__: list[str] = []
