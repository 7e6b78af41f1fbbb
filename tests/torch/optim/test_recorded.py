"""Optimizers and schedulers against what real torch's did (record.py): where there is no torch."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph.torch as own
from tests.torch.optim.cases import OPTIMIZERS, SCHEDULERS, Case, name_of, run, schedule, tolerance_of
from tests.torch.optim.record import FILE, SPARSE_FILE
from tests.torch.optim.scenarios import id_of, last_of, outcome, recorded_scenarios
from tests.torch.optim.sparse_cases import SPARSE, train

RECORDED, RECORDED_SPARSE = np.load(FILE), np.load(SPARSE_FILE)


@pytest.mark.parametrize("case", OPTIMIZERS, ids=name_of)
def test_fifty_steps(case: Case) -> None:
    params, _ = run(own, case, "float64")
    for k, param in enumerate(params):
        expected = RECORDED[f"{name_of(case)}|{k}"]
        np.testing.assert_allclose(param, expected, rtol=tolerance_of(case, "float64"), atol=tolerance_of(case, "float64"))


@pytest.mark.parametrize("case", SCHEDULERS, ids=name_of)
def test_rates(case: Case) -> None:
    np.testing.assert_allclose(schedule(own, case)[0], RECORDED[name_of(case)], rtol=1e-12)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("pair", recorded_scenarios(), ids=id_of)
def test_scenarios(pair: tuple[Case, str]) -> None:
    tolerance = tolerance_of(pair[0], "float64")
    np.testing.assert_allclose(last_of(outcome(own, *pair)), RECORDED[id_of(pair)], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_fifty_steps_of_sparse_gradients(case: Case) -> None:
    for k, found in enumerate(train(own, case)[0]):
        np.testing.assert_allclose(found, RECORDED_SPARSE[f"{name_of(case)}|{k}"], rtol=1e-6)
