"""``dg.compile(device=...)``: functions of NumPy arrays that compute elsewhere; arguments and results stay NumPy's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.cuda import driver
from dynagraph.backends.device_choice import place_on
from dynagraph.ir.machine_model import CLASSES, on_paper
from dynagraph.ir.passes.pipeline import run as run_passes
from tests.cuda.device import QueuedDevice

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((20, 30)), RNG.standard_normal((30, 10))


@pytest.fixture
def device(fake: Any) -> Iterator[QueuedDevice]:
    emulated = QueuedDevice(fake)
    driver.install(fake, emulated)
    yield emulated
    driver.install(fake, None)


def layer(x: Any, y: Any) -> Any:
    h = np.tanh(x @ y)
    return h / h.sum(axis=1, keepdims=True), h.max(axis=0)


@pytest.mark.parametrize("where", ["cuda", "cuda:0", "cuda:1"])
def test_a_function_computes_on_the_device_that_is_asked_for(device: QueuedDevice, where: str) -> None:
    compiled = dg.compile(layer, device=where, fullgraph=True)
    for _ in range(3):
        for got, want in zip(compiled(X, Y), layer(X, Y)):
            assert type(got) is np.ndarray and got.flags.owndata and got.flags.writeable
            np.testing.assert_allclose(got, want, rtol=1e-13)
    assert compiled.stats.compiles == 1 and compiled.stats.fallbacks == 0 and compiled.stats.hits == 2
    placement = compiled.programs[0].executable.artifacts["placement"]
    assert "cuda:1" in placement if where == "cuda:1" else "cuda:0" in placement
    assert dg.cuda.current_device() == 0 and device.sources


@pytest.mark.parametrize("where", ["cuda", "cuda:1", "auto"])
def test_arguments_lie_in_any_way(device: QueuedDevice, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any, y: Any) -> Any:
        return x.reshape(-1) * 2, np.cumsum(x, axis=1) + y

    slow = {"bandwidth": 1.0, "additions": dict.fromkeys(CLASSES, 1.0), "products": dict.fromkeys(CLASSES, 1.0)}
    machine = on_paper(count=2).measured({"cpu": slow})
    monkeypatch.setattr("dynagraph.backends.device_choice.machine_here", lambda backends: machine)
    compiled = dg.compile(f, device=where, fullgraph=True)
    for x in (X, np.asfortranarray(X), X.repeat(2, 1)[:, ::2], np.asfortranarray(X)[::-1]):
        for _ in range(2):
            for got, want in zip(compiled(x, np.asfortranarray(X)), f(x, X)):
                np.testing.assert_allclose(got, want)
    assert compiled.stats.fallbacks == compiled.stats.refusals == 0 and device.sources


def test_what_only_the_host_can_do_is_done_there(device: QueuedDevice) -> None:
    def f(a: Any, b: Any) -> Any:
        x = np.linalg.solve(a @ a.T + 10 * np.eye(20), b)
        return np.exp(x).sum(), np.sort(x, axis=0)

    a, b = RNG.standard_normal((20, 20)), RNG.standard_normal((20, 3))
    compiled = dg.compile(f, device="cuda", fullgraph=True)
    for _ in range(2):
        for got, want in zip(compiled(a, b), f(a, b)):
            np.testing.assert_allclose(got, want, rtol=1e-10)
    assert compiled.stats.fallbacks == 0 and device.sources


def test_arguments_are_written_to(device: QueuedDevice) -> None:
    def step(w: Any, g: Any) -> Any:
        w -= 0.1 * g
        return (w * w).sum()

    ours, plain = X.copy(), X.copy()
    compiled = dg.compile(step, device="cuda", fullgraph=True)
    for _ in range(3):
        np.testing.assert_allclose(compiled(ours, X), step(plain, X))
        np.testing.assert_allclose(ours, plain)


def test_checks_refuse_before_anything_is_written(device: QueuedDevice) -> None:
    def f(x: Any, k: Any) -> Any:
        x += 1
        return x[k]

    compiled = dg.compile(f, device="cuda")
    x, places = np.arange(5.0), np.array([0, 4])
    np.testing.assert_array_equal(compiled(x, places), [1, 5])
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(x, np.array([0, 7]))
    np.testing.assert_array_equal(x, np.arange(5.0) + 2)  # as the plain run leaves it: added to, then raised


def test_numbers_sizes_and_scalars(device: QueuedDevice) -> None:
    def f(x: Any, s: Any) -> Any:
        return (x * s).sum(), x[: len(x) // 2] + s, float(s) * 2

    compiled = dg.compile(f, device="cuda", dynamic=True)
    for n, s in ((10, 2.0), (33, -1.5), (50, 0.25)):
        x = RNG.standard_normal(n)
        for got, want in zip(compiled(x, s), f(x, s)):
            assert type(got) is type(want)
            np.testing.assert_allclose(got, want)
    assert compiled.stats.fallbacks == 0


def test_gradients(device: QueuedDevice) -> None:
    def step(w: Any, x: Any) -> Any:
        return dg.value_and_grad(lambda w: np.sum(np.tanh(x @ w) ** 2))(w)

    for got, want in zip(dg.compile(step, device="cuda", fullgraph=True)(Y, X), step(Y, X)):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_auto_leaves_small_work_to_the_host(device: QueuedDevice) -> None:
    compiled = dg.compile(layer, device="auto", fullgraph=True)
    for got, want in zip(compiled(X, Y), layer(X, Y)):
        np.testing.assert_allclose(got, want, rtol=1e-13)
    assert device.sources == [] and ", 0 copies 0, " in compiled.programs[0].executable.artifacts["placement"]


def test_auto_takes_large_products_to_a_device() -> None:
    compiled = dg.compile(lambda x, y: np.tanh(x @ y) @ y)
    compiled(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32))
    small = place_on("auto", run_passes(compiled.last_graph), on_paper())
    assert set(small.device.values()) == {"cpu"}
    compiled(np.ones((3000, 3000), np.float32), np.ones((3000, 3000), np.float32))
    large = place_on("auto", run_passes(compiled.programs[-1].graph), on_paper())
    assert {large.device[n] for n in large.graph.nodes if n.is_op("matmul")} == {"cuda:0"}
    assert [c.destination for c in large.copies] == ["cuda:0", "cuda:0", "cpu"]  # each once


def test_bad_devices(fake: Any) -> None:
    with pytest.raises(ValueError, match=r"^compile: device='gpu': expected \"cpu\", \"cuda\", \"cuda:0\", ..., \"auto\" or None$"):
        dg.compile(layer, device="gpu")
    with pytest.raises(TypeError, match=r"^compile: device=1: expected"):
        dg.compile(layer, device=1)
    with pytest.raises(dg.CudaError, match=r"device 'cuda:7': there is no such device; this process sees 2 devices"):
        dg.compile(layer, device="cuda:7")
    with pytest.raises(ValueError, match=r"with a backend of your own"):
        dg.compile(layer, device="cuda", backend=lambda graph, inputs: None)
    assert dg.compile(layer, device="cpu")(X, Y)[0].shape == (20, 10)


def test_cuda_that_is_not_there_is_said_at_once(machine: Any) -> None:
    machine.status = 100
    with pytest.raises(dg.CudaError, match=r"^compile: device='auto': the driver sees no CUDA device: .*dynagraph doctor"):
        dg.compile(layer, device="auto")
    machine.status = 0
