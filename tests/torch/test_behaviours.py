"""Behaviours of autograd and torch.func against what PyTorch's were recorded to be; and the record against PyTorch, where it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dynagraph.torch as own
from tests.torch.behaviours import BEHAVIOURS, LOOSE, RECORDED, differs, load, outcome

load()
EXPECTED: dict[str, Any] = json.loads(RECORDED.read_text())


def comparable(name: str, found: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in found.items() if not (k == "text" and name in LOOSE)}


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(name: str) -> None:
    expected = comparable(name, EXPECTED[name])
    got = comparable(name, outcome(BEHAVIOURS[name], own))
    if "error" in got and "error" in expected:  # a subclass of what PyTorch raises will do
        got["error"] = expected["error"] if set(expected["error"]) <= set(got["error"]) else got["error"]
    assert not differs(got, expected), f"got\n{got}\nexpected\n{expected}"


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_record(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert not differs(outcome(BEHAVIOURS[name], torch), EXPECTED[name])
