"""Gradients of the table's rows against JAX's, where it is installed and has NumPy's function under the same name."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .numpy_table import ROWS
from .test_numpy_functions import weights

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

LACKING = (AttributeError, NotImplementedError, TypeError, IndexError)  # of functions, and of arguments that JAX does not take
# JAX does not write to arrays, nor sort them where they are; its method sum forgets initial=
OTHERWISE = {"put", "place", "put_along_axis", "sort in place", "sum with initial"}


def of_jax(f: Any) -> Any:
    """The same function, with jax.numpy in the place of NumPy."""
    return types.FunctionType(f.__code__, {**f.__globals__, "np": jax.numpy}, f.__name__, f.__defaults__, f.__closure__)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in OTHERWISE])
def test_gradients_are_those_of_jax(name: str) -> None:
    f, *args = ROWS[name]
    cotangent = weights(f(*args))
    try:
        value, pull = jax.vjp(of_jax(f), *args)
        expected = pull(jax.numpy.asarray(cotangent, value.dtype).conj())
    except LACKING as error:
        pytest.skip(f"JAX: {error}".split("\n")[0])
    with dg.disable():
        got = dg.vjp(f, *args)[1](cotangent)
    tolerance = 1e-4 if any(x.dtype == np.float32 for x in args) else 1e-6
    for ours, theirs in zip(got, expected):
        np.testing.assert_allclose(ours, np.conj(theirs), rtol=tolerance, atol=tolerance)
