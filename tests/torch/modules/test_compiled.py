"""Layers compiled against their plain calls, in training and evaluation; and layers pickled and copied."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from tests.torch.modules.layers import called, dtype_for, made
from tests.torch.table import Case, Inputs, families

ROWS = [
    pytest.param(case, id=f"{family}-{case}")
    for family, cases in families(package="tests.torch.modules").items()
    for case in cases
    if "layer" in case.options and not case.raises and case.option("compare", "close") == "close"
]


def arrays(value: Any) -> list[Any]:
    """All tensors of a nest as arrays, None for None."""
    if isinstance(value, torch.Tensor):
        return [value.detach().numpy()]
    return [None] if value is None else [a for item in value for a in arrays(item)] if isinstance(value, (tuple, list)) else []


def same(a: Any, b: Any) -> bool:
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if (x is None) != (y is None):
            return False
        if x is not None and not (x.dtype == y.dtype and np.allclose(x, y, rtol=1e-9, atol=1e-11, equal_nan=True)):
            return False
    return True


def ready(case: Case) -> tuple[Any, list[Any], list[Any]]:
    """The layer of a row, its inputs, and leaves that gradients are taken by."""
    text, train = case.options["layer"]
    inputs = Inputs(torch, case, "float64", case.option("grad", True) and "inplace=True" not in text)
    module = made(torch, text, dtype_for(torch, inputs.args), train)
    leaves = [x for x in (*inputs.leaves, *module.parameters()) if x.requires_grad]
    return module, inputs.args, leaves


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", ROWS)
def test_compiled_steps_do_what_plain_ones_do(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, own = ready(case), ready(case)
        compiled = dg.compile(lambda module, inputs, leaves: called(torch, module, inputs, leaves), backend="numpy", mode="max")
        for time in ("first", "second", "third"):
            expected, got = called(torch, *plain), compiled(*own)
            assert same(arrays(got), arrays(expected)), f"{time} call"
            assert same(arrays(list(own[0].buffers())), arrays(list(plain[0].buffers()))), f"buffers after the {time} call"
    assert not compiled.stats.fallbacks, compiled.stats.last_error


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", ROWS)
def test_copies(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, inputs, _ = ready(case)
        copies = [copy.deepcopy(module)]
        if "lambda" not in case.name:
            copies.append(pickle.loads(pickle.dumps(module)))
        expected = arrays(module(*inputs))
        for each in copies:
            assert repr(each) == repr(module)
            assert list(each.state_dict()) == list(module.state_dict())
            assert all(a is not b for a, b in zip(each.parameters(), module.parameters()))
            _, again, _ = ready(case)
            assert same(arrays(each(*again)), expected)
