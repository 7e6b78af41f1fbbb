"""Sparse tensors, where PyTorch answers otherwise or not at all: second gradients, gradients by sparse tensors, checks of parts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from tests.torch.cases.sparse import GRADIENTS, TWICE, coo, csr


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_agree_with_differences(name: str) -> None:
    rng = np.random.default_rng(3)
    v, d = (rng.standard_normal(shape) for shape in ((3,), (2, 3)))

    def loss(v: Any, d: Any) -> Any:
        y = GRADIENTS[name](torch, v, d)
        return (y * y * torch.arange(1.0, y.numel() + 1, dtype=torch.float64).reshape(y.shape)).sum()

    def gradients(v: np.ndarray, d: np.ndarray) -> tuple[Any, Any, Any]:
        leaves = [torch.from_numpy(a.copy()).requires_grad_() for a in (v, d)]
        first = torch.autograd.grad(loss(*leaves), leaves, create_graph=True, allow_unused=True)
        total = sum((g * g).sum() for g in first if g is not None)
        second = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else (None, None)
        return [None if g is None else g.detach().numpy() for g in first], second, total.detach().item()

    first, second, _ = gradients(v, d)
    direction = [rng.standard_normal(a.shape) for a in (v, d)]
    step = 1e-6
    ahead, behind = ([a + s * step * w for a, w in zip((v, d), direction)] for s in (1, -1))

    def value(at: Any) -> float:
        return float(loss(*(torch.from_numpy(a) for a in at)).item())

    slope = sum((g * w).sum() for g, w in zip(first, direction) if g is not None)
    assert np.isclose(slope, (value(ahead) - value(behind)) / (2 * step), rtol=1e-5)
    slope = sum((g.numpy() * w).sum() for g, w in zip(second, direction) if g is not None)
    assert np.isclose(slope, (gradients(*ahead)[2] - gradients(*behind)[2]) / (2 * step), rtol=1e-4, atol=1e-6)


def test_the_gradient_by_a_sparse_tensor_is_sparse() -> None:
    x = torch.sparse_coo_tensor(TWICE, [1.0, 2.0, 3.0], (2, 2), requires_grad=True)
    (x @ torch.ones(2)).pow(2).sum().backward()
    assert x.grad.layout is torch.sparse_coo and x.grad.to_dense().tolist() == [[0, 6], [6, 0]]
    (g,) = torch.autograd.grad((x @ torch.ones(2)).sum(), x)
    assert g.to_dense().tolist() == [[0, 1], [1, 0]]
    x.grad = None
    assert x.grad is None
    seen = []
    x.register_hook(lambda g: seen.append(g.layout))
    torch.sparse.sum(x).backward()
    assert seen == [torch.sparse_coo] and x.grad is not None
    y = csr(torch, requires_grad=True)
    (y @ torch.ones(3, 1)).sum().backward()
    assert y.grad.layout is torch.sparse_csr and y.grad.values().tolist() == [1, 1, 1]


def test_dense_gradients_of_optimizers_take_sparse_ones() -> None:
    p = torch.zeros(2, 3)
    p.add_(coo(torch), alpha=-0.5)
    assert p.tolist() == [[0, 0, -1.5], [-2, 0, -2.5]]


CHECKS: dict[str, tuple[Callable[[], Any], str]] = {
    "beyond": (lambda: torch.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,)), "for dim 0, size is 3 but found index 5"),
    "negative": (lambda: torch.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,)), "found negative index -1 for dim 0"),
    "rows": (lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], (2, 2)), "must be equal to nrows"),
    "first": (lambda: torch.sparse_csr_tensor([1, 1, 1], [0], [1.0], (2, 2)), r"crow_indices\[\.\.\., 0\] == 0"),
    "last": (lambda: torch.sparse_csr_tensor([0, 1, 2], [0], [1.0], (2, 2)), r"crow_indices\[\.\.\., -1\] == nnz"),
    "order": (lambda: torch.sparse_csr_tensor([0, 2, 1], [0], [1.0], (2, 2)), "<= ncols"),
    "columns": (lambda: torch.sparse_csr_tensor([0, 1, 1], [4], [1.0], (2, 2)), "0 <= col_indices < ncols"),
    "transposed csr": (lambda: csr(torch).t(), "would have compressed columns"),
    "other operations": (lambda: torch.cumsum(coo(torch), 0), r"layout torch\.sparse_coo: .* call to_dense\(\) first"),
    "storage": (lambda: coo(torch).untyped_storage(), "Cannot access storage"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_does_not_fit_is_refused(name: str) -> None:
    compute, text = CHECKS[name]
    with pytest.raises((RuntimeError, NotImplementedError), match=text):
        compute()


@pytest.mark.parametrize("make", [coo, csr])
def test_pickles_and_copies(make: Callable[..., Any]) -> None:
    x = make(torch, requires_grad=True)
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert again.layout is x.layout and again.requires_grad and torch.equal(again.to_dense(), x.to_dense())
    part = x.detach()
    copy.deepcopy(part).values if make is csr else None
    assert copy.deepcopy(part).mul_(2).to_dense().sum().item() == 24 and part.sum().item() == 12


def test_a_larger_product_agrees_with_numpy() -> None:
    rng = np.random.default_rng(0)
    places, values = rng.integers(0, 50, (2, 400)), rng.standard_normal(400)
    dense = rng.standard_normal((50, 7))
    x = torch.sparse_coo_tensor(places, values, (50, 50))
    matrix = np.zeros((50, 50))
    np.add.at(matrix, tuple(places), values)
    assert np.allclose(x.to_dense().numpy(), matrix) and np.allclose((x @ torch.from_numpy(dense)).numpy(), matrix @ dense)
    assert np.allclose((x @ x).to_dense().numpy(), matrix @ matrix)
    assert np.allclose((x.to_sparse_csr() @ x.to_sparse_csr()).to_dense().numpy(), matrix @ matrix)
    assert np.allclose((x * x.coalesce()).to_dense().numpy(), matrix * matrix)


def test_old_names_of_the_product() -> None:
    dense = torch.arange(6.0).reshape(2, 3)
    for left in (torch.eye(2), torch.eye(2).to_sparse()):
        assert torch.equal(torch.spmm(left, dense), dense) and torch.equal(torch.dsmm(left, dense), dense)
