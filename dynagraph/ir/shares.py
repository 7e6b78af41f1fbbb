"""Shares: what comes back to a value from one of its users, while gradients are taken, in a graph or over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynagraph.ir.dtypes import DType
from dynagraph.ir.shapes import Shape, same_dim, same_shape

Within = tuple[tuple[Any, bool], ...]


@dataclass(frozen=True)
class Share:
    """What comes back to a value from one of its users.

    `within`: conditions (what terms are of: nodes, or arrays), and whether they hold or not, outside of which the gradient is zero,
    for the value is not chosen there.  What is zero may have met an infinite slope since, and be NaN; it is set to zero again where
    elements meet others.
    """

    term: Any
    within: Within = ()
    is_clean: bool = True

    def cleaned(self) -> Share:
        if self.is_clean:
            return self
        term = self.term
        for value, holds in self.within:
            condition = term.of(value)
            term = term.where(condition, 0) if holds else term.full(0, ()).where(condition, term)
        return Share(term, self.within)


def total_of(shares: Sequence[Share]) -> Share:
    """The sum of what came back."""
    if len(shares) == 1:
        return shares[0]
    first, *others = (share.cleaned() for share in shares)
    total = first.term
    for share in others:
        total = total + share.term
    return Share(total, first.within if all(_are_same(share.within, first.within) for share in others) else ())


def _are_same(left: Within, right: Within) -> bool:
    return len(left) == len(right) and all(a is b and holds is other for (a, holds), (b, other) in zip(left, right))


def of_dtype(term: Any, dtype: DType) -> Any:
    """The gradient of an operand that the op has converted."""
    return (term if dtype.is_complex else term.real).cast(dtype)


def of_shape(share: Share, shape: Shape) -> Share:
    """The gradient of an operand that was broadcast: the sum over what it was broadcast to."""
    if same_shape(share.term.shape, shape):
        return share
    term = share.cleaned().term
    within = tuple((condition, holds) for condition, holds in share.within if _fits(condition.shape, shape))
    missing = term.ndim - len(shape)
    if missing < 0:
        return Share(term.call("broadcast_to", shape=shape), within)
    axes = tuple(k for k in range(term.ndim) if k < missing or (same_dim(shape[k - missing], 1) and not same_dim(term.shape[k], 1)))
    reduced = term.call("sum", axis=axes, keepdims=True) if axes else term
    reduced = reduced.reshape(reduced.shape[missing:])
    return Share(reduced if same_shape(reduced.shape, shape) else reduced.call("broadcast_to", shape=shape), within)


def _fits(condition: Shape, shape: Shape) -> bool:
    """Whether a condition broadcasts to the shape."""
    own = shape[len(shape) - len(condition) :]
    return len(condition) <= len(shape) and all(same_dim(have, 1) or same_dim(have, want) for have, want in zip(condition, own))


__all__ = ["Share", "Within", "of_dtype", "of_shape", "total_of"]
