"""The table of ONNX's operators, as functions of tensors.

Sizes stay Python numbers where a model computes with them (Shape, Gather, Concat, Reshape...), so that captures follow what depends
on them: an int or a tuple of ints stands for a tensor of int64 with no or one dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dynagraph import torch

Function = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """`function(*inputs, **attributes)`.  `host`: positions of inputs that it takes as numbers, where they are; None: all."""

    function: Function
    host: tuple[int, ...] | None


OPERATORS: dict[str, Operator] = {}
OF_NUMBERS: dict[str, Function] = {}  # where all inputs are numbers of the host's; gives NotImplemented where it cannot


def operator(*names: str, host: tuple[int, ...] | None = ()) -> Callable[[Function], Function]:
    """Register a function as ONNX's operators of these names."""

    def register(function: Function) -> Function:
        for name in names:
            OPERATORS[name] = Operator(function, host)
        return function

    return register


def of_numbers(*names: str) -> Callable[[Function], Function]:
    """Register what operators do with sizes."""

    def register(function: Function) -> Function:
        for name in names:
            OF_NUMBERS[name] = function
        return function

    return register


def is_number(value: Any) -> bool:
    """Whether a value is an int or a tuple of ints, which stands for a tensor."""
    return type(value) is int or type(value) is tuple


def tensor_of(value: Any) -> Any:
    """A value as a tensor."""
    return torch.tensor(value, dtype=torch.int64) if is_number(value) else value


def ints(value: Any) -> list[int]:
    """The numbers that a value holds; of a tensor only its data tell."""
    if type(value) is int:
        return [value]
    return list(value) if type(value) in (tuple, list) else [int(v) for v in value.reshape(-1).tolist()]


def number(value: Any) -> Any:
    """The one number that a value holds."""
    if type(value) is tuple:
        return value[0]
    return value.item() if isinstance(value, torch.Tensor) else value


def optional_ints(value: Any, attribute: Any) -> list[int] | None:
    """What newer operators take as an input, and older ones as an attribute."""
    if value is not None:
        return ints(value)
    return None if attribute is None else list(attribute)


__all__ = [
    "OF_NUMBERS", "OPERATORS", "Operator", "ints", "is_number", "number", "of_numbers", "operator", "optional_ints", "tensor_of",
]  # fmt: skip
