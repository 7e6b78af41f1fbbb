"""What undoes max pooling, and pooling of windows at random places."""

from __future__ import annotations

import math
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import any_wrong, library_of_array
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.activations import only_floats
from dynagraph.torch.functions.common import check_tensor, function
from dynagraph.torch.functions.shapes import unsqueeze
from dynagraph.torch.functions.windows import given_sizes

Sizes = tuple[int, ...]


def _unpool(x: Any, places: Any, shape: Sizes) -> Any:
    """Zeros but at places among the last dimensions, which are counted as one; of equal places the last counts."""
    front = x.shape[: x.ndim - len(shape)]
    library = library_of_array(x)
    made = library.zeros((math.prod(front), math.prod(shape)), x.dtype)
    rows = library.arange(made.shape[0]).reshape(-1, 1)
    count = math.prod(x.shape[len(front) :])
    made[rows, places.reshape(made.shape[0], count)] = x.reshape(made.shape[0], count)
    return made.reshape(*front, *shape)


for _n in (2, 3):
    define(
        f"max_unpool{_n}d",
        _unpool,
        (lambda d, g: g.call("take_places", d.y, count=len(d.attrs["shape"])), lambda d, g: None),
        ("y", ""),
        backward=f"MaxUnpool{_n}DBackward0",
    )


def _unpooled_shape(x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, output_size: Any) -> Sizes:
    """The size that was given, which must be near the one that pooling would have come from; otherwise that."""
    n = len(kernel)
    inner = x._array.shape[x._array.ndim - n :]
    usual = tuple((m - 1) * s + k - 2 * p for m, s, k, p in zip(inner, stride, kernel, padding))
    if output_size is None:
        return usual
    given = tuple(int(v) for v in output_size)
    if len(given) == n + 2:
        given = given[2:]
    if len(given) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of '{len(given)}'"
        )
    for k, (m, u, s) in enumerate(zip(given, usual, stride)):
        if not u - s < m < u + s:
            raise ValueError(f'invalid output_size "{given}" (dim {k} must be between {u - s} and {u + s})')
    return given


def _unpooling(n: int) -> None:
    who = f"max_unpool{n}d"

    def compute(
        input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Tensor:
        x, places = check_tensor(input, who, "input"), check_tensor(indices, who, "indices", 2)
        kernel = given_sizes(kernel_size, n, who, "kernel_size")
        steps = kernel if stride is None else given_sizes(stride, n, who, "stride")
        shape = _unpooled_shape(x, kernel, steps, given_sizes(padding, n, who, "padding"), output_size)
        if n == 1:
            return _unpooled(unsqueeze(x, -2), unsqueeze(places, -2), (1, *shape)).squeeze(-2)  # type: ignore[attr-defined]
        return _unpooled(x, places, shape)

    compute.__name__ = compute.__qualname__ = who
    compute.__doc__ = "Zeros but at the places that max pooling has found."
    function(who, method=False, namespace="functional")(compute)


def _unpooled(x: Tensor, places: Tensor, shape: Sizes) -> Tensor:
    n = len(shape)
    if places.dtype is not dtypes.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {dtypes.scalar_name(places.dtype)}")
    if x._array.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with {x._array.ndim} dimensions."
        )
    if x._array.shape != places._array.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(x._array.shape)}) but got indices tensor "
            f"with shape: {list(places._array.shape)}"
        )
    only_floats(x, f"max_unpool{n}d")
    size = math.prod(shape)
    array = places._array
    outside = (array < 0) | (array >= size)
    if any_wrong(outside):
        volume = "x".join(map(str, shape))
        raise RuntimeError(f"Found an invalid max index: {int(array[outside][0])} (output volumes are of size {volume})")
    return apply(PRIMITIVES[f"max_unpool{n}d"], x, places, shape=shape)


for _n in (1, 2, 3):
    _unpooling(_n)
