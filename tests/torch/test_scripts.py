"""Ordinary scripts print under dynagraph.torch what they print under PyTorch."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynagraph.torch
from dynagraph.torch.functions.printing import OPTIONS
from tests.torch.scripts.record import SCRIPTS

NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.\d*(?:e[+-]?\d+)?)(?!\w)")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyTorch is not imported, and what scripts set for the process ends with them."""
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    options = dict(vars(OPTIONS))
    yield
    vars(OPTIONS).clear()
    vars(OPTIONS).update(options)
    dynagraph.torch.set_default_dtype(dynagraph.torch.float32)


def printed_by(script: Path) -> str:
    printed = io.StringIO()
    with dynagraph.torch.install(), contextlib.redirect_stdout(printed):
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue()


def numbers_of(text: str) -> list[float]:
    return [float(found) for found in NUMBER.findall(text)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_prints_what_it_prints_under_pytorch(script: Path) -> None:
    """Text by text; fractions may differ in their last digits."""
    wanted, given = script.with_suffix(".txt").read_text().splitlines(), printed_by(script).splitlines()
    for line, (a, b) in enumerate(zip(given, wanted), 1):
        assert NUMBER.sub("#", a) == NUMBER.sub("#", b), f"line {line}:\n{a}\n{b}"
        assert numbers_of(a) == pytest.approx(numbers_of(b), rel=3e-4, abs=2e-4), f"line {line}:\n{a}\n{b}"
    assert len(given) == len(wanted)
