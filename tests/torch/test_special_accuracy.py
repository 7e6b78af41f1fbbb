"""Special functions of float64 arrays against mpmath: errors in units of the last place.  No PyTorch is needed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dynagraph.torch.functions import special_arrays as arrays

ROOT = Path(__file__).parents[2]
rng = np.random.default_rng(0)
SYMMETRIC = np.concatenate([rng.normal(size=40), 5 * rng.normal(size=40), 10.0 ** rng.uniform(-8, 0, 10)])
POSITIVE = np.concatenate([np.abs(SYMMETRIC), rng.uniform(0, 30, 60)])


def error(compute: Callable[..., Any], exact: Callable[..., Any], *xs: Any, least: float = 0.0) -> float:
    """The greatest, in units of the last place of the results, or of `least` where these are smaller."""
    with np.errstate(all="ignore"):
        found = compute(*xs)
    worst = 0.0
    with mp.workdps(40):
        for value, *at in zip(found, *xs, strict=True):
            expected = exact(*(mp.mpf(float(x)) for x in at))
            size = max(abs(float(expected)), least)
            if 1e-300 < size < 1e300:
                worst = max(worst, abs(float(mp.mpf(float(value)) - expected)) / float(np.spacing(size)))
    return worst


@pytest.mark.parametrize(
    ("name", "exact", "xs", "bound"),
    [
        ("erf", mp.erf, SYMMETRIC, 3),
        ("erfc", mp.erfc, np.clip(np.concatenate([SYMMETRIC, POSITIVE]), -10, 26), 5),
        ("erfcx", lambda x: mp.exp(x * x) * mp.erfc(x), np.clip(np.concatenate([SYMMETRIC, POSITIVE]), -20, 60), 8),
        ("erfinv", mp.erfinv, np.concatenate([rng.uniform(-1, 1, 60), 1 - 10.0 ** rng.uniform(-15, 0, 20)]), 8),
        ("log_gamma", lambda x: mp.loggamma(x).real, np.concatenate([POSITIVE, rng.uniform(0.9, 2.1, 40), [1e5, 3e9]]), 6),
        ("i0", lambda x: mp.besseli(0, x), POSITIVE, 8),
        ("i0e", lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), SYMMETRIC, 8),
        ("i1", lambda x: mp.besseli(1, x), SYMMETRIC, 12),
        ("i1e", lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), SYMMETRIC, 12),
        ("k0", lambda x: mp.besselk(0, x), POSITIVE, 12),
        ("k1", lambda x: mp.besselk(1, x), POSITIVE, 12),
    ],
)
def test_relative_errors_are_a_few_units(name: str, exact: Any, xs: Any, bound: float) -> None:
    assert error(getattr(arrays, name), exact, xs) < bound


@pytest.mark.parametrize(
    ("name", "exact", "xs", "bound"),
    [
        ("log_gamma", lambda x: mp.log(abs(mp.gamma(x))), -POSITIVE, 6),
        ("digamma", mp.digamma, np.concatenate([POSITIVE, -POSITIVE]), 12),
        ("j0", lambda x: mp.besselj(0, x), POSITIVE, 5),
        ("j1", lambda x: mp.besselj(1, x), POSITIVE, 5),
        ("y0", lambda x: mp.bessely(0, x), POSITIVE, 6),
        ("y1", lambda x: mp.bessely(1, x), POSITIVE, 6),
        ("airy_ai", mp.airyai, rng.uniform(-15, 5, 60), 20),
    ],
)
def test_errors_of_functions_with_zeros_are_a_few_units_of_one(name: str, exact: Any, xs: Any, bound: float) -> None:
    assert error(getattr(arrays, name), exact, xs, least=1.0) < bound


def test_erf_of_float32() -> None:
    x = np.concatenate([rng.normal(size=4000), rng.uniform(0, 5, 4000), 10.0 ** rng.uniform(-38, 0, 200)]).astype(np.float32)
    found, exact = arrays.erf(x), np.array([math.erf(float(v)) for v in x])
    assert found.dtype == np.float32
    assert (np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32))).max() < 1.5
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 4, -4, 3e38], np.float32)
    np.testing.assert_array_equal(arrays.erf(edges), np.array([0, -0.0, 1, -1, np.nan, 1, -1, 1], np.float32))
    assert np.signbit(arrays.erf(edges)[1])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_polygamma(n: int) -> None:
    assert error(lambda x: arrays.polygamma(x, n), lambda x: mp.polygamma(n, x), POSITIVE[POSITIVE > 0.01]) < 20


def test_zeta() -> None:
    x, q = rng.uniform(1.01, 20, 40), rng.uniform(0.05, 20, 40)
    assert error(arrays.zeta, mp.zeta, x, q) < 20


@pytest.mark.parametrize("which", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_of_all_regions(which: str) -> None:
    a = np.concatenate([10.0 ** rng.uniform(-2, 2, 40), 10.0 ** rng.uniform(2, 4, 10), rng.uniform(0, 2, 20)])
    x = np.concatenate([a[:40] * 10.0 ** rng.uniform(-1, 0.5, 40), a[40:50] * rng.uniform(0.9, 1.1, 10), rng.uniform(0, 2, 20)])

    def exact(a: Any, x: Any) -> Any:
        return mp.gammainc(a, 0, x, regularized=True) if which == "gammainc" else mp.gammainc(a, x, mp.inf, regularized=True)

    assert error(getattr(arrays, which), exact, a, x) < 2000  # of results down to 1e-200, whose exponents are rounded


@pytest.mark.sampled(8)
def test_tables_are_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("generate_special_tables", ROOT / "scripts" / "generate_special_tables.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    with mp.workdps(50):
        spec.loader.exec_module(script)
        script.main()
    assert capsys.readouterr().out == (ROOT / "dynagraph" / "torch" / "functions" / "special_tables.py").read_text()
