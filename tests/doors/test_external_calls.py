"""External calls: each row against NumPy, on every backend; and what a program does where the function raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.c.backend import lower_graph
from dynagraph.doors.numpy.external_calls import rows
from dynagraph.ir.loops import ExternalCall
from dynagraph.ir.text import table

from .harness import LAYOUTS

RNG = np.random.default_rng(7)
X = RNG.normal(size=24)
B = RNG.normal(size=(6, 4))
T = RNG.normal(size=(3, 4, 5))
S = RNG.normal(size=(2, 4, 4))
SPD = S @ S.swapaxes(-1, -2) + np.eye(4)
COUNTS = RNG.integers(0, 9, 30)
BITS = RNG.integers(0, 2, (3, 16)).astype(np.uint8)

Samples = list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]
# a call or more for each row, by its name
SAMPLES: dict[str, Samples] = {
    "linalg.solve": [(lambda a, b: np.linalg.solve(a, b), (SPD, B[:4, :3])), (lambda a, b: np.linalg.solve(a[0], b), (SPD, X[:4]))],
    "linalg.inv": [(lambda a: np.linalg.inv(a), (SPD,)), (lambda a: np.linalg.inv(a.astype(np.float32)), (SPD,))],
    "linalg.pinv": [(lambda a: np.linalg.pinv(a), (B,)), (lambda a: np.linalg.pinv(a, hermitian=True), (SPD,))],
    "linalg.det": [(lambda a: np.linalg.det(a), (SPD,)), (lambda a: np.linalg.det(a[0]) + 1, (SPD,))],
    "linalg.slogdet": [(lambda a: np.linalg.slogdet(a), (SPD,)), (lambda a: np.linalg.slogdet(a[1]).logabsdet, (SPD,))],
    "linalg.cholesky": [(lambda a: np.linalg.cholesky(a), (SPD,))],
    "linalg.qr": [
        (lambda a: np.linalg.qr(a), (B,)), (lambda a: np.linalg.qr(a.T, mode="complete"), (B,)),
        (lambda a: np.linalg.qr(a, "r"), (B,)), (lambda a: np.linalg.qr(a[::2], mode="raw"), (B,)),
    ],
    "linalg.svd": [
        (lambda a: np.linalg.svd(a), (B,)), (lambda a: np.linalg.svd(a.T[::-1], full_matrices=False), (B,)),
        (lambda a: np.linalg.svd(a, compute_uv=False)[:, 0], (S,)), (lambda a: np.linalg.svd(a, hermitian=True).S, (SPD,)),
    ],
    "linalg.svdvals": [(lambda a: np.linalg.svdvals(a), (B,))],
    "linalg.eigh": [(lambda a: np.linalg.eigh(a), (SPD,)), (lambda a: np.linalg.eigh(a, UPLO="U").eigenvectors[0], (S,))],
    "linalg.eigvalsh": [(lambda a: np.linalg.eigvalsh(a), (SPD,))],
    "linalg.lstsq": [
        (lambda a, b: np.linalg.lstsq(a, b, rcond=None), (B, X[:6])), (lambda a, b: np.linalg.lstsq(a, b)[0] * 2, (B, B)),
        (lambda a, b: np.linalg.lstsq(a.T, b)[1], (B, X[:4])),
    ],
    "linalg.matrix_rank": [(lambda a: np.linalg.matrix_rank(a), (S,)), (lambda a: np.linalg.matrix_rank(a, tol=0.1), (B,))],
    "linalg.cond": [
        (lambda a: np.linalg.cond(a), (B,)), (lambda a: np.linalg.cond(a, "fro"), (SPD,)), (lambda a: np.linalg.cond(a * 0), (S,)),
    ],
    "linalg.norm": [
        (lambda a: np.linalg.norm(a, 2), (B,)), (lambda a: np.linalg.norm(a, "nuc", axis=(0, 2), keepdims=True), (T,)),
        (lambda a: np.linalg.norm(a, -2, (1, 2)), (T,)),
    ],
    "linalg.eig": [(lambda a: np.linalg.eig(a * (1 + 2j)), (S[0],))],
    "linalg.eigvals": [(lambda a: np.linalg.eigvals(a + 1j), (S,))],
    "sort_complex": [(lambda a: np.sort_complex(a), (X,)), (lambda a: np.sort_complex(a[::-1] + 1j), (X,))],
    "fft.fft": [
        (lambda a: np.fft.fft(a), (X,)), (lambda a: np.fft.fft(a, 10, axis=0, norm="ortho"), (B,)),
        (lambda a: np.fft.fft(a.astype(np.float32)).imag, (T,)),
    ],
    "fft.ifft": [(lambda a: np.fft.ifft(np.fft.fft(a, axis=1), axis=1).real, (T,))],
    "fft.rfft": [(lambda a: np.fft.rfft(a), (X,)), (lambda a: np.fft.rfft(a, n=7, axis=0), (B,))],
    "fft.irfft": [(lambda a: np.fft.irfft(np.fft.rfft(a)), (X,)), (lambda a: np.fft.irfft(a + 1j, n=7, axis=-2), (B,))],
    "fft.hfft": [(lambda a: np.fft.hfft(a - 2j), (X,))],
    "fft.ihfft": [(lambda a: np.fft.ihfft(a, axis=0), (B,))],
    "fft.fftn": [(lambda a: np.fft.fftn(a), (T,)), (lambda a: np.fft.fftn(a, s=(2, 8), axes=(0, 2)), (T,))],
    "fft.ifftn": [(lambda a: np.fft.ifftn(a), (B,))],
    "fft.fft2": [(lambda a: np.fft.fft2(a), (T,)), (lambda a: np.fft.fft2(a, s=(4, 4)), (B,))],
    "fft.ifft2": [(lambda a: np.fft.ifft2(np.fft.fft2(a) * 2).real, (B,))],
    "fft.rfftn": [(lambda a: np.fft.rfftn(a), (T,))],
    "fft.rfft2": [(lambda a: np.fft.rfft2(a, axes=(1, 0)), (B,))],
    "fft.irfftn": [(lambda a: np.fft.irfftn(np.fft.rfftn(a)), (T,))],
    "fft.irfft2": [(lambda a: np.fft.irfft2(a + 1j, s=(6, 5)), (B,))],
    "sort": [
        (lambda a: np.sort(a), (B,)), (lambda a: np.sort(a[::-1], axis=0, kind="stable"), (B,)),
        (lambda a: np.sort(a, axis=None), (T,)), (lambda a: np.sort(a * a), (X,)),
    ],
    "argsort": [(lambda a: np.argsort(a, axis=0), (B,)), (lambda a: a.argsort(), (X,)), (lambda a: a[np.argsort(-a)], (X,))],
    "partition": [(lambda a: np.partition(a, 9), (X,)), (lambda a: np.partition(a, (1, 3), axis=0)[1], (B,))],
    "argpartition": [(lambda a: np.argpartition(a, 5)[:5], (X,)), (lambda a: a.argpartition(1, axis=None), (B,))],
    "lexsort": [(lambda a: np.lexsort((a, np.round(a))), (X,)), (lambda a: np.lexsort(a, axis=0), (T,))],
    "searchsorted": [
        (lambda a, v: np.searchsorted(np.sort(a), v, side="right"), (X, B)), (lambda a: np.sort(a).searchsorted(0.5), (X,)),
        (lambda a, v: np.searchsorted(a, v, sorter=np.argsort(a)), (X, B)),
    ],
    "digitize": [(lambda a: np.digitize(a, [-1, 0, 1.5]), (B,)), (lambda a: np.digitize(a[0], np.arange(3.0), right=True), (X,))],
    "isin": [(lambda a: np.isin(a, [1, 2, 5]), (COUNTS,)), (lambda a: np.isin(a, a[:3], invert=True), (X,))],
    "median": [(lambda a: np.median(a), (X,)), (lambda a: np.median(a, axis=(0, 2), keepdims=True), (T,))],
    "nanmedian": [(lambda a: np.nanmedian(np.where(a > 1, np.nan, a), axis=0), (B,))],
    "percentile": [(lambda a: np.percentile(a, 95), (X,)), (lambda a: np.percentile(a, [5, 50], axis=1, method="lower"), (B,))],
    "quantile": [(lambda a, q: np.quantile(a, q, axis=0), (B, np.array([[0.1, 0.5], [0.7, 1.0]])))],
    "nanpercentile": [(lambda a: np.nanpercentile(a, 30, axis=-1, keepdims=True), (T,))],
    "nanquantile": [(lambda a: np.nanquantile(a, 0.25), (T,))],
    "histogram": [
        (lambda a: np.histogram(a), (X,)), (lambda a, w: np.histogram(a, 5, range=(-1, 1), weights=w, density=True), (X, X * X)),
        (lambda a: np.histogram(a, bins=[-2, 0, 0.5, 3])[0], (B,)),
    ],
    "histogram_bin_edges": [(lambda a: np.histogram_bin_edges(a, 4), (X,))],
    "histogram2d": [(lambda a: np.histogram2d(a, a * a, bins=(3, 4)), (X,)), (lambda a: np.histogram2d(a, -a, 3)[0], (X,))],
    "bincount": [(lambda a: np.bincount(a, minlength=9), (COUNTS,)), (lambda a: np.bincount(a, a * 0.5, minlength=12), (COUNTS,))],
    "interp": [(lambda a: np.interp(a, [-1.0, 0.0, 2.0], [3, 4, 9]), (B,)), (lambda a: np.interp(a[0], np.sort(a), a), (X,))],
    "convolve": [(lambda a: np.convolve(a, [1, 2, 3]), (X,)), (lambda a: np.convolve(a[:3], a, mode="same"), (X,))],
    "correlate": [(lambda a: np.correlate(a, a[:5]), (X,)), (lambda a: np.correlate(a, a[:5], "full"), (X,))],
    "packbits": [(lambda a: np.packbits(a), (BITS,)), (lambda a: np.packbits(a > 0, axis=1, bitorder="little"), (B,))],
    "unpackbits": [(lambda a: np.unpackbits(a), (BITS,)), (lambda a: np.unpackbits(a, axis=0), (BITS,))],
}


def assert_same(got: Any, want: Any) -> None:
    """The same bits, the same types of arrays, scalars and tuples."""
    assert type(got) is type(want)
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want):
            assert_same(one, other)
    else:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got, want)


def test_every_row_has_a_sample() -> None:
    assert {row.path for row in rows()} == set(SAMPLES)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("backend", ["cpu", "numpy", "reference"])
@pytest.mark.parametrize("path", SAMPLES)
def test_called_out_is_what_numpy_gives(path: str, backend: str) -> None:
    for function, arrays in SAMPLES[path]:
        compiled = dg.compile(function, backend=backend, fullgraph=True)
        want = function(*arrays)
        for _ in range(2):
            assert_same(compiled(*arrays), want)
        assert (compiled.stats.hits, compiled.stats.refusals, compiled.stats.fallbacks) == (1, 0, 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layout", ["C", "F", "permuted", "apart"])
@pytest.mark.parametrize("path", SAMPLES)
def test_results_lie_in_memory_as_numpys(path: str, layout: str) -> None:
    for function, arrays in SAMPLES[path]:
        given = [LAYOUTS[layout](a) if a.ndim > 1 else a for a in arrays]
        got, want = dg.compile(function, backend="reference")(*given), function(*given)
        for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want))):
            assert strides_of(one) == strides_of(other)


def strides_of(array: Any) -> list[int]:
    """Those that mean something."""
    return [s for s, d in zip(array.strides, array.shape) if d > 1] if array.size else []


def test_sizes_that_change_are_one_program() -> None:
    def spread(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.sort(x)[::-1] * np.median(x) + np.convolve(x, y, "same") + np.interp(x, np.sort(x), x)

    compiled = dg.compile(spread)
    for n in (10, 11, 50, 7):
        x = RNG.normal(size=n)
        assert_same(compiled(x, x[:3]), spread(x, x[:3]))
    assert compiled.stats.entries == 2


@pytest.mark.parametrize("backend", ["cpu", "numpy"])
def test_what_raises_is_refused_before_anything_happened(backend: str) -> None:
    def update(x: np.ndarray, a: np.ndarray, log: list[int]) -> np.ndarray:
        x += 1
        log.append(1)
        inverse = np.linalg.inv(a)
        x[0] = 5
        return inverse @ x

    compiled = dg.compile(update, backend=backend)
    x, log = np.zeros(3), []
    compiled(x, np.eye(3), log)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        compiled(x, np.zeros((3, 3)), log)
    assert (compiled.stats.refusals, log, x.tolist()) == (1, [1, 1], [6, 2, 2])
    assert compiled(x, np.eye(3), log).tolist() == [5, 3, 3]
    assert compiled.stats.hits == 1


@pytest.mark.parametrize("backend", ["cpu", "numpy", "reference"])
@pytest.mark.parametrize("function", [lambda x: np.nanmedian(x + 1), lambda x: np.nanpercentile(x[None], [10, 50], axis=1)])
def test_warnings_are_those_of_the_plain_call(function: Callable[..., Any], backend: str) -> None:
    compiled = dg.compile(function, backend=backend)
    compiled(X)
    bad = np.full_like(X, np.nan)
    with pytest.warns(RuntimeWarning, match="All-NaN slice") as wanted:
        want = function(bad)
    for _ in range(2):
        with pytest.warns(RuntimeWarning) as given:
            assert_same(compiled(bad), want)
        assert [(w.filename, w.lineno, str(w.message)) for w in given] == [(w.filename, w.lineno, str(w.message)) for w in wanted]
    assert (compiled.stats.hits, compiled.stats.refusals) == (0, 2)
    assert_same(compiled(X), function(X))


def test_what_a_program_calls_is_the_function_that_was_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what somebody put in its place since."""
    solve = np.linalg.solve
    before = dg.compile(lambda a, b: solve(a, b))
    want = before(SPD[0], X[:4])
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: b * 100)
    after = dg.compile(lambda a, b: solve(a, b) + 0)
    assert_same(before(SPD[0], X[:4]), want)
    assert_same(after(SPD[0], X[:4]), want)
    assert before.stats.hits == 1


