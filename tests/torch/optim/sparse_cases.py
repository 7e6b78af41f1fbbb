"""Optimizers that take sparse gradients: tables of embeddings trained by one torch or the other, in plain and in compiled steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.torch.optim.cases import STEPS, Case

SPARSE: list[Case] = [
    ("SparseAdam", {}),
    ("SparseAdam", {"lr": 0.1, "betas": (0.7, 0.8), "eps": 1e-3, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "maximize": True}),
    ("SGD", {"lr": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.9}),
    ("SGD", {"lr": 1e-4, "momentum": 0.5, "dampening": 0.3, "maximize": True}),
    ("SGD", {"lr": 0.01, "momentum": 0.5, "nesterov": True}),
]
ROWS, WIDTH = 12, 3
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def table_and_step(
    torch: Any, case: Case, dtype: str = "float64", width: int = WIDTH, padding: int | None = None, **others: Any
) -> tuple[Any, Any, Any]:
    """Two tables, of which the second is used less, an optimizer and a step of training; row `padding` has no gradient."""
    name, options = case
    rng = np.random.default_rng(1)
    weights = [torch.tensor(rng.normal(size=(ROWS, width)), dtype=getattr(torch, dtype)) for _ in range(2)]
    first, second = (
        torch.nn.Embedding.from_pretrained(w, freeze=False, sparse=True, padding_idx=padding) for w in weights
    )
    optimizer = getattr(torch.optim, name)([first.weight, second.weight], **{**options, **others})

    def step(numbers: Any) -> Any:
        optimizer.zero_grad()
        loss = ((first(numbers) * second(numbers // 2) - 1).square() + first(numbers)).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [first.weight, second.weight], optimizer, step


def numbers_of(k: int, size: int) -> np.ndarray:
    """The rows of step k, many of them more than once."""
    return np.random.default_rng(k).integers(0, ROWS - 2, size)


def train(
    torch: Any, case: Case, dtype: str = "float64", steps: int = STEPS, size_of: Callable[[int], int] = lambda k: 7,
    of_step: Callable[[int], np.ndarray] | None = None,
    wrap: Wrap = lambda step: step, change: Callable[[int, Any], None] = lambda k, optimizer: None, **others: Any,
) -> tuple[list[np.ndarray], Any]:  # fmt: skip
    """All losses and the tables after some steps, and the optimizer."""
    weights, optimizer, step = table_and_step(torch, case, dtype, **others)
    step, losses = wrap(step), []
    for k in range(steps):
        change(k, optimizer)
        numbers = numbers_of(k, size_of(k)) if of_step is None else of_step(k)
        losses.append(step(torch.tensor(numbers, dtype=torch.int64)).double().item())
    return [np.array(losses), *(w.detach().double().numpy().copy() for w in weights)], optimizer
