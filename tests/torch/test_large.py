"""Operations on large tensors: by kernels, and with the bits of NumPy where these are compiled beside the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph._core import _dispatch
from dynagraph.backends import toolchain
from dynagraph.driver.background import WORK
from dynagraph.ir.ops import OPS
from dynagraph.torch.core import large
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.terms import FORWARD
from tests.ops.evaluate import assert_same

pytestmark = pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")
N = large.LARGE
ROWS = {"axis": (1,), "keepdims": False}
# of the exact primitives those that are no rows of the op table, by what follows the array
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "argmax": ((), {"dim": 1, "keepdims": False}),
    "argmin": ((), {"dim": 1, "keepdims": False}),
    "clamp": ((), {"low": -0.5, "high": 0.5}),
    "clamp_both": (("x", "y"), {}),
    "clamp_max": (("y",), {}),
    "clamp_min": (("y",), {}),
    "copy": ((), {}),
    "cumsum": ((), {"axis": 1}),
    "hardshrink": ((), {"width": 0.5}),
    "hardsigmoid": ((), {}),
    "hardswish": ((), {}),
    "hardtanh": ((), {"low": -0.5, "high": 0.5}),
    "leaky_relu": ((), {"slope": 0.01}),
    "masked_fill_number": (("mask",), {"value": 2.5}),
    "mean": ((), ROWS),
    "mean_all": ((), {"axis": (0, 1), "keepdims": False}),
    "mse_loss": (("y",), {"mode": "mean"}),
    "power_by_products": ((), {"exponent": 3.0}),
    "relu": ((), {}),
    "rsqrt": ((), {}),
    "rsub": (("y",), {}),
    "softshrink": ((), {"width": 0.5}),
    "std": ((), {**ROWS, "correction": 1}),
    "sum": ((), {"axis": (0,), "keepdims": False}),
    "sum_all": ((), {"axis": (0, 1), "keepdims": False}),
    "threshold": ((), {"threshold": 0.1, "value": 7.0}),
    "var": ((), {**ROWS, "correction": 1}),
}


def arrays(dtype: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found = {name: rng.normal(size=2000).astype(dtype).reshape(40, 50) for name in "xy"}
    found["x"][0, :6] = [0.0, -0.0, 1e-8, 1.0, -1.0, 0.5]
    found["y"][1, :6] = [0.0, -0.0, 1e-8, 1.0, -1.0, 0.5]
    return {**found, "w": found["x"][3].copy(), "p": np.abs(found["y"][3]), "mask": found["y"] > 0}


def test_every_exact_primitive_is_looked_at() -> None:
    assert set(CALLS) == large._EXACT
    assert large._EXACT.isdisjoint(large._INEXACT) and set(PRIMITIVES) | set(OPS) >= large._EXACT | large._INEXACT


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_kernels_of_exact_primitives_have_the_bits_of_numpy(dtype: Any) -> None:
    given = arrays(dtype)

    def compute(x: Any, **others: Any) -> list[Any]:
        found = []
        for name, (operands, attrs) in CALLS.items():
            found.append(FORWARD[name](x, *(x if o == "x" else others[o] for o in operands), **attrs))
        return found

    with np.errstate(all="ignore"):
        compiled, plain = dg.compile(compute, mode="max", fullgraph=True)(**given), compute(**given)
    for got, want in zip(compiled, plain, strict=True):
        for a, b in zip(*((part,) if not isinstance(part, tuple) else part for part in (got, want)), strict=True):
            assert_same(np.asarray(a), np.asarray(b))


def same_for_ever(operation: Callable[[], Any]) -> np.ndarray:
    """What an operation gives: the same at first, while its kernel is in the making, and by the kernel."""
    first = operation().numpy()
    for _ in range(4):
        WORK.wait()
        assert operation().numpy().tobytes() == first.tobytes()
    return first


def test_results_do_not_depend_on_when_a_kernel_was_compiled() -> None:
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.normal(size=N).astype(np.float32)) for _ in range(2))
    rows = x.reshape(-1, 64)
    operations: list[Callable[[], Any]] = [
        lambda: x + y, lambda: torch.relu(x), lambda: x.sum(), lambda: rows.mean(dim=0), lambda: torch.tanh(x),
        lambda: torch.nn.functional.layer_norm(rows, (64,)), lambda: torch.softmax(rows, 1), lambda: rows * rows[:, :1],
    ]  # fmt: skip
    kernels = large.kernels()
    before = kernels["tanh"].stats.hits if "tanh" in kernels else 0  # of other tests
    for operation in operations:
        same_for_ever(operation)
    stats = large.kernels()
    assert stats["add"].stats.compiles and stats["tanh"].stats.hits >= before + 4 and stats["tanh"].stats.stayed_eager == 0


def gradient_of(function: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    def run() -> Any:
        x.grad = None
        function(x).backward()
        return x.grad

    return run


def test_gradients_of_large_tensors_are_those_of_small_ones() -> None:
    values = np.random.default_rng(0).normal(size=N).astype(np.float32)
    functional = torch.nn.functional
    functions = (
        lambda v: v.tanh().sum(), lambda v: torch.relu(v).sum(), lambda v: (v * v / 2 - v).sum(),
        lambda v: functional.gelu(v).sum(), lambda v: functional.hardswish(v * 3).sum(), lambda v: functional.elu(v, 0.5).sum(),
    )  # fmt: skip
    for function in functions:
        x, some = (torch.from_numpy(part.copy()).requires_grad_() for part in (values, values[:1000]))
        found = same_for_ever(gradient_of(function, x))
        assert np.allclose(found[:1000], gradient_of(function, some)().numpy(), rtol=1e-5, atol=1e-6)
    made = large.kernels()
    for name in ("relu", "gelu", "hardswish", "elu"):
        assert made[f"{name}_backward"].stats.compiles and not made[f"{name}_backward"].stats.breaks


LOSSES: dict[str, Callable[[Any, Any, str], Any]] = {
    "mse_loss": lambda x, y, mode: torch.nn.functional.mse_loss(x, y, reduction=mode),
    "smooth_l1_loss": lambda x, y, mode: torch.nn.functional.smooth_l1_loss(x, y, reduction=mode, beta=0.5),
    "huber_loss": lambda x, y, mode: torch.nn.functional.huber_loss(x, y, reduction=mode, delta=0.7),
}


@pytest.mark.parametrize("mode", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_losses_by_pairs_are_one_pass_each(name: str, mode: str) -> None:
    """By either operand; parts that are small give the same."""
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(2 * N,)).astype(np.float32) for _ in range(2)]
    pairs = [[torch.from_numpy(a.copy()).requires_grad_() for a in given] for _ in range(2)]
    LOSSES[name](*pairs[0], mode).sum().backward()
    for k in range(0, 2 * N, N // 2):
        part = LOSSES[name](*(t[k : k + N // 2] for t in pairs[1]), mode).sum()
        (part / 4 if mode == "mean" else part).backward()
    WORK.wait()
    for ours, parts in zip(*pairs, strict=True):
        np.testing.assert_allclose(ours.grad.numpy(), parts.grad.numpy(), rtol=2e-6, atol=1e-12)
    assert {f"{name}_backward_by_x", f"{name}_backward_by_y"} <= set(large.kernels())


def test_in_place_arithmetic_keeps_memory_versions_and_errors() -> None:
    values = np.random.default_rng(0).normal(size=(N // 64, 64)).astype(np.float32)
    for change, plain in (
        (lambda x, y: x.add_(y), lambda a, b: a + b),
        (lambda x, y: x.sub_(y, alpha=0.1), lambda a, b: a - b * 0.1),
        (lambda x, y: x.mul_(3), lambda a, b: a * 3),
        (lambda x, y: x.div_(y[:1]), lambda a, b: a / b[:1]),
        (lambda x, y: x.add_(x), lambda a, b: a + a),
        (lambda x, y: x[::2].mul_(y[::2]), lambda a, b: np.where(np.arange(len(a))[:, None] % 2, a, a * b)),
    ):
        for _ in range(3):
            x, y = torch.from_numpy(values.copy()), torch.from_numpy(values[::-1].copy())
            where, version = x.data_ptr(), x._version
            change(x, y)
            assert x.numpy().tobytes() == plain(values, values[::-1]).tobytes()
            assert x.data_ptr() == where and x._version == version + 1
            WORK.wait()
    w = torch.from_numpy(values.copy()).requires_grad_()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        w.add_(1)
    y = w * 1
    y.mul_(w)
    y.sum().backward()
    assert np.allclose(w.grad.numpy(), 2 * values)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(N).add_(torch.ones(2, N))


def test_small_tensors_and_captured_code_ask_for_no_kernel() -> None:
    before = {name: kernel.stats.misses + kernel.stats.hits for name, kernel in large.kernels().items()}
    x = torch.ones(N - 1)
    torch.tanh(x).add_(x)
    with dg.disable():
        torch.tanh(torch.ones(N))
    assert {name: kernel.stats.misses + kernel.stats.hits for name, kernel in large.kernels().items()} == before


def test_by_size_chooses_by_the_largest_of_numpys_arrays() -> None:
    chooses = _dispatch.by_size(lambda *a, **k: ("small", a, k), lambda *a, **k: ("large", a, k), 10, __name__)
    few, many = np.zeros(9), np.zeros((2, 5))
    assert chooses(few, 1.0, out=3) == ("small", (few, 1.0), {"out": 3})
    assert chooses(few[0], many, out=3)[0] == "large" and chooses.__module__ == __name__
    assert [chooses(*given)[0] for given in ((many, [1]), (many, "a"), (), (few, 2j))] == ["small"] * 4
    assert _dispatch.any_large((few, many), 10) and not _dispatch.any_large((few,), 10)
