"""Functions of CuPy's that the program calls as they are, between kernels: Fourier transforms, LAPACK's, sorts."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.doors.cupy import CALLED
from tests.cupy_arrays.harness import check, put

RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((6, 6)), RNG.standard_normal((6, 4))
SPD = X @ X.T + 6 * np.eye(6)

CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    **{name: (lambda cp, x, n=name: _at(cp, n)(x * 2) + 1, (X,)) for name in CALLED if name.startswith("fft.")},
    "linalg.solve": (lambda cp, a, b: cp.tanh(cp.linalg.solve(a, b * 2)), (SPD, Y)),
    "linalg.inv": (lambda cp, a: cp.linalg.inv(a + 1) * 2, (SPD,)),
    "linalg.det": (lambda cp, a: cp.linalg.det(a) * 2, (SPD,)),
    "linalg.slogdet": (lambda cp, a: (cp.linalg.slogdet(a)[1] + 1, cp.linalg.slogdet(a)), (SPD,)),
    "linalg.cholesky": (lambda cp, a: cp.linalg.cholesky(a) * 2, (SPD,)),
    "linalg.qr": (lambda cp, a: (abs(cp.linalg.qr(a)[1]), cp.linalg.qr(a)[0] + 0), (SPD,)),
    "linalg.svd": (lambda cp, a: cp.linalg.svd(a, compute_uv=False) * 2, (SPD,)),
    "linalg.eigh": (lambda cp, a: cp.linalg.eigh(a)[0] * 2, (SPD,)),
    "linalg.eigvalsh": (lambda cp, a: cp.linalg.eigvalsh(a, "U") * 2, (SPD,)),
    "sort": (lambda cp, a: cp.sort(a, axis=0)[1:] * 2, (X,)),
    "argsort": (lambda cp, a: cp.argsort(a) + 1, (X,)),
}


def _at(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CALLED)
def test_called_functions_are_steps_of_the_program(cp: Any, name: str) -> None:
    function, arrays = CASES[name]
    check(cp, lambda *given: function(cp, *given), *arrays)


def test_by_numpys_names(cp: Any) -> None:
    check(cp, lambda x: np.fft.fft(x).real + np.linalg.inv(x @ x.T + cp.eye(6)), X)


def test_sizes_may_change(cp: Any) -> None:
    compiled = dg.compile(lambda x: abs(cp.fft.rfft(x * 2, axis=0)) + 1, dynamic=True)
    for n in (4, 5, 9, 16):
        x = RNG.standard_normal((n, 3))
        np.testing.assert_allclose(compiled(put(cp, x)).get(), abs(np.fft.rfft(x * 2, axis=0)) + 1, atol=1e-12)
    assert compiled.stats.compiles == 1 and compiled.stats.refusals == 0


def test_what_is_raised_is_raised_before_anything_is_written(cp: Any) -> None:
    def f(x: Any) -> Any:
        x += 1
        return cp.linalg.cholesky(x - 100)

    compiled = dg.compile(f)
    ours, plain = put(cp, SPD), put(cp, SPD)
    for _ in range(2):
        with checked():
            with pytest.raises(np.linalg.LinAlgError):
                f(plain)
            with pytest.raises(np.linalg.LinAlgError):
                compiled(ours)
        np.testing.assert_array_equal(ours.get(), plain.get())


def test_results_lie_in_c_order(cp: Any) -> None:
    """CuPy's of LAPACK lie in Fortran order (docs/cuda.md)."""
    q, r = dg.compile(lambda a: cp.linalg.qr(a))(put(cp, SPD))
    assert q.flags.c_contiguous and r.flags.c_contiguous
    np.testing.assert_allclose((q @ r).get(), SPD, atol=1e-12)


def checked() -> contextlib.AbstractContextManager[Any]:
    """CuPy gives NaN where a routine of cuSOLVER's failed, unless it is asked to look."""
    return importlib.import_module("cupyx").errstate(linalg="raise")  # type: ignore[no-any-return]


def test_gradients_pass_through(cp: Any) -> None:
    def f(xp: Any, a: Any, b: Any) -> Any:
        return dg.grad(lambda a: xp.sum(xp.linalg.solve(a, b) ** 2))(a)

    got = dg.compile(lambda a, b: f(cp, a, b))(put(cp, SPD), put(cp, Y))
    np.testing.assert_allclose(got.get(), f(np, SPD, Y), rtol=1e-10)
