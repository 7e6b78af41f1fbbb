"""Gradients of what NumPy's callables become: of graphs as captures make them, against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

RNG = np.random.default_rng(0)
A, S, V = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 3)), RNG.normal(size=8)
Z = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
BINS = np.array([0, 1, 2, 0, 1, 2, 0, 1])
linalg, fft = np.linalg, np.fft

CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "svd": (lambda a: np.sum(linalg.svd(a, full_matrices=False)[0] ** 2 * np.arange(3)), A),
    "svd-values": (lambda a: np.sum(linalg.svd(a, compute_uv=False) ** 3) + np.sum(linalg.svd(a).S), A),
    "norms": (lambda a: linalg.norm(a, "nuc") + linalg.norm(a, 2) + linalg.norm(a, 1) + linalg.norm(a), A),
    "norm-of-a-zero": (lambda a: np.sum(linalg.norm(a * np.array([[1.0], [0.0], [1.0], [1.0]]), axis=1)), A),
    "eigh": (lambda a: np.sum(linalg.eigh(a + a.T).eigenvectors ** 4) + np.sum(linalg.eigvalsh(a + a.T) * np.arange(3.0)), S),
    "qr": (lambda a: np.sum(linalg.qr(a)[1] ** 2 * np.arange(3)) + np.sum(linalg.qr(a, mode="r") ** 3), A),
    "pinv": (lambda a: np.sum(linalg.pinv(a) ** 2), A),
    "lstsq": (lambda a: np.sum(linalg.lstsq(a, np.ones(4))[0] ** 2), A),
    "solve": (lambda a: np.sum(linalg.solve(a, np.ones(3)) ** 2), S),
    "powers-of-matrices": (lambda a: np.sum(linalg.matrix_power(a, 3)) + np.sum(linalg.matrix_power(a, -2)), S),
    "multi_dot": (lambda a: np.sum(linalg.multi_dot([a, a.T, a])), S),
    "determinants": (lambda a: linalg.det(a) + linalg.slogdet(a)[1] + linalg.cond(a), S),
    "cholesky": (lambda a: np.sum(linalg.cholesky(a @ a.T + np.eye(3)) ** 3), S),
    "fft": (lambda a: np.sum(np.abs(fft.fft(a)) ** 3), V),
    "rfft": (lambda a: np.sum(fft.rfft(a).real ** 2) + np.sum(fft.rfft(a, 5).imag ** 3), V),
    "irfft": (lambda a: np.sum(fft.irfft(fft.rfft(a) * np.exp(1j * np.arange(5))) ** 3), V),
    "fft2": (lambda a: np.sum(np.abs(fft.fft2(a))), A),
    "sort": (lambda a: np.sum(np.sort(a) * np.arange(8)) + np.sum(np.partition(a, 3)[:3] ** 2), V),
    "argsort": (lambda a: np.sum(a[np.argsort(a)] * np.arange(8)) + np.sum(np.take_along_axis(a, np.argsort(a), 0) ** 3), V),
    "quantiles": (lambda a: np.median(a) + np.quantile(a, [0.1, 0.33]).sum() + np.percentile(a, 35.0) + np.nanmedian(a), V),
    "interp": (lambda a: np.sum(np.interp(a, np.linspace(-3, 3, 5), np.array([1.0, 5, 2, 0, 3]))), V),
    "interp-heights": (lambda a: np.sum(np.interp(np.linspace(-0.9, 0.9, 5), np.linspace(-1, 1, 8), a) ** 2), V),
    "convolve": (lambda a: np.sum(np.convolve(a, np.arange(3.0) + 1) ** 2) + np.sum(np.correlate(a, a[:3], "same") ** 2), V),
    "bincount": (lambda a: np.sum(np.bincount(BINS, weights=a, minlength=3) ** 2), V),
    "maximum.accumulate": (lambda a: np.sum(np.maximum.accumulate(a) * np.arange(8)), V),
    "reductions": (lambda a: np.logaddexp.reduce(a) + np.multiply.reduce(a) + np.hypot.reduce(a) + np.ptp(a), V),
    "clip": (lambda a: np.sum(np.clip(a, -0.5, 0.5) * a) + np.sum(np.hypot(a, 1.0)), V),
    "statistics": (lambda a: np.std(a) + np.var(a) + np.sum(np.cov(a)) + np.nanmean(a) + np.nanstd(a), V),
    "powers": (lambda a: np.sum(a**3) + np.sum(a**4) + np.sum(a**-2) + np.sum(np.float64(2.0) ** a), V),
    "where": (lambda a: np.sum(np.where(a > 0, np.log(a), a) + np.sqrt(np.maximum(a, 0))), V),
    "differences": (lambda a: np.sum(np.gradient(a) ** 2) + np.trapezoid(a**2) + np.sum(np.diff(a) ** 2) + np.sum(np.unwrap(a)), V),
    "products": (lambda a: np.sum(np.kron(a, a) ** 2) + np.sum(np.cross(a[0], a[1]) ** 2) + np.einsum("ij,ik->", a, a), S),
    "complex-absolute": (lambda z: np.sum(np.abs(z @ z)) + linalg.norm(z) + np.std(z), Z),
    "complex-matrices": (lambda z: np.sum(linalg.inv(z).real ** 2) + np.sum(np.abs(linalg.eigvals(z)) ** 2), Z),
    "complex-functions": (lambda z: np.sum((np.exp(z) * np.conj(z) / (2 + z * z)).imag) + np.sum(np.angle(z)), Z),
    "complex-powers": (lambda z: np.sum(np.sqrt(z).imag + (z**3).real + np.log(z).real) + np.vdot(z, z * 2).real, Z),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in (log|sqrt)")
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_captured_functions(name: str) -> None:
    function, x = CASES[name]
    way = RNG.normal(size=x.shape) + (1j * RNG.normal(size=x.shape) if x.dtype.kind == "c" else 0)
    step = 1e-6
    numeric = (function(x + step * way) - function(x - step * way)) / (2 * step)
    compiled = dg.compile(function, backend="reference", fullgraph=True)
    got = dg.grad(compiled)(x)
    assert got.dtype == x.dtype and got.shape == x.shape
    np.testing.assert_allclose((np.conj(got) * way).real.sum(), numeric, rtol=1e-4, atol=1e-5)
