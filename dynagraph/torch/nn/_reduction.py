"""``torch.nn._reduction``: how losses are reduced, by its names of old and by number."""

from __future__ import annotations

import warnings

from dynagraph.torch.functions.losses import mode_of_old

_NUMBERS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of "none", "mean" or "sum"."""
    if reduction == "elementwise_mean":
        text = "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead."
        warnings.warn(text, stacklevel=2)
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """ "none", "mean" or "sum" by the arguments of old."""
    if emit_warning:
        return mode_of_old(size_average, reduce, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mode_of_old(size_average, reduce, 3)


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """The number of the reduction by the arguments of old."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
