"""``torch.utils._foreach_utils``: lists of tensors, divided into those that one operation takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import getattr_of


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Rows of lists of the same length, by the device and dtype of the first list's tensors; with their places, where asked for."""
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for place, row in enumerate(zip(*tensorlistlist, strict=True)):
        lists, places = groups.setdefault((row[0].device, row[0].dtype), ([[] for _ in tensorlistlist], []))
        for found, value in zip(lists, row):
            found.append(value)
        if with_indices:
            places.append(place)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Where operations on lists are made for."""
    return ["cpu", "cuda"]


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _has_foreach_support(tensors: Sequence[Any], device: Any) -> bool:
    """Whether operations on lists take all of them."""
    return getattr(device, "type", device) in ("cpu", "cuda") and all(t is None or type(t) is Tensor for t in tensors)


__getattr__: Any = getattr_of(__name__)
