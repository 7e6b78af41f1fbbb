"""Random programs under real torch and under dynagraph.torch: 5,000 of them in `make conformance`."""

from __future__ import annotations

import pytest

import dynagraph.torch as own
from tests.torch.programs import difference, made_small, program

torch = pytest.importorskip("torch")
EACH = 100


@pytest.mark.sampled(16)
@pytest.mark.parametrize("block", range(50))
def test_random_programs_agree(block: int) -> None:
    for seed in range(block * EACH, (block + 1) * EACH):
        steps = program(seed)
        if difference(torch, own, steps):
            small = made_small(torch, own, steps)
            pytest.fail(f"program {seed}: {difference(torch, own, small)}\n" + "\n".join(map(str, small)))


@pytest.mark.parametrize("seed", [2211])
def test_programs_that_differed_once_agree(seed: int) -> None:
    assert not difference(torch, own, program(seed))
