"""Random models: compiled against plain, and both against real torch where it is (`make conformance`: 200 of them)."""

from __future__ import annotations

import pytest

import dynagraph.torch as own
from tests.torch.modules.random_models import Maker, compiled, difference, outcome


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
