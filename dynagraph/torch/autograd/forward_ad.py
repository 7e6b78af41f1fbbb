"""Forward mode: dual tensors, which carry a tangent through what is computed with them.

A dual tensor is recorded as a leaf is, and a tangent is found when it is asked for, by reverse mode twice: see
`func/transforms.py`.  So duals do nothing in `no_grad`, and results say that they require gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dynagraph.torch.autograd.function import transposing
from dynagraph.torch.core.grad_mode import enable_grad, mode
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.func.tracing import gradients, reaches_others, stand_for, zeros_for


class UnpackedDualTensor(NamedTuple):
    """The value and the tangent of a dual tensor; no tangent is None."""

    primal: Tensor
    tangent: Tensor | None


class _Dual(NamedTuple):
    stand: Tensor
    tangent: Tensor


_levels: list[list[_Dual]] = []


def enter_dual_level() -> int:
    """Begin a level, in which dual tensors can be made; gives its number."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append([])
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: its tensors are dual no longer."""
    if not _levels:
        raise RuntimeError("Trying to exit a forward AD level but no level is currently active.")
    if level not in (None, len(_levels) - 1):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    for dual in _levels.pop():
        dual.stand._stands = False


class dual_level:
    """A context in which dual tensors can be made.

    >>> from dynagraph import torch
    >>> import dynagraph.torch.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     dual = fwAD.make_dual(torch.tensor(3.0), torch.tensor(1.0))
    ...     fwAD.unpack_dual(dual * dual).tangent
    tensor(6.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """The tensor with a tangent."""
    if not _levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, value in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor) or value._array.dtype.kind not in "fcV":
            kind = value.dtype if isinstance(value, Tensor) else type(value)
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {kind}")
    if tensor._array.shape != tangent._array.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
            f"Tensor is of size {list(tensor._array.shape)} while the given forward gradient is of size "
            f"{list(tangent._array.shape)}."
        )
    stand = stand_for(tensor)
    _levels[-1].append(_Dual(stand, tangent))
    return stand


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A tensor's value, and its tangent if it was computed from dual tensors."""
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    duals = _levels[-1]
    for dual in duals:
        if dual.stand is tensor:
            return UnpackedDualTensor(_primal(tensor, duals), dual.tangent)
    if not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    weight = zeros_for(tensor)
    weight._requires_grad = True
    before, transposing.on = transposing.on, True
    try:
        with enable_grad():
            pulled = gradients([tensor], [dual.stand for dual in duals], [weight], True)
    finally:
        transposing.on = before
    pairs = [(g, dual.tangent) for g, dual in zip(pulled, duals) if g.requires_grad]
    if not pairs:
        return UnpackedDualTensor(_primal(tensor, duals), None)
    record = mode.grad and (
        any(t.requires_grad for _, t in pairs) or reaches_others([tensor], [dual.stand for dual in duals])
    )
    (tangent,) = gradients([g for g, _ in pairs], [weight], [t for _, t in pairs], record)
    return UnpackedDualTensor(_primal(tensor, duals), tangent)


def _primal(tensor: Tensor, duals: list[_Dual]) -> Tensor:
    """The value: without history, unless gradients by others than the dual tensors can be asked for."""
    stands = [dual.stand for dual in duals]
    if reaches_others([tensor], stands):
        return tensor
    return tensor.detach()


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
