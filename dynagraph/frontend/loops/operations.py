"""What operations mean to kinds of native values that have modules of their own: lists and text register theirs here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dynagraph.frontend.loops.types import Type

OPERATIONS: dict[tuple[str, type[Type]], Callable[..., Any]] = {}
F = TypeVar("F", bound=Callable[..., Any])


def means(operation: str, *kinds: type[Type]) -> Callable[[F], F]:
    """Register what an operation does with values of these kinds: a function of the builder and the operands."""

    def register(function: F) -> F:
        OPERATIONS.update(dict.fromkeys(((operation, kind) for kind in kinds), function))
        return function

    return register


def meaning_of(operation: str, kind: Type) -> Callable[..., Any] | None:
    return OPERATIONS.get((operation, type(kind)))
