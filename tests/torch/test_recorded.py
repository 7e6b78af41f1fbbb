"""A sample of the table as real torch ran it (record.py): what is tested where there is no torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dynagraph.torch as own
from tests.torch.outcomes import differences, run
from tests.torch.record import recorded
from tests.torch.table import Case, T, case

RECORDED = [pytest.param(*each, id=f"{each[0]}-{each[1]}-{each[2]}") for each in recorded()]


@pytest.mark.parametrize("case, form, dtype, expected", RECORDED)
def test_agrees_with_what_torch_did(case: Case, form: str, dtype: str, expected: Any) -> None:
    got = run(own, case, form, dtype)
    single = 1e4 if dtype in ("float64", "complex128") else 1.0  # recorded as float32
    assert not differences(case, expected, got, form, dtype, single)


def test_differences_are_found() -> None:
    row = case("sum", T(3, 4), dim=1)
    outcome = run(own, row, "function", "float64")
    assert not differences(row, outcome, outcome, "function", "float64")
    other = {**outcome, "result": {**outcome["result"], "values": outcome["result"]["values"] * (1 + 1e-6)}}
    assert "values differ" in differences(row, outcome, other, "function", "float64")[0]
    for key, value in (("dtype", "torch.float32"), ("shape", [3, 1]), ("strides", [2]), ("shares", "0"), ("requires_grad", False)):
        changed = {**outcome, "result": {**outcome["result"], key: value}}
        assert any(key in text for text in differences(row, outcome, changed, "function", "float64"))
    gradients = {**outcome["gradients"], "second": [{**g, "values": g["values"] + 1e-3} for g in outcome["gradients"]["second"]]}
    assert "gradients.second" in differences(row, outcome, {**outcome, "gradients": gradients}, "function", "float64")[0]
    assert np.isfinite(outcome["result"]["values"]).all()
