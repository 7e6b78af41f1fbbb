"""What the transforms of `torch.func` share: a run of a function whose gradients by its inputs can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.engine import run_backward
from dynagraph.torch.core.grad_mode import enable_grad, mode
from dynagraph.torch.core.nodes import Node
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.tensor import Tensor, apply, edge_of, storage_of, wrap
from dynagraph.torch.func.batch import spread_over_running
from dynagraph.torch.utils._pytree import tree_flatten, tree_unflatten


def stand_for(x: Any) -> Tensor:
    """A tensor that stands for an input: gradients by it are of this input only, and go on to what it was computed from."""
    if not isinstance(x, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
    if x._array.dtype.kind not in "fcV":
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    x = spread_over_running(x)
    if mode.grad and x.requires_grad:
        return apply(PRIMITIVES["alias"], x)
    made = wrap(x._array)
    made._storage = storage_of(x)
    made._requires_grad = True
    made._stands = True
    return made


def reaches_others(outputs: Sequence[Tensor], own: Sequence[Tensor]) -> bool:
    """Whether outputs come from leaves other than these and the stand-ins of runs that have ended."""
    leaves = {id(x) for x in own if x._grad_fn is None}
    seen: set[int] = set()
    stack: list[Any] = [edge[0] for x in outputs if (edge := edge_of(x)) is not None]
    while stack:
        target = stack.pop()
        if id(target) in seen:
            continue
        seen.add(id(target))
        if not isinstance(target, Node):
            if id(target) not in leaves and target.__dict__.get("_stands", True):
                return True
            continue
        stack += [edge[0] for edge in target.edges if edge is not None]
    return False


class Run:
    """A function was run on stand-ins for some inputs.  `outputs` are its results; `inputs` the stand-ins."""

    def __init__(self, func: Any, inputs: Any, call: Any = None, has_aux: bool = False, who: str = ""):
        self.outer = mode.grad
        leaves, self.input_spec = tree_flatten(inputs)
        self.inputs = [stand_for(x) for x in leaves]
        with enable_grad():
            given = tree_unflatten(self.inputs, self.input_spec)
            try:
                self.result = func(*given) if call is None else call(given)
            finally:
                for x in self.inputs:  # nobody outside can ask for gradients by these
                    if x._grad_fn is None:
                        x._stands = False
        self.aux: Any = None
        if has_aux:
            if not isinstance(self.result, tuple) or len(self.result) != 2:
                raise RuntimeError(f"{who}: output of function f should be a tuple: (output, aux) if has_aux is True")
            self.result, self.aux = self.result
        self.outputs, self.output_spec = tree_flatten(self.result)

    def settle(self) -> None:
        """Find out whether gradients are to be recorded: whether somebody outside can ask for gradients by them."""
        tensors = [x for x in self.outputs if isinstance(x, Tensor)]
        self.recorded = self.outer and reaches_others(tensors, self.inputs)

    def public(self, tree: Any) -> Any:
        """Results as they are given out: without the history that nobody can ask for."""
        leaves, spec = tree_flatten(tree)
        return tree_unflatten([
            x.detach() if isinstance(x, Tensor) and (not self.recorded or not x.requires_grad) else x for x in leaves
        ], spec)  # fmt: skip

    def pull(self, cotangents: Sequence[Tensor], recorded: bool | None = None) -> list[Tensor]:
        """The gradients by the inputs, zeros where there are none.  The graph is kept."""
        pairs = [(x, g) for x, g in zip(self.outputs, cotangents) if x.requires_grad]
        record = self.recorded if recorded is None else recorded
        record = record or (mode.grad and any(g.requires_grad for _, g in pairs))
        return gradients([x for x, _ in pairs], self.inputs, [g for _, g in pairs], record)


def gradients(outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor], recorded: bool) -> list[Tensor]:
    """Gradients by inputs, zeros where there are none; the graph is kept."""
    found: list[Any] = [None] * len(inputs)
    if outputs:
        found = run_backward(outputs, weights, True, recorded, inputs, False)
    return [zeros_for(x) if g is None else g for x, g in zip(inputs, found)]


def zeros_for(x: Tensor) -> Tensor:
    """Zeros of a tensor's shape, dtype and levels of examples."""
    return wrap(np.zeros_like(x._array))


__all__ = ["Run", "gradients", "reaches_others", "stand_for", "zeros_for"]
