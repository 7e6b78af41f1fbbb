"""Loops over arrays that the caller holds, as the parameters of a model are: there are as many turns as it has made arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.kinds.iterators import Entries, Enumerate, Items, Zip
from dynagraph.frontend.kinds.values import Array, Dict
from dynagraph.frontend.loops.capture import MOST_WRITTEN_OUT

MOST_OVER_ARRAYS = 32000  # instructions of turns that are written out: about 8 s, and runs 5 times as fast as a loop left in Python


def most_written_out(frame: Frame) -> int:
    """How many instructions the turns of a loop may be, at whose head the frame stands."""
    is_over = frame.instructions[frame.ip].op == "FOR_ITER" and _is_over_arrays(frame.ex.resolve(frame.stack[-1]))
    return MOST_OVER_ARRAYS if is_over else MOST_WRITTEN_OUT


def _is_over_arrays(iterator: Any) -> bool:
    """Whether what comes next, or came last, is an array, or stands beside one: in a zip, or as the key of one."""
    if isinstance(iterator, Zip):
        return any(map(_is_over_arrays, iterator.parts))
    if isinstance(iterator, Enumerate):
        return _is_over_arrays(iterator.inner)
    if isinstance(iterator, Items):
        return bool(iterator.items) and _is_array(iterator.items[min(iterator.position, len(iterator.items) - 1)])
    if isinstance(iterator, Entries) and isinstance(iterator.owner, Dict) and iterator.keys:
        owner, key = iterator.owner, iterator.keys[min(iterator.position, len(iterator.keys) - 1)]
        return _is_array(owner.items.get(key)) or (owner.object is not None and _is_of_arrays(type(owner.object.get(key))))
    return False


def _is_array(value: Any) -> bool:
    kind = type(value.obj) if isinstance(value, Lazy) else getattr(value, "kind", None)
    return isinstance(value, Array) or (isinstance(kind, type) and _is_of_arrays(kind))


def _is_of_arrays(kind: type) -> bool:
    """Whether instances are arrays, or stand for one, as tensors do; no code of the class runs."""
    return any("__array__" in vars(cls) for cls in kind.__mro__) and not issubclass(kind, np.generic)
