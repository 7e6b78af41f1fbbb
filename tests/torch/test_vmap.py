"""`vmap` of each row of the conformance table against the same function of each example; gradients too.

Needs no torch: what a function gives is compared with PyTorch elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from tests.torch.table import Case, Inputs, T, attribute, families, specs

ROWS = {
    f"{family}: {case}": case
    for family, cases in families().items()
    if family != "sparse"
    for case in cases
    if not case.raises
    and "pickle" not in str(case)
    and case.name != "copy"
    and not ("as_strided" in case.name and "layout" in str(case))  # stacked tensors lie in memory otherwise
    and any(isinstance(s, T) for s in specs(case)) and case.option("compare", "close") == "close"
}
# Examples may have results of different shapes, or the function asks for values or for the memory of one tensor.
NOT_BATCHED = (
    "vmap: We do not support batching operators that can output dynamic shape",
    "vmap: It looks like you're",
    "vmap: inplace arithmetic",
    "vmap: a tensor of examples cannot be made an array",
    "vmap: called random operation",
    "can't convert cpu device type tensor to numpy",
)


class Filled(Inputs):
    """The arguments of a row, with given tensors as its inputs."""

    def __init__(self, case: Case, leaves: Any):
        self.given = iter(leaves)
        super().__init__(torch, case, "float64", False)

    def _resolved(self, value: Any) -> Any:
        return next(self.given) if isinstance(value, T) else super()._resolved(value)


def call_of(case: Case) -> Callable[..., Any]:
    """The row as a function of its inputs, which gives a list of tensors."""

    def call(*leaves: Any) -> Any:
        inputs = Filled(case, leaves)
        if case.function is not None:
            found = case.function(torch, *inputs.args, **inputs.kwargs)
        else:
            try:
                function = attribute(torch, case.name)
            except AttributeError:
                function = getattr(torch.Tensor, case.name)
            found = function(*inputs.args, **inputs.kwargs)
        return tuple(x for x in (found if isinstance(found, (tuple, list)) else (found,)) if isinstance(x, torch.Tensor))

    return call


def other(spec: T, x: Any) -> Any:
    """Another example's input of the same kind."""
    if x.dtype is torch.bool:
        return ~x
    if spec.kind.startswith("index"):
        return int(spec.kind.partition(":")[2]) - 1 - x
    if spec.kind in ("psd", "positive", "unit", "special") or not x.dtype.is_floating_point:
        return x.clone() if not (x.dtype.is_floating_point or x.dtype.is_complex) else x * 0.75
    return x.flip(-1) if x.ndim else x + 1


def same(got: Any, expected: Any) -> bool:
    return got.shape == expected.shape and np.allclose(
        got.detach().to(torch.complex128).numpy(), expected.detach().to(torch.complex128).numpy(), 1e-9, 1e-9, equal_nan=True
    )


def check(case: Case) -> str:
    """Empty, or why the row cannot be run for all examples at once."""
    call = call_of(case)
    given = Inputs(torch, case, "float64", False)
    kinds = flat_specs(case)
    examples = [tuple(given.leaves), tuple(other(s, x) for s, x in zip(kinds, given.leaves))]
    try:
        expected = [call(*(x.clone() for x in each)) for each in examples]
    except Exception as error:  # of the function, in one of the examples
        return f"fails for one example: {error}"
    if [x.shape for x in expected[0]] != [x.shape for x in expected[1]] or not expected[0]:
        return "results of different shapes"
    stacked = [torch.stack(pair) for pair in zip(*examples)]
    try:
        found = torch.vmap(call)(*(x.clone() for x in stacked))
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        if str(error).startswith(NOT_BATCHED):
            return str(error)
        raise
    for k, x in enumerate(found):
        for e, each in enumerate(expected):
            assert same(x[e], each[k]), f"example {e}, result {k}: {x[e]} instead of {each[k]}"
    check_gradients(call, examples, stacked)
    return ""


def check_nested(case: Case) -> str:
    """As `check`, of examples of examples; and of two inputs, each with examples at a level of its own."""
    call = call_of(case)
    first = tuple(Inputs(torch, case, "float64", False).leaves)
    second = tuple(other(s, x) for s, x in zip(flat_specs(case), first))
    rows = [[first, second], [second, first]]
    try:
        expected = [[call(*(x.clone() for x in each)) for each in row] for row in rows]
    except Exception as error:
        return f"fails for one example: {error}"
    if not expected[0][0] or [x.shape for x in expected[0][0]] != [x.shape for x in expected[0][1]]:
        return "results of different shapes"
    stacked = [torch.stack([torch.stack([each[k] for each in row]) for row in rows]) for k in range(len(first))]
    rest = first[2:]
    try:
        found = torch.vmap(torch.vmap(call))(*(x.clone() for x in stacked))
        if len(first) > 1:
            crossed = torch.vmap(lambda p: torch.vmap(lambda q: call(p, q, *rest))(stacked[1][0].clone()))(stacked[0][0].clone())
            one = call(first[0].clone(), second[1].clone(), *rest)
            assert all(same(x[0, 1], each) for x, each in zip(crossed, one))
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        if str(error).startswith(NOT_BATCHED):
            return str(error)
        raise
    for k, x in enumerate(found):
        assert all(same(x[i, j], expected[i][j][k]) for i in range(2) for j in range(2)), f"result {k}"
    return ""


def check_gradients(call: Any, examples: Any, stacked: Any) -> None:
    floats = [k for k, x in enumerate(stacked) if x.dtype.is_floating_point]
    own = [x.clone().requires_grad_() if k in floats else x.clone() for k, x in enumerate(examples[0])]
    try:
        outs = [x for x in call(*own) if x.requires_grad]
        torch.autograd.grad([x.sum() for x in outs], [own[k] for k in floats], [None] * len(outs), allow_unused=True)
    except Exception:  # it has no gradient
        return
    leaves = [x.clone().requires_grad_() if k in floats else x.clone() for k, x in enumerate(stacked)]
    results = [x for x in torch.vmap(call)(*leaves) if x.requires_grad]
    if not results or not floats:
        return
    weights = [torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).reshape(x.shape) for x in results]
    try:
        found = torch.autograd.grad(results, [leaves[k] for k in floats], weights, allow_unused=True)
    except RuntimeError as error:
        if str(error).startswith(NOT_BATCHED):
            return
        raise
    for e, each in enumerate(examples):
        own = [x.clone().requires_grad_() if k in floats else x.clone() for k, x in enumerate(each)]
        outs = [x for x in call(*own) if x.requires_grad]
        grads = torch.autograd.grad(outs, [own[k] for k in floats], [w[e] for w in weights], allow_unused=True)
        for k, (g, expected) in enumerate(zip(found, grads)):
            if expected is None:
                assert g is None or not g[e].any()
            else:
                assert same(g[e], expected), f"gradient {k} of example {e}: {g[e]} instead of {expected}"


def flat_specs(case: Case) -> list[T]:
    """The inputs of a row, in the order of its leaves."""
    found: list[T] = []

    class Listed(Inputs):
        def _resolved(self, value: Any) -> Any:
            if isinstance(value, T):
                found.append(value)
                return value
            return super()._resolved(value)

    Listed(torch, case, "float64", False)
    return found


@pytest.mark.sampled(80)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("checked", [check, check_nested])
def test_row_of_examples(row: str, checked: Callable[[Case], str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reason = checked(ROWS[row])
    if reason:
        pytest.skip(reason[:200])
