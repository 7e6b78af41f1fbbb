"""``mode="reduce-overhead"`` on a real device where there is one, else on the stand-in's: graphs are recorded, and right."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.cuda import driver
from dynagraph.backends.cuda.replay import Replayer
from tests.cuda.products import QueuedProducts

RNG = np.random.default_rng(0)
X, Y, W, V = (RNG.standard_normal(shape) for shape in ((6, 12), (6, 12), (12, 7), (7, 3)))


@pytest.fixture(autouse=True)
def device(cp: Any) -> Iterator[Any]:
    if hasattr(cp, "machine"):
        driver.install(cp, QueuedProducts(cp))
    with dg.config.override(stay_eager=False):
        yield cp
    driver.install(cp, None)
    gc.collect()  # what programs have recorded is theirs


def replayer_of(compiled: Any) -> Replayer:
    (program,) = compiled.programs
    return program.executable.call.replayer  # type: ignore[no-any-return]


def scaled(x: Any, y: Any) -> Any:
    centred = x - (x * y).sum(axis=0)
    return centred / (centred * centred).sum(axis=1, keepdims=True)


def perceptron(x: Any, w: Any, v: Any) -> Any:
    return np.tanh(x @ w) @ v + 1


def of_columns(x: Any, w: Any) -> Any:
    return (w.T @ x.T) * 2, np.maximum(x.T @ x, 0)


def of_many(x: Any, w: Any) -> Any:
    return (x @ w).sum(axis=0) * 2


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "kernels": (scaled, (X, Y)),
    "products": (perceptron, (X, W, V)),
    "products of float32": (perceptron, (X.astype("f"), W.astype("f"), V.astype("f"))),
    "products of complex numbers": (perceptron, (X + 1j * Y, W + 0j, V - 1j * V)),
    "transposed products": (of_columns, (X, W)),
    "many products": (of_many, (np.stack([X, Y, X - Y]), W)),
}


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        rtol = 1e-4 if other.dtype.char in "fF" else 1e-10
        np.testing.assert_allclose(one.get(), other, rtol, rtol)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_calls_are_recorded_and_right(cp: Any, name: str) -> None:
    function, values = CASES[name]
    compiled = dg.compile(function, mode="reduce-overhead")
    arrays = [cp.asarray(v) for v in values]
    for _ in range(6):
        same(compiled(*arrays), function(*values))
    arrays[0] *= 2  # read anew
    same(compiled(*arrays), function(values[0] * 2, *values[1:]))
    replayer = replayer_of(compiled)
    assert replayer.failure is None and replayer.recordings >= 1 and replayer.replays >= 1
    assert compiled.stats.fallbacks == 0


def test_streams_and_threads_have_graphs_of_their_own(cp: Any) -> None:
    compiled = dg.compile(perceptron, mode="reduce-overhead")
    arrays = [cp.asarray(v) for v in (X, W, V)]
    errors: list[BaseException] = []

    def calls() -> None:
        try:
            for _ in range(5):
                same(compiled(*arrays), perceptron(X, W, V))
        except BaseException as error:
            errors.append(error)

    calls()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        calls()
        stream.synchronize()
    thread = threading.Thread(target=calls)
    thread.start()
    thread.join()
    replayer = replayer_of(compiled)
    assert not errors and replayer.failure is None and replayer.recordings >= 3


def test_results_that_are_held_stay(cp: Any) -> None:
    compiled = dg.compile(perceptron, mode="reduce-overhead")
    arrays = [cp.asarray(v) for v in (X, W, V)]
    results = []
    for k in range(8):
        arrays[0][...] = k
        results.append(compiled(*arrays))
    for k, result in enumerate(results):
        same(result, perceptron(np.full_like(X, k), W, V))


def test_updates_in_place(cp: Any) -> None:
    def step(w: Any, x: Any, y: Any) -> Any:
        error = x @ w - y
        w -= 0.01 * (x.T @ error)
        return (error * error).sum()

    compiled = dg.compile(step, mode="reduce-overhead")
    mine, x, y, wanted = cp.asarray(W), cp.asarray(X), cp.asarray(Y[:, :7]), W.copy()
    for _ in range(6):
        np.testing.assert_allclose(float(compiled(mine, x, y)), step(wanted, X, Y[:, :7]), 1e-10)
        np.testing.assert_allclose(mine.get(), wanted, 1e-10)
    assert replayer_of(compiled).failure is None and replayer_of(compiled).replays >= 1


def test_programs_that_call_other_functions_are_not_recorded(cp: Any) -> None:
    compiled = dg.compile(lambda x: abs(cp.fft.rfft(x * 2)) + 1, mode="reduce-overhead")
    x = cp.asarray(X)
    for _ in range(5):
        same(compiled(x), abs(np.fft.rfft(X * 2)) + 1)
    assert replayer_of(compiled).recordings == 0
