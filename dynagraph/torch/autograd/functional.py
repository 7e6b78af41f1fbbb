"""``torch.autograd.functional``: Jacobians, Hessians and products with them, of functions of tensors or of tuples of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.engine import run_backward
from dynagraph.torch.core.grad_mode import enable_grad, mode
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.func.batch import entered, into, out_of
from dynagraph.torch.functions.joining import stack
from dynagraph.torch.functions.shapes import view_

_STRICT = " This is not allowed in strict mode."


def _tuple_of(given: Any, what: str, who: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether it was a tuple, and the tensors."""
    is_tuple = isinstance(given, tuple)
    tensors = given if is_tuple else (given,)
    for k, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            single = "outputs of the user-provided function" if what == "outputs" else what
            subject = f"The {single} given to {who}"
            at = f"the value at index {k}" if is_tuple else f"the given {single}"
            raise TypeError(f"{subject} must be either a Tensor or a tuple of Tensors but {at} has type {type(x)}.")
    return is_tuple, tensors


def _inputs(tensors: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """Stand-ins for inputs; with `create_graph` they lead back to them."""
    return tuple(
        view_(x, x._array.shape) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in tensors
    )


def _vector(v: Any, others: Sequence[Tensor], others_are_tuple: bool, who: str, none: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(others) != 1 or others[0]._array.size != 1:
            raise RuntimeError(none)
        return (wrap(np.ones_like(others[0]._array)),)
    _, tensors = _tuple_of(v, "v", who)
    if len(tensors) != len(others):
        if others_are_tuple:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(others)} but got {len(tensors)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for k, (a, b) in enumerate(zip(tensors, others)):
        if a._array.shape != b._array.shape:
            at = f"Entry {k} in v" if len(others) > 1 else "v"
            raise RuntimeError(f"{at} has invalid size: should be {b.shape} but got {a.shape}.")
    return tensors


def _check_requires(tensors: Sequence[Tensor], what: str, strict: bool) -> None:
    if not strict:
        return
    for k, x in enumerate(tensors):
        if not x.requires_grad:
            if what == "outputs":
                raise RuntimeError(
                    f"Output {k} of the user-provided function does not require gradients. The outputs must be computed in a "
                    "differentiable manner from the input when running in strict mode."
                )
            raise RuntimeError(
                f"While computing the hessian, found that the {what} of the user-provided function with respect to input {k} is "
                f"independent of the input.{_STRICT} You should ensure that your function is twice differentiable and that the "
                f"{what} depends on the inputs (this would be violated by a linear function for example)."
            )


def _gradients(
    outputs: Sequence[Any], inputs: Sequence[Tensor], weights: Sequence[Any] | None, create: bool
) -> list[Tensor | None]:
    """Gradients by inputs, None where there are none; the graph is kept."""
    given = [(x, None if weights is None else w) for x, w in zip(outputs, weights or outputs) if x is not None and x.requires_grad]
    if not given:
        return [None] * len(inputs)
    return run_backward([x for x, _ in given], None if weights is None else [w for _, w in given], True, create, inputs, False)


def _filled(found: Sequence[Tensor | None], like: Sequence[Tensor], strict: bool, message: str) -> tuple[Tensor, ...]:
    """Zeros where there is no gradient; RuntimeError in strict mode."""
    results = []
    for k, (g, x) in enumerate(zip(found, like)):
        if g is None and strict:
            raise RuntimeError(message.format(k) + _STRICT)
        results.append(wrap(np.zeros_like(x._array)) if g is None else g)
    return tuple(results)


def _public(tensors: Sequence[Tensor], is_tuple: bool, create_graph: bool) -> Any:
    found = tuple(x if create_graph else x.detach() for x in tensors)
    return found if is_tuple else found[0]


_NO_OUTPUT_ELEMENT = (
    "The vector v can only be None if the user-provided function returns a single Tensor with a single element."
)
_NO_INPUT_ELEMENT = (
    "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
)
_INDEPENDENT = "The output of the user-provided function is independent of input {}."


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The results of a function, and a vector times its Jacobian."""
    with enable_grad():
        inputs_tuple, given = _tuple_of(inputs, "inputs", "vjp")
        stand = _inputs(given, create_graph)
        outputs_tuple, outputs = _tuple_of(func(*stand), "outputs", "vjp")
        _check_requires(outputs, "outputs", strict)
        vector = _vector(v, outputs, outputs_tuple, "vjp", _NO_OUTPUT_ELEMENT)
    record = create_graph or (mode.grad and any(w.requires_grad for w in vector))
    found = _filled(_gradients(outputs, stand, vector, record), stand, strict, _INDEPENDENT)
    return _public(outputs, outputs_tuple, create_graph), _public(found, inputs_tuple, create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The results of a function, and its Jacobian times a vector: the gradient of the gradient by its weights."""
    with enable_grad():
        _, given = _tuple_of(inputs, "inputs", "jvp")
        stand = _inputs(given, create_graph)
        vector = _vector(v, stand, isinstance(inputs, tuple), "jvp", _NO_INPUT_ELEMENT)
        outputs_tuple, outputs = _tuple_of(func(*stand), "outputs", "jvp")
        _check_requires(outputs, "outputs", strict)
        weights = tuple(wrap(np.zeros_like(x._array)).requires_grad_() for x in outputs)
        pulled = _filled(_gradients(outputs, stand, weights, True), stand, strict, _INDEPENDENT)
        _check_requires(pulled, "jacobian", strict)
    record = create_graph or (mode.grad and any(w.requires_grad for w in vector))
    found = _filled(_gradients(pulled, weights, vector, record), outputs, strict, "Output {} is independent of the inputs.")
    return _public(outputs, outputs_tuple, create_graph), _public(found, outputs_tuple, create_graph)


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian of a function: for each result and each input a tensor of shape ``(*result.shape, *input.shape)``.

    >>> from dynagraph import torch
    >>> torch.autograd.functional.jacobian(torch.sin, torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than inputs, '
            '"forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode":
        return _forward_jacobian(func, inputs, create_graph, strict, vectorize)
    with enable_grad():
        inputs_tuple, given = _tuple_of(inputs, "inputs", "jacobian")
        stand = _inputs(given, create_graph)
        outputs_tuple, outputs = _tuple_of(func(*stand), "outputs", "jacobian")
        _check_requires(outputs, "outputs", strict)
    if vectorize and strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either set "
            "`strict=False` or `vectorize=False`."
        )
    blocks = []
    for k, out in enumerate(outputs):
        rows = (_rows_at_once if vectorize else _rows)(out, stand, create_graph)
        blocks.append([
            _block(column, out, x, k, j, strict, create_graph) for j, (column, x) in enumerate(zip(rows, stand))
        ])  # fmt: skip
    found = tuple(_public(row, inputs_tuple, create_graph) for row in blocks)
    return found if outputs_tuple else found[0]


def _rows(out: Tensor, inputs: Sequence[Tensor], create: bool) -> list[list[Tensor | None]]:
    """For each input the gradients of a result's elements."""
    columns: list[list[Tensor | None]] = [[] for _ in inputs]
    for k in range(out._array.size):
        weight = library_of_array(out._array).zeros(out._array.size, out._array.dtype)
        weight[k] = 1
        for column, g in zip(columns, _gradients([out], inputs, [wrap(weight.reshape(out._array.shape))], create)):
            column.append(g)
    return columns


def _as_tuple(inp: Any, arg_name: str = "inputs", fn_name: str = "") -> tuple[bool, tuple[Tensor, ...]]:
    """Whether it was a tuple of tensors, and the tensors.  Libraries use it."""
    return _tuple_of(inp, arg_name, fn_name)


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Tensors in nested tuples; detached, unless there shall be a graph.  Libraries use it."""
    if isinstance(inputs, tuple):
        return tuple(_grad_postprocess(part, create_graph) for part in inputs)
    return inputs if create_graph else inputs.detach()


def _tuple_postprocess(res: Any, to_unpack: Any) -> Any:
    """A nested tuple, without the levels that the caller's arguments did not have.  Libraries use it."""
    if isinstance(to_unpack, tuple):
        outer, inner = to_unpack
        if not inner:
            res = tuple(part[0] for part in res)
        return res if outer else res[0]
    return res if to_unpack else res[0]


def _construct_standard_basis_for(tensors: Sequence[Tensor], tensor_numels: Sequence[int]) -> tuple[Tensor, ...]:
    """For each tensor its part of all unit vectors of the tensors as one: ``(sum(tensor_numels), *shape)``.  Libraries use it."""
    total, start, found = sum(tensor_numels), 0, []
    for tensor, count in zip(tensors, tensor_numels):
        part = library_of_array(tensor._array).eye(total, count, -start, dtype=tensor._array.dtype)
        found.append(wrap(part.reshape(total, *tensor._array.shape)))
        start += count
    return tuple(found)


def _rows_at_once(out: Tensor, inputs: Sequence[Tensor], create: bool) -> list[Any]:
    n = out._array.size
    if not out.requires_grad or not n:
        return [[None] * n for _ in inputs]
    weights = wrap(np.eye(n, dtype=out._array.dtype).reshape(n, *out._array.shape))
    return [[None] * n if g is None else g for g in batched_gradients([out], inputs, [weights], create)]


def _block(column: Any, out: Tensor, x: Tensor, k: int, j: int, strict: bool, create: bool) -> Tensor:
    if isinstance(column, Tensor):
        return column.reshape(*out._array.shape, *x._array.shape)
    if strict and any(g is None for g in column):
        raise RuntimeError(f"Output {k} of the user-provided function is independent of input {j}.{_STRICT}")
    if strict and create and not all(g.requires_grad for g in column):
        raise RuntimeError(
            f"The jacobian of the user-provided function is independent of input {j}. This is not allowed in strict mode when "
            "create_graph=True."
        )
    filled = [wrap(np.zeros_like(x._array)) if g is None else g for g in column]
    if not filled:
        return wrap(library_of_array(x._array).zeros((*out._array.shape, *x._array.shape), x._array.dtype))
    return stack(filled).reshape(*out._array.shape, *x._array.shape)


def _forward_jacobian(func: Any, inputs: Any, create_graph: bool, strict: bool, vectorize: bool) -> Any:
    if strict:
        raise NotImplementedError(
            "torch.autograd.functional.jacobian: `strict=True` and `strategy=\"forward-mode\"` are not supported together (yet). "
            "Please either set `strict=False` or `strategy=\"reverse-mode\"`."
        )
    if create_graph:
        raise NotImplementedError(
            "torch.autograd.functional.jacobian: `create_graph=True` and `strategy=\"forward-mode\"` are not supported together "
            "(yet). Please either set `create_graph=False` or `strategy=\"reverse-mode\"`."
        )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for `vectorize=True`."
        )
    inputs_tuple, given = _tuple_of(inputs, "inputs", "jacobian")
    with enable_grad():
        stand = _inputs(given, False)
        outputs_tuple, outputs = _tuple_of(func(*stand), "outputs", "jacobian")
        weights = tuple(wrap(np.zeros_like(x._array)).requires_grad_() for x in outputs)
        pulled = _gradients(outputs, stand, weights, True)
    blocks: list[list[Tensor]] = [[] for _ in outputs]
    for g, x in zip(pulled, stand):
        n = x._array.size
        basis = wrap(library_of_array(x._array).eye(n, dtype=x._array.dtype).reshape(n, *x._array.shape))
        found = [None] * len(outputs) if g is None or not n else batched_gradients([g], weights, [basis], False)
        for row, out, column in zip(blocks, outputs, found):
            shape = (*out._array.shape, *x._array.shape)
            none = wrap(library_of_array(out._array).zeros(shape, out._array.dtype)) if column is None else None
            row.append(none if column is None else column.movedim(0, -1).reshape(shape))
    results = tuple(_public(row, inputs_tuple, False) for row in blocks)
    return results if outputs_tuple else results[0]


def _scalar(outputs_tuple: bool, outputs: tuple[Tensor, ...], who: str) -> Tensor:
    if outputs_tuple:
        raise RuntimeError(f"The function given to {who} should return a single Tensor")
    if outputs[0]._array.size != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {who} should contain a single element")
    return outputs[0]


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a scalar function: for each two inputs a tensor."""
    inputs_tuple, given = _tuple_of(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def first(*stand: Tensor) -> Any:
        outputs_tuple, outputs = _tuple_of(func(*stand), "outputs", "hessian")
        out = _scalar(outputs_tuple, outputs, "hessian")
        _check_requires((out,), "outputs", strict)
        found = _filled(_gradients([out], stand, [wrap(np.ones_like(out._array))], True), stand, strict, _INDEPENDENT)
        _check_requires(found, "jacobian", strict)
        return found

    found = jacobian(first, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if inputs_tuple else found[0][0]


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The value of a scalar function, and a vector times its matrix of second derivatives."""
    return _hessian_product(func, inputs, v, create_graph, strict, "vhp")


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """The value of a scalar function, and its matrix of second derivatives times a vector."""
    return _hessian_product(func, inputs, v, create_graph, strict, "hvp")


def _hessian_product(func: Any, inputs: Any, v: Any, create_graph: bool, strict: bool, who: str) -> tuple[Any, Any]:
    with enable_grad():
        inputs_tuple, given = _tuple_of(inputs, "inputs", who)
        stand = _inputs(given, create_graph)
        vector = _vector(v, stand, inputs_tuple, who, _NO_INPUT_ELEMENT)
        outputs_tuple, outputs = _tuple_of(func(*stand), "outputs", who)
        out = _scalar(outputs_tuple, outputs, who)
        _check_requires((out,), "outputs", strict)
        ones = wrap(np.ones_like(out._array))
        first = _filled(_gradients([out], stand, [ones], True), stand, strict, _INDEPENDENT)
        _check_requires(first, "jacobian", strict)
        if who == "vhp":
            found = _gradients(first, stand, vector, create_graph)
        else:  # the transposed product: by the weights of the gradient
            weights = tuple(wrap(np.zeros_like(x._array)).requires_grad_() for x in stand)
            pulled = _gradients(first, stand, weights, True)
            found = _gradients(pulled, weights, vector, create_graph)
        filled = _filled(found, stand, strict, "The double backward of the user-provided function is independent of input {}.")
    return _public(outputs, False, create_graph), _public(filled, inputs_tuple, create_graph)


def batched_gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor | None], create: bool, keep: bool = True
) -> list[Tensor | None]:
    """Gradients by inputs for each row of weights, which have one more dimension in front."""
    size = next(w._array.shape[0] for w in weights if w is not None)
    with entered(size, "error") as level:
        rows = [None if w is None else into(w, level, 0) for w in weights]
        found = run_backward(outputs, rows, keep, create, inputs, False)
        before, mode.grad = mode.grad, create
        try:
            return [None if g is None else out_of(g, level, 0, size) for g in found]
        finally:
            mode.grad = before


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