def test_a_result_that_nobody_uses_raises_all_the_same() -> None:
    @dg.compile
    def solve_for_nothing(a: np.ndarray) -> np.ndarray:
        np.linalg.inv(a)
        return a + 1

    solve_for_nothing(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        solve_for_nothing(np.ones((2, 2)))


def test_what_is_not_as_foreseen_runs_plainly() -> None:
    """Residuals are there only where the rank is full; a bincount may be longer than its minlength."""
    fit = dg.compile(lambda a, b: np.linalg.lstsq(a, b, rcond=None))
    count = dg.compile(lambda x: np.bincount(x, minlength=3))
    for a in (B, np.ones((6, 4))):
        for one, other in zip(fit(a, X[:6]), np.linalg.lstsq(a, X[:6], rcond=None)):
            np.testing.assert_array_equal(one, other)
    for x in (np.array([0, 1, 1]), np.array([5, 1, 1])):
        assert_same(count(x), np.bincount(x, minlength=3))
    assert (fit.stats.refusals, count.stats.refusals) == (1, 1)


def test_several_results_are_one_call() -> None:
    compiled = dg.compile(lambda a: np.linalg.svd(a, full_matrices=False))
    compiled(B)
    steps = lower_graph(compiled.last_graph).steps
    assert [step.results for step in steps if isinstance(step, ExternalCall)] == [(0, 1, 2)]


@pytest.mark.parametrize("method", ["sort", "partition"])
def test_sorting_in_place(method: str) -> None:
    def arrange(x: np.ndarray) -> np.ndarray:
        view = x[::2]
        getattr(view, method)(*(() if method == "sort" else (3,)))
        return view + x[0]

    compiled = dg.compile(arrange, fullgraph=True)
    for _ in range(2):
        x, y = X.copy(), X.copy()
        assert_same(compiled(x), arrange(y))
        assert_same(x, y)


def test_the_graph_says_what_it_calls() -> None:
    compiled = dg.compile(lambda a: np.linalg.svd(a, full_matrices=False).S)
    compiled(B)
    assert "np.linalg.svd(a, False)[1]" in table(compiled.last_graph)


def test_numbers_of_python_are_weak() -> None:
    """The result's dtype is the array's, as NumPy gets the number as it is."""

    def quantiles(a: np.ndarray, q: float) -> Any:
        method = "averaged_inverted_cdf"
        return np.quantile(a, 0.25, method=method), np.percentile(a, q, method=method), np.quantile(a, [0.5, 1.0], method=method)

    compiled = dg.compile(quantiles)
    for dtype in (np.float32, np.float64):
        for q in (40.0, 50.0, 60.0):
            a = X.astype(dtype)
            for given, expected in zip(compiled(a, q), quantiles(a, q)):
                assert_same(given, expected)


def test_parameters_of_numpy_may_be_named_as_ours() -> None:
    compiled = dg.compile(lambda a, v: (np.linalg.solve(a=a, b=v), np.dot(a=a, b=v), a.dot(b=v), np.linalg.lstsq(a, b=v)[0]))
    given, v = compiled(SPD[0], X[:4]), X[:4]
    for got, expected in zip(given, (np.linalg.solve(SPD[0], v), SPD[0] @ v, SPD[0] @ v, np.linalg.solve(SPD[0], v))):
        np.testing.assert_allclose(got, expected, rtol=1e-8)
    assert compiled.stats.fallbacks == 0
