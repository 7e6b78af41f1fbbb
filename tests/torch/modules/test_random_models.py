"""Random models: compiled against plain, and both against real torch: recorded, and live where it is (`make conformance`: 200)."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph.torch as own
from tests.torch.modules.random_models import FILE, RECORDED, Maker, compiled, difference, kept, outcome


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(200))
def test_random_models(seed: int) -> None:
    maker = Maker(seed)
    text = maker.model()
    plain = outcome(own, text, maker)
    problem = difference(plain, compiled(text, maker)[0])
    assert not problem, f"compiled: {text}: {problem}"
    torch = pytest.importorskip("torch")
    problem = difference(outcome(torch, text, maker), plain)
    assert not problem, f"{text}: {problem}"


@pytest.mark.parametrize("seed", RECORDED)
def test_recorded_models(seed: int) -> None:
    maker = Maker(seed)
    text = maker.model()
    with np.load(FILE) as recorded:
        expected = recorded[str(seed)]
    got = kept(outcome(own, text, maker))
    same = got == expected if got.dtype.kind == "U" else np.allclose(got, expected, rtol=1e-6, atol=1e-8)
    assert same, f"{text} {maker.loss} {maker.optimizer}: {expected} and {got}"
