"""`vmap` of random programs of views, writes and indexing against each example's run; gradients too."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from tests.torch.programs import MOST, STEPS, WRITES, State, Step, _overlaps, _Skip, program
from tests.torch.test_vmap import NOT_BATCHED

# They ask for gradients, which is done here from outside, or make leaves.
LEFT_OUT = {"backward", "grad", "hook", "retain_grad", "requires_grad_", "detach_", "clear", "data", "leaf"}


def run(x: Any, steps: list[Step], works: list[bool], first: bool) -> list[Any]:
    """The tensors of a program that begins with an example.  At first, `works` learns which steps do not raise."""
    state = State(torch)
    state.tensors = [x * 1.0, (x * x)[0], torch.ones(3, dtype=torch.float64)]
    for k, step in enumerate(steps):
        if step.name in LEFT_OUT or not works[k] or (step.name in WRITES and _overlaps(state.pick(step.numbers[0]))):
            continue
        try:
            result = STEPS[step.name][1](state, *step.numbers)
        except _Skip:
            continue
        except Exception:
            if not first:
                raise
            works[k] = False
            continue
        if isinstance(result, torch.Tensor) and not any(result is t for t in state.tensors):
            state.tensors.append(result)
            if len(state.tensors) > MOST:
                del state.tensors[0]
    return [t for t in state.tensors if t.dtype.is_floating_point]


def total(tensors: Any) -> Any:
    return sum((t.double() * (k + 1)).sum() for k, t in enumerate(tensors))


def close(a: Any, b: Any) -> bool:
    return a.shape == b.shape and np.allclose(a.detach().numpy(), b.detach().numpy(), equal_nan=True)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(300))
def test_program_of_examples(seed: int) -> None:
    steps = program(seed)
    x = torch.from_numpy(np.random.default_rng(seed).integers(-16, 17, (2, 2, 3)) / 8)
    works = [True] * len(steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for each in x:
                run(each.clone().requires_grad_(), steps, works, True)
            leaves = [each.clone().requires_grad_() for each in x]
            expected = [run(leaf, steps, works, False) for leaf in leaves]
            gradients = [
                torch.autograd.grad(total(found), leaf, materialize_grads=True)[0] for found, leaf in zip(expected, leaves)
            ]  # fmt: skip
        except RuntimeError as error:
            pytest.skip(f"of one example: {error}"[:100])
        batch = x.clone().requires_grad_()
        try:
            found = torch.vmap(lambda a: tuple(run(a, steps, works, False)))(batch)
            each_gradient = torch.vmap(torch.func.grad(lambda a: total(run(a, steps, works, False))))(x)
        except RuntimeError as error:
            if str(error).startswith(NOT_BATCHED):
                pytest.skip(str(error)[:100])
            raise
        (of_batch,) = torch.autograd.grad(total(found), batch, materialize_grads=True)
    assert len(found) == len(expected[0])
    for k in range(2):
        assert all(close(f[k], e) for f, e in zip(found, expected[k]))
        assert close(of_batch[k], gradients[k]) and close(each_gradient[k], gradients[k])
