"""How primitives run on all examples at once, where neither NumPy's protocols nor the names of their attrs say it.

A rule takes the primitive's forward function, the level, the number of examples, the operands and the attrs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import library_of_array, ufunc_at
from dynagraph.torch.core.batching import RULES, SHIFTED, BatchedArray, aligned, examples, places_of
from dynagraph.torch.core.batching_loops import attempt
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.terms import FORWARD

Rule = Callable[[Any, int, int, Sequence[Any], dict[str, Any]], Any]
_rules: dict[str, Rule] = {}
_SAME = (
    "alias", "contiguous", "view_as_real", "view_as_complex", "copy", "to_copy", "tril", "triu", "cat", "concatenate", "stack",
    "put_along", "take_along",
)  # fmt: skip
_of_last_dims = (  # whatever dimensions stand before those that they are of
    "max_pool2d", "max_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool2d", "avg_pool3d", "avg_pool_back",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_avg_pool_back", "resample", "circular_pad",
    *(f"{kind}_pad{n}d" for kind in ("reflect", "replicate") for n in (1, 2, 3)),
    *(f"upsample_{mode}{n}d" for n in (1, 2, 3)
      for mode in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear")),
)  # fmt: skip
_of_images = ("im2col", "col2im", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle")  # the first dimension counts them


@functools.cache
def register() -> None:
    """Put the rules into the table: when the first `vmap` runs, as all primitives are defined then."""
    for names, kind in ((_SAME, "same"), (("transpose", "transpose_two", "t"), "permutes"), (("broadcast_to",), "expands")):
        for name in names:
            SHIFTED.update(dict.fromkeys(_forwards(name), kind))
    for name, run in _rules.items():
        for forward in _forwards(name):
            RULES[forward] = functools.partial(run, forward)


def _forwards(name: str) -> set[Any]:
    """What a primitive's forward function is: a row may have two."""
    found = {PRIMITIVES[name].forward} if name in PRIMITIVES else set()
    return found | {FORWARD[name]} if name in FORWARD else found


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Declare how primitives run on batched arrays."""

    def put(run: Rule) -> Rule:
        _rules.update(dict.fromkeys(names, run))
        return run

    return put


def _wrapped(results: Any, level: int, change: Callable[[Any], Any] = lambda x: x) -> Any:
    if isinstance(results, tuple):
        return tuple(BatchedArray(change(r), level) for r in results)
    return BatchedArray(change(results), level)


@rule(*_of_last_dims)
def _leading(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    return _wrapped(attempt(forward, [examples(a, level, count) for a in arrays], attrs), level)


@rule(*_of_images)
def _folded(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The images of all examples as one batch."""
    x = examples(arrays[0], level, count)
    results = attempt(forward, (x.reshape((count * x.shape[1], *x.shape[2:])),), attrs)
    return _wrapped(results, level, lambda r: r.reshape((count, x.shape[1], *r.shape[1:])))


# -- convolutions: channels of all examples stand side by side, in groups of their own --------------------------------


def _beside(x: Any, level: int, count: int) -> Any:
    """Batches of images of all examples, ``(examples, images, channels, ...)``, as one: ``(images, examples * channels, ...)``."""
    array = np.moveaxis(examples(x, level, count), 0, 1)
    return array.reshape((array.shape[0], count * array.shape[2], *array.shape[3:]))


def _apart(x: Any, count: int) -> Any:
    """The reverse."""
    return np.moveaxis(x.reshape((x.shape[0], count, x.shape[1] // count, *x.shape[2:])), 1, 0)


@rule("conv", "conv_input")
def _convolution(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, *others = arrays
    if not any(isinstance(a, BatchedArray) and a.level == level for a in others):  # one filter: more images
        images = examples(x, level, count)
        result = attempt(forward, (images.reshape((count * images.shape[1], *images.shape[2:])), *others), attrs)
        return BatchedArray(result.reshape((count, images.shape[1], *result.shape[1:])), level)
    rows = [examples(a, level, count) for a in others]
    flat = [a.reshape((count * a.shape[1], *a.shape[2:])) for a in rows]
    result = attempt(forward, (_beside(x, level, count), *flat), {**attrs, "groups": count * attrs["groups"]})
    return BatchedArray(_apart(result, count), level)


@rule("conv_weight")
def _convolution_weight(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The gradient by a filter, for each example."""
    result = attempt(forward, [_beside(a, level, count) for a in arrays], {**attrs, "groups": count * attrs["groups"]})
    return BatchedArray(result.reshape((count, result.shape[0] // count, *result.shape[1:])), level)


# -- places -----------------------------------------------------------------------------------------------------------


@rule("put_places", "bordered_back")
def _put_places(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    each = [examples(a, level, count) for a in arrays]
    return BatchedArray(attempt(forward, each, {**attrs, "shape": (count, *attrs["shape"])}), level)


@rule("take_places")
def _take_places(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    return BatchedArray(attempt(forward, [examples(a, level, count) for a in arrays], attrs), level)


@rule("embedding_back")
def _embedding_back(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Rows of all examples' tables as rows of one table."""
    if attrs["padding"] >= 0 or attrs["by_frequency"]:
        return NotImplemented
    g, places = (examples(a, level, count) for a in arrays)
    rows = attrs["rows"]
    offsets = library_of_array(places).arange(count) * rows
    shifted = places + offsets.reshape((count, *(1,) * (places.ndim - 1)))
    made = attempt(forward, (g, shifted), {**attrs, "rows": count * rows})
    return BatchedArray(made.reshape((count, rows, made.shape[-1])), level)


def _key(ndim: int, axes: Any, places: Sequence[Any]) -> list[Any]:
    key: list[Any] = [slice(None)] * ndim
    for axis, place in zip(axes, places):
        key[axis] = place
    return key


@rule("index_put_zeros")
def _index_put_zeros(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Each example's values added at its places."""
    g, *places = arrays
    base = attrs["base"]
    values = examples(g, level, count)
    if places[0].dtype.kind == "b" or isinstance(values, BatchedArray):
        return NotImplemented
    made = BatchedArray(np.zeros_like(values, shape=(count, *base)), level)
    found = places_of(made, _key(len(base), attrs["axes"], places))
    if found is None:
        return NotImplemented
    key, at, rank = found
    ufunc_at(np.add, made.physical, key, np.moveaxis(values, range(1 + at, 1 + at + rank), range(1, 1 + rank)) if at else values)
    return made


@rule("index_put")
def _index_put(forward: Any, level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, values, *places = arrays
    made = BatchedArray(examples(x, level, count).copy(), level)
    if places[0].dtype.kind == "b" or isinstance(made.physical, BatchedArray):
        return NotImplemented
    found = places_of(made, _key(x.ndim, attrs["axes"], places))
    if found is None:
        return NotImplemented
    key, at, rank = found
    shape = made.physical[key].shape
    if at:
        shape = (shape[0], *shape[1 + rank : 1 + rank + at], *shape[1 : 1 + rank], *shape[1 + rank + at :])
    full = np.broadcast_to(aligned((values,), level, len(shape) - 1)[0], shape)
    full = np.moveaxis(full, range(1 + at, 1 + at + rank), range(1, 1 + rank)) if at else full
    if attrs["accumulate"]:
        ufunc_at(np.add, made.physical, key, full)
    else:
        made.physical[key] = full
    return made


__all__ = ["register", "rule"]
