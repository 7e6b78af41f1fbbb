"""Builtins that the program replaces: calls run eagerly meanwhile, and are compiled when the originals are back."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.errors import CaptureError
from dynagraph.originals import LEFT_TO_PROGRAMS

NAMES = sorted(n for n, v in vars(builtins).items() if callable(v) and not n.startswith("__") and n not in LEFT_TO_PROGRAMS)
ESSENTIAL = {"super", "type", "object", "isinstance", "property"}  # pytest and NumPy do not survive without


def scaled(x: np.ndarray, n: int) -> np.ndarray:
    return x * abs(n) + len(range(n, 2)) - max(n, 1)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ESSENTIAL and not issubclass(type(getattr(builtins, n)), type)])
def test_a_replaced_builtin_is_called_by_the_program_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``x * abs(n)`` gave [100, 4, 6, 8] where abs gave 100 to our own passes."""
    x, original, calls = np.arange(4.0), getattr(builtins, name), []

    def replacement(*args, **kwargs):
        calls.append(args)
        return 100 if name == "abs" else original(*args, **kwargs)

    compiled = dg.compile(scaled, backend="reference")
    compiled(x, -2)
    try:
        setattr(builtins, name, replacement)
        want = scaled(x, -3)
        called = len(calls)
        got = compiled(x, -3)
        again = len(calls) - called
    finally:
        setattr(builtins, name, original)
    np.testing.assert_array_equal(got, want)
    assert again == called  # by the plain run alone
    assert any("REPLACED" in text or "builtin" in text for text in compiled.stats.breaks), compiled.stats.breaks
    np.testing.assert_array_equal(compiled(x, -4), scaled(x, -4))
    assert compiled.stats.compiles > 0


def test_classes_that_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(4.0)
    compiled = dg.compile(scaled, backend="reference")
    monkeypatch.setattr(builtins, "range", lambda *args: [0] * 9)
    got = compiled(x, -3)
    monkeypatch.undo()
    np.testing.assert_array_equal(got, x * 3 + 9 - 1)
    assert compiled.stats.compiles == 0
    np.testing.assert_array_equal(compiled(x, -3), scaled(x, -3))
    assert compiled.stats.compiles == 1


def test_print_is_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = dg.compile(scaled, backend="reference")
    monkeypatch.setattr(builtins, "print", lambda *args: None)
    np.testing.assert_array_equal(compiled(np.arange(4.0), 3), scaled(np.arange(4.0), 3))
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks


def test_fullgraph_says_which_builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = dg.compile(scaled, backend="reference", fullgraph=True)
    monkeypatch.setattr(builtins, "sorted", lambda x: list(x))
    with pytest.raises(CaptureError, match=r"was replaced after dynagraph was imported \(sorted\)"):
        compiled(np.arange(4.0), 3)
