"""Arguments in the order that PyTorch had first, and still takes: ``x.add_(alpha, y)``, ``torch.addmm(beta, x, alpha, a, b)``."""

from __future__ import annotations

import warnings
from typing import Any

from dynagraph.markers import is_compiling
from dynagraph.torch.core.tensor import Tensor

_warned: list[bool] = []


def scaled_operand(who: str, alpha: Any, rest: tuple[Any, ...]) -> tuple[Any, Any]:
    """``(other, alpha)`` of ``x.add(alpha, other)``, from what came after `x`."""
    _check(who, 2, len(rest) == 1 and _is_number(alpha), 2 + len(rest), "Tensor other, *, Number alpha = 1")
    _warn(who, "Number alpha, Tensor other", "Tensor other, *, Number alpha = 1")
    return rest[0], alpha


def weighted_operands(who: str, value: Any, tensor1: Any, rest: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """``(tensor1, tensor2, value)`` of ``x.addcmul(value, tensor1, tensor2)``."""
    now = "Tensor tensor1, Tensor tensor2, *, Number value = 1"
    _check(who, 3, len(rest) == 1 and _is_number(value), 3 + len(rest), now)
    _warn(who, "Number value, Tensor tensor1, Tensor tensor2", now)
    return tensor1, rest[0], value


def scaled_product(who: str, *given: Any) -> tuple[Any, Any, Any, Any, Any]:
    """``(input, a, b, beta, alpha)`` of ``x.addmm(beta, alpha, a, b)`` or ``torch.addmm(beta, x, alpha, a, b)``; alpha may lack."""
    numbers, tensors = [o for o in given if _is_number(o)], [o for o in given if not _is_number(o)]
    now = "Tensor mat1, Tensor mat2, *, Number beta = 1, Number alpha = 1"
    _check(who, 3, len(tensors) == 3 and len(numbers) in (1, 2), len(given), now)
    _warn(who, "Number beta, Number alpha, Tensor mat1, Tensor mat2", now)
    beta, alpha = numbers if len(numbers) == 2 else (numbers[0], 1)
    return (*tensors, beta, alpha)  # type: ignore[return-value]


def _is_number(value: Any) -> bool:
    return not isinstance(value, Tensor) or (value.dim() == 0 and not value.requires_grad)


def _check(who: str, taken: int, is_known: bool, given: int, now: str) -> None:
    if not is_known:
        raise TypeError(f"{who}() takes {taken} positional arguments but {given} were given: ({now})")


def _warn(who: str, before: str, now: str) -> None:
    """Once in a process, as PyTorch does."""
    if is_compiling() or _warned:
        return
    _warned.append(True)
    warnings.warn(
        f"This overload of {who} is deprecated:\n\t{who}({before})\nConsider using one of the following signatures instead:\n"
        f"\t{who}({now})",
        UserWarning,
        stacklevel=5,
    )


__all__ = ["scaled_operand", "scaled_product", "weighted_operands"]
