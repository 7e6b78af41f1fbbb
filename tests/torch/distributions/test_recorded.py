"""A sample of the cases as real torch ran them: what is tested where there is no torch."""

from __future__ import annotations

from typing import Any

import pytest

import dynagraph.torch as own
from tests.torch.outcomes import differences, run
from tests.torch.record import recorded
from tests.torch.table import Case

RECORDED = [pytest.param(*each, id=f"{each[0]}-{each[1]}-{each[2]}") for each in recorded("tests.torch.distributions")]


@pytest.mark.parametrize("case, form, dtype, expected", RECORDED)
def test_agrees_with_what_torch_did(case: Case, form: str, dtype: str, expected: Any) -> None:
    got = run(own, case, form, dtype)
    single = 1e4 if dtype in ("float64", "complex128") else 1.0  # recorded as float32
    assert not differences(case, expected, got, form, dtype, single)
