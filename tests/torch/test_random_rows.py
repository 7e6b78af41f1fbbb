"""Random rows of the table under real torch and under dynagraph.torch: 5,000 of them in `make conformance`."""

from __future__ import annotations

import pytest

import dynagraph.torch as own
from tests.torch.random_rows import differences_of, random_row

torch = pytest.importorskip("torch")
EACH = 50


@pytest.mark.sampled(25)
@pytest.mark.parametrize("block", range(100))
def test_random_rows_agree(block: int) -> None:
    for seed in range(block * EACH, (block + 1) * EACH):
        row = random_row(seed)
        assert not differences_of(torch, own, row), (seed, str(row))


@pytest.mark.parametrize("seed", [2650, 3426, 4133, 4473])
def test_rows_that_differed_once_agree(seed: int) -> None:
    assert not differences_of(torch, own, random_row(seed)), str(random_row(seed))
