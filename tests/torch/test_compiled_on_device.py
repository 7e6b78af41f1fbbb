"""Functions of tensors on a GPU, compiled: training steps are one program, with the values and gradients of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from tests.cupy_arrays.conftest import cp  # noqa: F401  (a fixture)

F = torch.nn.functional
Step = Callable[[list[Any], Any, Any], Any]


def _layers(*sizes: int) -> list[tuple[int, ...]]:
    return [shape for n, m in pairwise(sizes) for shape in ((n, m), (m,))]


def _descend(parameters: list[Any], lr: float = 0.05) -> None:
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad
            p.grad = None


def regression(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    hidden = x @ w1 + b1
    hidden = 0.5 * hidden * (1 + torch.tanh(0.7978845608 * (hidden + 0.044715 * hidden * hidden * hidden)))
    loss = ((hidden @ w2 + b2 - y[:, None]) ** 2).mean()
    loss.backward()
    _descend(parameters)
    return loss


def classification(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    loss = F.cross_entropy(torch.relu(F.linear(x, w1.T, b1)) @ w2 + b2, y)
    loss.backward()
    _descend(parameters)
    return loss


def smooth(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    logits = F.gelu(x @ w1 + b1) @ w2 + b2
    loss = F.cross_entropy(logits, y, label_smoothing=0.1) + 1e-3 * sum((p * p).sum() for p in parameters)
    loss.backward()
    _descend(parameters)
    return loss


def normalised(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, scale, shift = parameters
    hidden = F.layer_norm(x @ w1 + b1, (8,), scale, shift)
    loss = F.silu(hidden).logsumexp(dim=-1).mean()
    loss.backward()
    _descend(parameters)
    return loss


def attention(parameters: list[Any], x: Any, y: Any) -> Any:
    (w,) = parameters
    q, k, v = (x @ w).reshape(2, 4, 3, 2, 3).permute(2, 0, 3, 1, 4).unbind(0)
    scores = q @ k.transpose(-2, -1) / 3**0.5
    hidden = torch.softmax(scores.masked_fill(torch.ones(4, 4, device=x.device).triu(1).bool(), -1e9), dim=-1) @ v
    loss = (hidden.transpose(1, 2).reshape(8, 6) ** 2).mean()
    loss.backward()
    _descend(parameters)
    return loss


def convolution(parameters: list[Any], x: Any, y: Any) -> Any:
    w, b = parameters
    hidden = F.max_pool2d(F.relu(F.conv2d(x.reshape(2, 1, 4, 6), w, b, padding=1)), 2)
    loss = F.cross_entropy(hidden.flatten(1), y[:2])
    loss.backward()
    _descend(parameters)
    return loss


def momentum(parameters: list[Any], x: Any, y: Any) -> Any:
    w, b, mw, mb = parameters
    loss = F.mse_loss(x @ w + b, y.float()[:, None].expand(-1, 5))
    loss.backward()
    with torch.no_grad():
        for p, m in ((w, mw), (b, mb)):
            m.mul_(0.9).add_(p.grad)
            p.sub_(0.1 * m)
            p.grad.zero_()
    return loss


def adam(parameters: list[Any], x: Any, y: Any) -> Any:
    w, b, mw, vw, mb, vb = parameters
    loss = F.l1_loss(x @ w + b, y.float()[:, None].expand(-1, 5))
    gw, gb = torch.autograd.grad(loss, (w, b))
    with torch.no_grad():
        for p, g, m, v in ((w, gw, mw, vw), (b, gb, mb, vb)):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.99).addcmul_(g, g, value=0.01)
            p.addcdiv_(m / 0.1, (v / 0.01).sqrt().add_(1e-8), value=-1e-2)
    return loss


def accumulating(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    total = 0
    for part in range(2):
        rows = slice(4 * part, 4 * part + 4)
        loss = F.cross_entropy(torch.tanh(x[rows] @ w1 + b1) @ w2 + b2, y[rows]) / 2
        loss.backward()
        total = total + loss.detach()
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    for p in parameters:
        p.grad.mul_((0.5 / (norm + 1e-6)).clamp(max=1.0))
    _descend(parameters)
    return total


def dropping(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    hidden = F.dropout(torch.relu(x @ w1 + b1), 0.4, training=True)
    loss = F.cross_entropy(hidden @ w2 + b2, y)
    loss.backward()
    _descend(parameters)
    return loss


def embedding(parameters: list[Any], x: Any, y: Any) -> Any:
    table, w = parameters
    loss = F.nll_loss(F.log_softmax(F.embedding(y, table) @ w, dim=1), y)
    loss.backward()
    _descend(parameters)
    return loss


STEPS: dict[str, tuple[Step, list[tuple[int, ...]]]] = {
    "regression": (regression, _layers(6, 8, 1)),
    "classification": (classification, _layers(6, 8, 5)),
    "smooth": (smooth, _layers(6, 8, 5)),
    "normalised": (normalised, [(6, 8), (8,), (8,), (8,)]),
    "attention": (attention, [(6, 18)]),
    "convolution": (convolution, [(2, 1, 3, 3), (2,)]),
    "momentum": (momentum, [(6, 5), (5,), (6, 5), (5,)]),
    "adam": (adam, [(6, 5), (5,), (6, 5), (6, 5), (5,), (5,)]),
    "accumulating": (accumulating, _layers(6, 8, 5)),
    "dropping": (dropping, _layers(6, 8, 5)),
    "embedding": (embedding, [(5, 4), (4, 5)]),
}
STATES = {"momentum": 2, "adam": 4}  # how many of the parameters are an optimizer's


def inputs(name: str, device: str) -> tuple[list[Any], Any, Any]:
    rng = np.random.default_rng(0)
    shapes = STEPS[name][1]
    n = len(shapes) - STATES.get(name, 0)
    parameters = []
    for k, shape in enumerate(shapes):
        values = rng.normal(size=shape).astype(np.float32) if k < n else np.zeros(shape, np.float32)
        parameters.append(torch.tensor(values, device=device).requires_grad_(k < n))
    x, y = rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 5, 8)
    return parameters, torch.tensor(x, device=device), torch.tensor(y, device=device)


@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_is_one_program(cp: Any, name: str) -> None:  # noqa: F811
    step = STEPS[name][0]
    compiled = torch.compile(step)
    on_cpu, on_gpu = inputs(name, "cpu"), inputs(name, "cuda")
    for turn in range(3):
        torch.manual_seed(turn)
        expected = step(*on_cpu)
        torch.manual_seed(turn)
        got = compiled(*on_gpu)
        assert got.is_cuda and np.allclose(got.detach().cpu().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
        for mine, theirs in zip(on_gpu[0], on_cpu[0]):
            assert mine.is_cuda and np.allclose(mine.detach().cpu().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
            assert (mine.grad is None) == (theirs.grad is None)
            assert mine.grad is None or np.allclose(mine.grad.cpu().numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)
    stats = compiled.stats
    assert not stats.breaks and not stats.fallbacks and not stats.refusals, (dict(stats.breaks), stats.last_error)
    assert stats.hits
