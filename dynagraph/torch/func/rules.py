"""How primitives run on all examples at once, where neither NumPy's protocols nor the names of their attrs say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.batching import RULES, SHIFTED, BatchedArray, aligned, examples, places_of
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.terms import FORWARD
from dynagraph.torch.functions import indexing, shapes

assert indexing and shapes  # which define the primitives
Rule = Callable[[int, int, Sequence[Any], dict[str, Any]], Any]


def _forwards(name: str) -> set[Any]:
    """What a primitive's forward function is: a row may have two."""
    found = {PRIMITIVES[name].forward} if name in PRIMITIVES else set()
    return found | {FORWARD[name]} if name in FORWARD else found


for _name in (
    "alias", "contiguous", "view_as_real", "view_as_complex", "copy", "to_copy", "tril", "triu", "cat", "concatenate", "stack",
    "put_along", "take_along",
):  # fmt: skip
    SHIFTED.update(dict.fromkeys(_forwards(_name), "same"))
for _name in ("transpose", "transpose_two", "t"):
    SHIFTED.update(dict.fromkeys(_forwards(_name), "permutes"))
SHIFTED.update(dict.fromkeys(_forwards("broadcast_to"), "expands"))


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Declare how primitives run on batched arrays."""

    def put(run: Rule) -> Rule:
        for name in names:
            for forward in _forwards(name):
                RULES[forward] = run
        return run

    return put


def _key(ndim: int, axes: Any, places: Sequence[Any]) -> list[Any]:
    key: list[Any] = [slice(None)] * ndim
    for axis, place in zip(axes, places):
        key[axis] = place
    return key


@rule("index_put_zeros")
def _index_put_zeros(level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Each example's values added at its places."""
    g, *places = arrays
    base = attrs["base"]
    if places[0].dtype.kind == "b":
        return NotImplemented
    made = BatchedArray(np.zeros_like(examples(g, level, count), shape=(count, *base)), level)
    found = places_of(made, _key(len(base), attrs["axes"], places))
    if found is None or isinstance(made.physical, BatchedArray):
        return NotImplemented
    key, at, rank = found
    values = examples(g, level, count)
    values = np.moveaxis(values, range(1 + at, 1 + at + rank), range(1, 1 + rank)) if at else values
    np.add.at(made.physical, key, values)
    return made


@rule("index_put")
def _index_put(level: int, count: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, values, *places = arrays
    if places[0].dtype.kind == "b":
        return NotImplemented
    made = BatchedArray(examples(x, level, count).copy(), level)
    found = places_of(made, _key(x.ndim, attrs["axes"], places))
    if found is None or isinstance(made.physical, BatchedArray):
        return NotImplemented
    key, at, rank = found
    shape = made.physical[key].shape
    if at:
        shape = (shape[0], *shape[1 + rank : 1 + rank + at], *shape[1 : 1 + rank], *shape[1 + rank + at :])
    full = np.broadcast_to(aligned((values,), level, len(shape) - 1)[0], shape)
    full = np.moveaxis(full, range(1 + at, 1 + at + rank), range(1, 1 + rank)) if at else full
    if attrs["accumulate"]:
        np.add.at(made.physical, key, full)
    else:
        made.physical[key] = full
    return made


__all__ = ["rule"]
