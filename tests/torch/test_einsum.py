"""Random equations of einsum against NumPy's."""

from __future__ import annotations

import random

import numpy as np
import pytest

import dynagraph.torch as torch

SIZES = {"a": 2, "b": 3, "c": 4, "d": 3, "e": 2}  # two of one size: mixed up they would give no error


def equation(seed: int) -> tuple[str, list[tuple[int, ...]]]:
    """Labels of one to four operands, with repeats, dots and dimensions of size 1, and of the result; and the operands' shapes."""
    draw = random.Random(seed)
    operands, shapes = [], []
    for _ in range(draw.randint(1, 4)):
        labels = [draw.choice("abcde") for _ in range(draw.randint(0, 3))]
        single = {label for label in labels if draw.random() < 0.1}  # of one operand: a repeated label has one size in it
        shape = [1 if label in single else SIZES[label] for label in labels]
        if draw.random() < 0.3:
            at, more = draw.randint(0, len(labels)), draw.randint(0, 2)
            labels.insert(at, "...")
            shape[at:at] = (2, 3)[2 - more :]
        operands.append("".join(labels))
        shapes.append(tuple(shape))
    used = sorted(set("".join(operands)) - {"."})
    result = draw.sample(used, draw.randint(0, len(used)))
    if "..." in "".join(operands):
        result.insert(draw.randint(0, len(result)), "...")
    return f"{','.join(operands)}->{''.join(result)}", shapes


@pytest.mark.parametrize("block", range(4))
def test_random_equations_are_numpys(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        text, shapes = equation(seed)
        rng = np.random.default_rng(seed)
        arrays = [rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes]
        tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
        got = torch.einsum(text, *tensors)
        expected = np.einsum(text, *arrays)
        assert got.shape == expected.shape and np.array_equal(got.detach().numpy(), expected), (seed, text, shapes)
        weights = rng.integers(-3, 4, expected.shape).astype(np.float64)
        (got * torch.tensor(weights)).sum().backward()
        for k, x in enumerate(tensors):  # linear in each: the change by another value tells the gradient
            step = rng.integers(-3, 4, x.shape).astype(np.float64)
            others = [step if j == k else y for j, y in enumerate(arrays)]
            assert np.sum(x.grad.numpy() * step) == np.sum(np.einsum(text, *others) * weights), (seed, text, shapes, k)
