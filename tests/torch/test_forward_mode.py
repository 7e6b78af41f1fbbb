"""Forward mode against reverse mode, for each row of the conformance table: one is the other's adjoint."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from tests.torch.table import Inputs
from tests.torch.test_vmap import ROWS, call_of

DIFFERENTIABLE = {
    name: case
    for name, case in ROWS.items()
    if case.option("grad", True)
    and case.option("second", True)
    and not any(text in name for text in ("16", "half", "ctc_loss", "kind=zeros", "kind=ones", "(0", "std(T()"))
}


def is_inexact(x: Any) -> bool:
    return bool(x.dtype.is_floating_point or x.dtype.is_complex)


def random_like(rng: np.random.Generator, x: Any) -> Any:
    numbers = rng.standard_normal(tuple(x.shape))
    if x.is_complex():
        numbers = numbers + 1j * rng.standard_normal(tuple(x.shape))
    return torch.from_numpy(np.asarray(numbers)).to(x.dtype)


def product(a: Any, b: Any) -> float:
    """The real part of the inner product."""
    return float((a.detach().to(torch.complex128).conj() * b.detach().to(torch.complex128)).sum().real)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("row", DIFFERENTIABLE)
def test_tangents_are_adjoint_to_gradients(row: str) -> None:
    case = DIFFERENTIABLE[row]
    call = call_of(case)
    leaves = Inputs(torch, case, "float64", False).leaves
    places = [k for k, x in enumerate(leaves) if is_inexact(x)]
    if not places:
        pytest.skip("no input of floats")

    def function(*given: Any) -> Any:
        full = list(leaves)
        for k, x in zip(places, given):
            full[k] = x
        return tuple(x for x in call(*full) if is_inexact(x))

    primals = tuple(leaves[k].clone() for k in places)
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outputs, pull = torch.func.vjp(function, *primals)
            cotangents = tuple(random_like(rng, x) for x in outputs)
            gradients = pull(cotangents)
        except (RuntimeError, NotImplementedError) as error:
            pytest.skip(f"no gradient: {error}"[:100])
        tangents = tuple(random_like(rng, x) for x in primals)
        pushed = torch.func.jvp(function, primals, tangents)[1]
    expected = sum(product(g, t) for g, t in zip(gradients, tangents))
    assert np.isclose(sum(product(v, t) for v, t in zip(cotangents, pushed)), expected, 1e-5, 1e-6) or not np.isfinite(expected)
