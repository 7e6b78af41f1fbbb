"""Tensors on a GPU: a sample of the table on the stand-in for CuPy's arrays, compared with the same on the CPU.

Inputs lie on the GPU, and what is made without a device is made there.  Results must lie there too, with the values, dtypes and
gradients of the CPU.  Their order in memory is CuPy's, C order, and not compared.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed
from tests.torch import outcomes
from tests.torch.outcomes import differences, function_of, run
from tests.torch.table import Case, case, families

FAMILIES = (
    "pointwise", "reductions", "shapes", "indexing", "products", "contractions", "creation", "diagonals", "activations", "layers",
    "losses", "pooling", "sorting", "selection", "masks", "counting", "special", "finite_differences", "fft", "linalg", "random",
)  # fmt: skip
NOT_THERE = (  # what asks for the CPU or for NumPy's arrays by name, what makes nothing of tensors, and what LAPACK alone has
    "NumPy beside", "isinstance by old names", "types by their old names", "Tensor(2, 3)", "block_diag()", "ldl", "linalg.ldl",
    "frombuffer", "from_dlpack", "from_numpy shares",
)  # fmt: skip


class OnDevice:
    """torch, whose tensors of NumPy's arrays lie on the GPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def from_numpy(array: np.ndarray) -> Any:
        return torch.from_numpy(array).cuda()


def form_of(row: Case) -> str:
    return "method" if function_of(torch, row) is None else "function"


ROWS = [
    pytest.param(row, id=f"{family}-{row}")
    for family in FAMILIES
    for row in families(family)[family]
    if not str(row).removeprefix("error ").startswith(NOT_THERE)
]


def check(row: Case, monkeypatch: pytest.MonkeyPatch, dtype: str = "float64") -> None:
    """Run a row on the CPU and on the GPU; fail where they differ, or results are not on the GPU."""
    row = copy.copy(row)
    row.options = {**row.options, "strides": False}
    expected = run(torch, row, form_of(row), dtype)
    on_host: list[str] = []
    plain = outcomes.array_of

    def array_of(own: Any, x: Any) -> np.ndarray:
        if x.device.type != "cuda":
            on_host.append(f"{x.dtype}{list(x.shape)} on {x.device}")
        return plain(own, x)

    with installed(stand_in.module()), torch.device("cuda"), monkeypatch.context() as patched:
        patched.setattr(outcomes, "array_of", array_of)
        got = run(OnDevice(), row, form_of(row), dtype)
    assert not differences(row, expected, got, form_of(row), dtype)
    assert not on_host


@pytest.mark.sampled(36)
@pytest.mark.parametrize("row", ROWS)
def test_agrees_with_the_cpu(row: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check(row, monkeypatch)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "bool"])
@pytest.mark.parametrize("name", ["add", "mul", "sum", "amax", "cumsum", "index_select", "matmul"])
def test_dtypes(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for family in FAMILIES for row in families(family)[family] if row.name == name and not row.raises]
    check(rows[0], monkeypatch, dtype)


def test_devices_that_differ() -> None:
    with installed(stand_in.module()):
        x = torch.ones(3, device="cuda")
        moved = x * torch.tensor(2.0, dtype=torch.float64)  # tensors without dimensions come along
        assert moved.is_cuda and moved.dtype is torch.float32 and moved.tolist() == [2, 2, 2]
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            x + torch.ones(3)
        weight = torch.tensor(3.0, requires_grad=True)
        (x * weight).sum().backward()
        assert not weight.grad.is_cuda and weight.grad.item() == 3


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = case("sum", np.ones(3))
    row.function = lambda own, x: own.ones(3, device="cpu")
    with pytest.raises(AssertionError):
        check(row, monkeypatch)


def test_gradients_of_gradients_and_matrices_of_them() -> None:
    with installed(stand_in.module()):
        x = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
        (x * x * x).sum().backward()
        assert x.grad.is_cuda and x.grad.tolist() == [3, 12]
        (first,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
        first.sum().backward()
        assert x.grad.tolist() == [9, 24]
        jacobian = torch.autograd.functional.jacobian(lambda v: v * v, x.detach())
        assert jacobian.is_cuda and jacobian.tolist() == [[2, 0], [0, 4]]
        rows = torch.func.jacrev(lambda v: v * v)(x.detach())
        assert rows.is_cuda and rows.tolist() == [[2, 0], [0, 4]]
        mapped = torch.func.vmap(lambda v: v.sum() + v.amax())(torch.ones(2, 3, device="cuda"))
        assert mapped.is_cuda and mapped.tolist() == [4, 4]
