"""Gradients through NumPy's functions: of each row of the table, against differences, on the tape, and compiled."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.autodiff.transforms import pulled_back

from .numpy_table import ROWS, WITHOUT

MESSAGE = r"numpy_table.py:\d+: .*(no gradient passes through|would lose its gradient)"


def weights(value: Any) -> Any:
    """A cotangent of the value's shape and dtype, of numbers that differ."""
    rng = np.random.default_rng(3)
    dtype, shape = np.result_type(value), np.shape(value)
    numbers = rng.uniform(0.5, 1.5, shape) + (1j * rng.uniform(0.5, 1.5, shape) if dtype.kind == "c" else 0)
    return np.asarray(numbers, dtype)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", ROWS)
def test_derivatives_are_differences_of_values(name: str) -> None:
    f, *args = ROWS[name]
    dg.check_grads(dg.compile(f, backend="reference"), tuple(args))


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", ROWS)
def test_the_tape_gives_what_machine_code_gives(name: str) -> None:
    f, *args = ROWS[name]
    cotangent = weights(f(*args))
    compiled = pulled_back(f, args, cotangent)
    with dg.disable():
        plain = pulled_back(f, args, cotangent)
    assert len(compiled) == len(plain) == len(args)
    for argument, got, want in zip(args, compiled, plain):
        assert type(got) is type(want) is type(argument)
        assert (got.dtype, got.shape) == (want.dtype, want.shape) == (argument.dtype, argument.shape)
        tolerance = 1e-5 if argument.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", ROWS)
def test_what_a_tape_records_has_the_gradients_of_its_graph(name: str) -> None:
    f, *args = ROWS[name]

    def noted(*args: Any) -> Any:
        assert args[0].tape.notes is not None  # asked for, the tape changes over
        return f(*args)

    found = [_first_and_second(g, args) for g in (f, noted)]
    for got, want in zip(*found, strict=True):
        assert type(got) is type(want) and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)


def _first_and_second(f: Any, args: Any) -> list[Any]:
    """Gradients of a sum of what a function gives; and, if they have some, of what these give."""

    def total(value: Any) -> Any:
        parts = value if isinstance(value, (tuple, list)) else [value]
        real = [part for p in parts for part in ((p.real, p.imag) if np.iscomplexobj(p) else (p,))]
        return sum((k + 1) * np.sum(part * np.cos(np.arange(np.size(part))).reshape(np.shape(part))) for k, part in enumerate(real))

    by = tuple(range(len(args)))
    first = dg.grad(lambda *args: total(f(*args)), argnums=by)
    with dg.disable(), np.errstate(all="ignore"):
        found = list(first(*args))
        with contextlib.suppress(dg.GradientError):
            found += dg.grad(lambda *args: total(first(*args)), argnums=by)(*args)
    return found


@pytest.mark.parametrize("plainly", [False, True], ids=["compiled", "tape"])
@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_gradient_says_so(name: str, plainly: bool) -> None:
    f, *args = WITHOUT[name]
    cotangent = weights(f(*args))
    with dg.disable() if plainly else contextlib.nullcontext(), pytest.raises(dg.GradientError, match=MESSAGE):
        pulled_back(dg.compile(f, backend="reference"), args, cotangent)
