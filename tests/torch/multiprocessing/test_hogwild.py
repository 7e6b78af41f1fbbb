"""Several processes train one model at once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "hogwild.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("hogwild_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE.parent))  # it imports what examples share
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.soak)])  # soak: each process captures its step
def test_four_processes_train_one_model(example: Any, compiled: bool) -> None:
    found = example.run(4, 8, compiled, "fork")
    assert found["steps"] == 4 * 8 * 11
    assert found["accuracy"] > 0.75
    assert found["losses"][-1] < found["losses"][0] / 2
