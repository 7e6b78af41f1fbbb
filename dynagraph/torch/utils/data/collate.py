"""Batches of samples: tensors of nested structures."""

from __future__ import annotations

import collections.abc
import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.multiprocessing.segments import array_for_batch

_torch = NAMESPACES["torch"]
_TEXT = re.compile(r"[SaUO]")
FORMAT = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def _like(kind: Any, data: Any, values: Any, is_mapping: bool) -> Any:
    """The values in a container of the same type, where it takes them."""
    try:
        mutable = collections.abc.MutableMapping if is_mapping else collections.abc.MutableSequence
        if isinstance(data, mutable):
            made: Any = copy.copy(data)
            if is_mapping:
                made.update(values)
            else:
                for k, value in enumerate(values):
                    made[k] = value
            return made
        return kind(values)
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """NumPy's arrays and scalars in a nested structure as tensors; anything else as it is."""
    kind = type(data)
    if isinstance(data, Tensor):
        return data
    if kind.__module__ == "numpy" and not isinstance(data, (str, bytes)):
        if isinstance(data, np.ndarray) and _TEXT.search(data.dtype.str) is not None:
            return data
        return _torch["as_tensor"](data)
    if isinstance(data, collections.abc.Mapping):
        return _like(kind, data, {key: default_convert(value) for key, value in data.items()}, True)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _like(kind, data, [default_convert(value) for value in data], False)
    return data


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """A batch of samples as one structure of batches; `collate_fn_map` says how samples of a type, or of its subclasses, are put
    together."""
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for known, function in collate_fn_map.items():
            if isinstance(first, known):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        columns = {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in first}
        return _like(kind, first, columns, True)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        rows = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)]
        return rows if isinstance(first, tuple) else _like(kind, first, rows, False)
    raise TypeError(FORMAT.format(kind))


def _tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    arrays = [each._array for each in batch if type(each) is Tensor and not each.requires_grad]
    if len(arrays) == len(batch):
        made = _stacked(arrays)
        if made is not None:
            return wrap(made)
    return _torch["stack"](list(batch), 0)


def _stacked(arrays: list[Any]) -> np.ndarray | None:
    """Side by side, in the memory of a batch that a worker makes; None where there is none, or where they are not of a kind."""
    first = arrays[0]
    if type(first) is not np.ndarray or not first.ndim:
        return None
    shape, dtype = first.shape, first.dtype
    if any(array.shape != shape or array.dtype is not dtype for array in arrays):
        return None
    made = array_for_batch((len(arrays), *shape), dtype)
    if made is not None:
        np.concatenate(arrays, out=made.reshape(-1, *shape[1:]))
    return made


def _arrays(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if _TEXT.search(batch[0].dtype.str) is not None:
        raise TypeError(FORMAT.format(batch[0].dtype))
    return collate([_torch["as_tensor"](array) for array in batch], collate_fn_map=collate_fn_map)


def _numpy_scalars(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return _torch["as_tensor"](np.asarray(batch))


def _floats(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return _torch["tensor"](list(batch), dtype=dtypes.float64)


def _ints(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return _torch["tensor"](list(batch))


def _texts(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: _tensors, np.ndarray: _arrays, (np.bool_, np.number, np.object_): _numpy_scalars, float: _floats, int: _ints,
    str: _texts, bytes: _texts,
}  # fmt: skip


def default_collate(batch: Any) -> Any:
    """A list of samples as one batch: tensors and arrays are stacked, numbers become tensors (floats of float64), and containers
    hold batches of what they held.

    >>> from dynagraph.torch.utils.data import default_collate
    >>> default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': tensor([1, 2]), 'name': ['a', 'b']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]
