"""Examples are imported as the modules they are beside each other, on dynagraph.torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dynagraph.torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def random_numbers() -> Iterator[None]:
    """Those of other tests are what they would have been."""
    before = dynagraph.torch.get_rng_state()
    yield
    dynagraph.torch.set_rng_state(before)


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the name that the test is given."""
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    known = set(sys.modules)
    with dynagraph.torch.install():
        yield importlib.import_module(request.param)
    for name in set(sys.modules) - known:
        path = getattr(sys.modules[name], "__file__", None) or ""
        if Path(path).parent == EXAMPLES:
            del sys.modules[name]
