"""Run a function plainly and compiled: results, errors, warnings and written arguments must be the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dynagraph as dg

SIGNLESS = {"fmax", "fmin", "maximum", "minimum"}  # which zero of 0.0 and -0.0 comes out depends on NumPy's vector width


def outcome(function: Callable, arrays: Sequence[Any]) -> tuple[Any, str, list[str], list[Any]]:
    given = [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arrays]
    result, error = None, ""
    with warnings.catch_warnings(record=True) as seen, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            result = function(*given)
        except Exception as raised:  # whatever NumPy raises
            error = f"{type(raised).__name__}: {raised}"
    return result, error, [str(w.message) for w in seen], given


def assert_equal(got: Any, want: Any, exact: bool) -> None:
    assert type(got) is type(want), (got, want)
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert_equal(g, w, exact)
    elif not isinstance(want, (np.ndarray, np.generic)):
        assert got == want
    else:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if exact:
            np.testing.assert_array_equal(got, want)
        else:
            tolerance = {"float16": 4e-3, "float32": 1e-4, "complex64": 1e-4}.get(want.dtype.name, 1e-10)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def compare(
    function: Callable, *arrays: Any, exact: bool = True, backend: str = "reference", breaks: bool | None = None
) -> list[str]:
    """The breaks of the compiled function; `breaks` says whether there are any (None: that is not asked)."""
    compiled = dg.compile(function, backend=backend)
    with dg.config.override(strict=True):
        for _ in range(2):
            (want, error, warned, theirs), (got, our_error, we_warned, ours) = outcome(function, arrays), outcome(compiled, arrays)
            assert our_error == error
            assert we_warned == warned
            assert_equal([got, *ours], [want, *theirs], exact)
    if breaks is not None:
        assert bool(compiled.stats.breaks) is breaks or error, compiled.stats.breaks
    return [str(b) for b in compiled.stats.breaks]


__all__ = ["SIGNLESS", "assert_equal", "compare", "outcome"]
