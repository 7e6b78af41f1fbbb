"""Native loops are left with exactly the state that plain Python has there: values, arrays, exceptions and their lines."""

from __future__ import annotations

import contextlib
import copy
import io
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .exits import PROGRAMS


def outcome(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call gives, or raises and where, what it prints, and its arguments after it."""
    printed = io.StringIO()
    result: Any
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = ("gives", function(*arguments))
    except Exception as error:
        result = ("raises", *described(error))
    return frozen(result), frozen(arguments), printed.getvalue()


def described(error: BaseException | None) -> tuple[Any, ...]:
    if error is None:
        return ()
    lines = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if "test_exits" not in f.filename]
    return type(error), str(error), lines, described(error.__cause__), described(error.__context__)


def frozen(value: Any) -> Any:
    """A value by which equal means equal: types, dtypes, bits."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    if isinstance(value, (tuple, list)):
        return type(value), [frozen(v) for v in value]
    if isinstance(value, dict):
        return [(frozen(k), frozen(v)) for k, v in value.items()]
    if isinstance(value, Iterator):
        return type(value), [frozen(v) for v in copy.copy(value)]
    if type(value).__module__.startswith("tests."):
        return type(value).__name__, frozen(vars(value))
    return type(value), repr(value)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("function, arguments", PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_leaves_as_plain(function: Any, arguments: Any) -> None:
    compiled = dg.compile(function)
    for _ in range(3):
        assert outcome(compiled, arguments()) == outcome(function, arguments())
    assert compiled.stats.last_error is None
