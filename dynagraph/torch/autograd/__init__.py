"""``torch.autograd``: backward and gradients of recorded operations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from dynagraph.torch.autograd import anomaly_mode as anomaly_mode
from dynagraph.torch.autograd import forward_ad as forward_ad
from dynagraph.torch.autograd import function as function
from dynagraph.torch.autograd import functional as functional
from dynagraph.torch.autograd import grad_mode as grad_mode
from dynagraph.torch.autograd import graph as graph
from dynagraph.torch.autograd import profiler as profiler
from dynagraph.torch.autograd import variable as variable
from dynagraph.torch.autograd.anomaly_mode import detect_anomaly as detect_anomaly
from dynagraph.torch.autograd.anomaly_mode import set_detect_anomaly as set_detect_anomaly
from dynagraph.torch.autograd.function import Function as Function
from dynagraph.torch.autograd.function import NestedIOFunction as NestedIOFunction
from dynagraph.torch.autograd.gradcheck import gradcheck as gradcheck
from dynagraph.torch.autograd.gradcheck import gradgradcheck as gradgradcheck
from dynagraph.torch.autograd.graph import GradientEdge, stand_in
from dynagraph.torch.autograd.variable import Variable as Variable
from dynagraph.torch.core import engine as _engine
from dynagraph.torch.core import joined as _joined  # noqa: F401  (captures make its nodes)
from dynagraph.torch.core.grad_mode import enable_grad as enable_grad
from dynagraph.torch.core.grad_mode import inference_mode as inference_mode
from dynagraph.torch.core.grad_mode import no_grad as no_grad
from dynagraph.torch.core.grad_mode import set_grad_enabled as set_grad_enabled
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import getattr_of


def _places(given: Any) -> Any:
    """Tensors, with stand-ins for gradient edges."""
    if given is None or isinstance(given, Tensor):
        return given
    if isinstance(given, GradientEdge):
        return stand_in(given)
    return tuple(map(stand_in, given))


def backward(
    tensors: Tensor | Sequence[Tensor] | GradientEdge | Sequence[GradientEdge],
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of the sum of `tensors`, weighted by `grad_tensors`, to the `grad` of the leaves, or of `inputs`."""
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use "
                "`grad_tensors`."
            )
    given = _places(_engine.named_inputs(inputs, "backward")[1])
    _engine.backward(_places(tensors), grad_tensors, retain_graph, create_graph, grad_variables, given)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of the sum of `outputs`, weighted by `grad_outputs`, by `inputs`: a tuple, or a dict where `inputs` is one.

    With `is_grads_batched` the weights have one more dimension in front, and so have the gradients.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for other parts of "
            "the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    names, given = _engine.named_inputs(inputs, "grad")
    given = _places(given)
    if not isinstance(given, Tensor) and not given:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    if is_grads_batched:
        found = _batched_grad(outputs, given, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    else:
        found = _engine.grad(
            _places(outputs), given, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, False, materialize_grads
        )
    return found if names is None else dict(zip(names, found))


def _batched_grad(
    outputs: Any, inputs: Any, grad_outputs: Any, retain_graph: bool | None, create_graph: bool, allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    outs, ins, weights = (
        (given,) if given is None or isinstance(given, Tensor) else tuple(given)
        for given in (_places(outputs), _places(inputs), grad_outputs)
    )
    for k, (weight, out) in enumerate(zip(weights, outs)):
        if weight is not None and weight.shape[1:] != out.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The "
                "sizes of the remaining dimensions are expected to match the shape of corresponding output, but a mismatch was "
                f"detected: grad_output[{k}] has a shape of {weight.shape} and output[{k}] has a shape of {out.shape}. If you "
                "only want some tensors in `grad_output` to be considered batched, consider using vmap."
            )
    keep = create_graph if retain_graph is None else retain_graph
    found = functional.batched_gradients(outs, ins, weights, create_graph, keep)
    for k, g in enumerate(found):
        if g is None and materialize_grads:
            found[k] = ins[k].new_zeros((weights[0].shape[0], *ins[k].shape))
        elif g is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {k} appears to not have been used in the graph. Set allow_unused=True if "
                "this is the desired behavior."
            )
    return tuple(found)


def is_tensor_like(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


class set_multithreading_enabled:
    """A context that sets whether backward of several devices may run in several threads: here it runs in the caller's."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


def is_multithreading_enabled() -> bool:
    """Whether backward runs in several threads."""
    return False


__getattr__ = getattr_of(__name__)
__all__ = [
    "Function", "GradientEdge", "NestedIOFunction", "Variable", "backward", "detect_anomaly", "enable_grad", "forward_ad",
    "grad", "gradcheck",
    "gradgradcheck", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip
