"""Ten steps of training by each model, eager and compiled: the losses are real torch's, recorded (`record.py`) and live."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as own
from dynagraph.driver import loading
from tests.torch.models.cases import CASES, LARGE, RECORDED, losses, step
from tests.torch.models.record import FILE

BACKENDS = ("eager", "numpy", "c")
SINGLE = {name: case for name, case in CASES.items() if name != "VGG-11"}  # (its batch norms of three numbers are ill-conditioned)


def own_losses(name: str, dtype: str, backend: str) -> np.ndarray:
    case = {**CASES, **LARGE}[name]
    if backend == "eager":
        return losses(own, case, dtype)
    loading.compiler()  # eager optimizers load it on a thread of their own: until it is there, calls run plainly
    compiled = dg.compile(step, mode="max", backend=backend, fullgraph=True)
    found = losses(own, case, dtype, compiled)
    assert not compiled.stats.fallbacks, compiled.stats.last_error
    assert compiled.counters()["misses"] == 1
    return found


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_recorded_losses(name: str, backend: str) -> None:
    with np.load(FILE) as recorded:
        np.testing.assert_allclose(own_losses(name, "float64", backend), recorded[f"{name}|float64"], rtol=1e-10, atol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_recorded_losses_of_larger_models(name: str, backend: str) -> None:
    with np.load(FILE) as recorded:
        np.testing.assert_allclose(own_losses(name, "float32", backend), recorded[f"{name}|float32"], rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", [*SINGLE, *LARGE])
@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_in_single_precision(name: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    expected = losses(torch, {**SINGLE, **LARGE}[name], "float32")
    np.testing.assert_allclose(own_losses(name, "float32", backend), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_in_double_precision(name: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(own_losses(name, "float64", backend), losses(torch, CASES[name], "float64"), rtol=1e-10, atol=1e-12)
