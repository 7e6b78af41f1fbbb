"""Every case of initial values, distributions, windows and autocast against real torch (`make conformance`)."""

from __future__ import annotations

import pytest

import dynagraph.torch as own
from tests.torch.outcomes import check
from tests.torch.table import Case, families

torch = pytest.importorskip("torch")
ROWS = [
    pytest.param(case, id=f"{family}-{case}")
    for family, cases in families(package="tests.torch.distributions").items()
    for case in cases
]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("case", ROWS)
def test_agrees_with_torch(case: Case) -> None:
    assert not check(torch, own, case)
