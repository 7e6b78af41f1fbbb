"""Where CuPy is not NumPy: what is followed as CuPy has it, and what breaks, with which reason."""

from __future__ import annotations

import enum
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.errors import BackendError, CaptureError
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.harness import assert_same, check, put

pytestmark = pytest.mark.sampled(6)

X = np.arange(12.0).reshape(3, 4)

BREAKS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "get": ("unsupported-function", lambda cp, x: x.get().sum()),
    "asnumpy": ("unsupported-", lambda cp, x: cp.asnumpy(x) + 1),
    "float": ("data-dependent", lambda cp, x: float(x.sum())),
    "int": ("data-dependent", lambda cp, x: int(x.sum())),
    "bool": ("array-branch", lambda cp, x: x + 1 if x.sum() > 0 else x),
    "item": ("unsupported-function", lambda cp, x: x[0, 0].item()),
    "tolist": ("unsupported-function", lambda cp, x: x.tolist()),
    "mask": ("data-dependent", lambda cp, x: x[x > 3]),
    "mask of another": ("data-dependent", lambda cp, x: cp.where(x > 3)),
    "flags": ("unsupported-function", lambda cp, x: (x + 1).flags.c_contiguous),
    "strides": ("unsupported-function", lambda cp, x: x.strides),
    "device": ("unsupported-function", lambda cp, x: x.device.id),
    "pointer": ("unsupported-function", lambda cp, x: x.data.ptr > 0),
    "random": ("unsupported-", lambda cp, x: cp.random.rand(3).shape[0] + x),
    "clip": ("unsupported-", lambda cp, x: cp.clip(x, 2, 5)),
    "half power": ("unsupported-argument", lambda cp, x: x**0.5),
    "float steps": ("unsupported-argument", lambda cp, x: cp.arange(0, 1, 0.25) + x[0]),
    "reduce": ("unsupported-function", lambda cp, x: np.add.reduce(x)),
    "copyto": ("unsupported-function", lambda cp, x: np.copyto(x, 1)),
    "sort": ("unsupported-function", lambda cp, x: x.sort()),
    "ufunc dtype": ("unsupported-argument", lambda cp, x: cp.add(x, 1, dtype=np.float32)),
    "list operand": ("unsupported-argument", lambda cp, x: x[0] + [1, 2, 3, 4]),
    "number for an array": ("unsupported-argument", lambda cp, x: cp.dot(x, 2)),
    "condition that is a bool": ("unsupported-argument", lambda cp, x: cp.where(True, x, x)),
    "no such parameter": ("numpy-error", lambda cp, x: cp.sum(x, where=x > 1)),
    "numpys parameter": ("numpy-error", lambda cp, x: np.sum(x, initial=3)),
    "reduction in fortran order": ("unsupported-argument", lambda cp, x: x.reshape(3, 2, 2).T.sum(axis=0)),
    "axis of an array of no axes": ("unsupported-argument", lambda cp, x: x.sum().max(axis=0)),
    "reshape that copies": ("", lambda cp, x: x.T.reshape(-1) + 1),
    "text": ("unsupported-value", lambda cp, x: f"{x.sum()}"),
    "imag of reals": ("unsupported-function", lambda cp, x: x.imag),
    "zeros of numpys": ("mixed-libraries", lambda cp, x: x * np.zeros(4)),
    "numpys array before": ("mixed-libraries", lambda cp, x: np.ones(4) + x),
    "numpys constant": ("mixed-libraries", lambda cp, x: x + NUMPYS),
    "list of numpys": ("mixed-libraries", lambda cp, x: np.asarray([1.0, 2.0]).sum() + x),
}
NUMPYS = np.arange(4.0)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", BREAKS)
def test_what_is_not_captured_breaks(cp: Any, name: str) -> None:
    """The result is that of the plain call, and capture goes on behind it."""
    reason, function = BREAKS[name]

    def f(x: Any) -> Any:
        y = x * 2
        z = function(cp, y)
        return z, y + 1

    compiled = check(cp, f, X, whole=False)
    assert not reason or any(f"[{reason}" in text for text in compiled.stats.breaks), dict(compiled.stats.breaks)


def test_errors_are_cupys(cp: Any) -> None:
    for function in (lambda x: x + np.ones(4), lambda x: np.asarray(x), lambda x: cp.add(x, [1]), lambda x: cp.sum(x, where=x > 1)):
        with pytest.raises((TypeError, ValueError)):
            function(put(cp, X))
        check(cp, function, X, whole=False)


def test_results_of_reductions_are_arrays(cp: Any) -> None:
    def f(x: Any) -> Any:
        total = x.sum()
        return total, type(total) is cp.ndarray, isinstance(total, np.ndarray), isinstance(x, cp.ndarray), total.ndim, total * 2

    compiled = check(cp, f, X)
    result = compiled(put(cp, X))
    assert type(result[0]) is cp.ndarray and result[1:5] == (True, False, True, 0)


def test_an_element_is_a_view(cp: Any) -> None:
    def f(x: Any) -> Any:
        first = x[0, 0]
        x[0, 0] = 7
        first += 1
        return first

    check(cp, f, X)


def test_get_array_module_is_followed(cp: Any) -> None:
    def softplus(x: Any) -> Any:
        xp = cp.get_array_module(x)
        return xp.maximum(0, x) + xp.log1p(xp.exp(-abs(x)))

    compiled = dg.compile(softplus, fullgraph=True)
    for _ in range(2):
        assert_same(cp, compiled(put(cp, X)), softplus(put(cp, X)))
        np.testing.assert_allclose(compiled(X), softplus(X))
    assert compiled.stats.compiles == 2


def test_numpy_scalars(cp: Any) -> None:
    def f(x: Any, s: Any) -> Any:
        return x * s + np.float64(2) * s

    check(cp, f, X, np.float64(0.5))
    check(cp, f, X.astype(np.float32), np.float32(0.5), whole=False)
    check(cp, lambda x, s: (x * s, s * 3), X, np.float64(1.5))
    check(cp, lambda x, s: cp.where(x > 1, x, s), X, np.float64(1.5), breaks="unsupported-argument")
    compiled = check(cp, lambda x, s: x * s, X.astype(np.float32), np.float64(0.5), whole=False)
    assert any("decides the dtype" in text for text in compiled.stats.breaks)


class Colour(enum.IntEnum):
    RED = 2


def test_numbers_of_a_class_of_their_own(cp: Any) -> None:
    for number in (Colour.RED, type("Count", (int,), {})(3)):
        check(cp, lambda x, number=number: (x * number, x[number]), X, whole=False)


def test_python_numbers_of_the_program(cp: Any) -> None:
    check(cp, lambda x: (np.sqrt(2.0), x.shape[0] / 2, x + x.shape[1]), X)


def test_a_break_inside_a_loop_and_inside_a_call(cp: Any) -> None:
    def inner(x: Any) -> Any:
        return x + float(x.max())

    def f(x: Any) -> Any:
        for _ in range(3):
            x = inner(x) * 2
            if float(x.sum()) > 1e6:
                break
        return cp.exp(-x)

    check(cp, f, X, whole=False)


def test_fullgraph_says_why(cp: Any) -> None:
    with pytest.raises(CaptureError, match="NumPy arrays are mixed with CuPy arrays"):
        dg.compile(lambda x, y: x + y, fullgraph=True)(put(cp, X), X)


def test_an_older_cupy_runs_plainly(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp, "__version__", "13.4.1")
    compiled = dg.compile(lambda x: cp.exp(x) + 1)
    assert_same(cp, compiled(put(cp, X)), cp.exp(put(cp, X)) + 1)
    assert any("CuPy 14 and newer" in text for text in compiled.stats.breaks)
    made = dg.compile(lambda: cp.zeros(3) + 1)
    assert_same(cp, made(), cp.zeros(3) + 1)
    assert not made.stats.hits


@pytest.mark.parametrize("backend", ["cpu", "numpy", "reference", "c"])
def test_every_backend_leaves_them_on_the_device(cp: Any, backend: str) -> None:
    check(cp, lambda x: (cp.exp(x).sum(axis=1), x.T), X, backend=backend)


def test_a_backend_of_the_users(cp: Any) -> None:
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.extend(inputs)
        return lambda x: (x + 1,)

    compiled = dg.compile(lambda x: x + 1, backend=backend)
    assert_same(cp, compiled(put(cp, X)), put(cp, X) + 1)
    assert type(seen[0]) is cp.ndarray and seen[0].shape == (3, 4)


def test_a_program_that_the_library_does_not_run_leaves_the_call(op_by_op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raises, or gives of another dtype, is a refusal, counted, and the plain run's result."""
    cp = op_by_op
    compiled = dg.compile(lambda x: cp.exp(x) * 2)
    x = put(cp, X)
    expected = cp.exp(x) * 2
    calls = []

    def refuse(*args: Any) -> Any:
        calls.append(args)
        raise BackendError("no")

    compiled(x)
    with monkeypatch.context() as patch:
        patch.setattr("dynagraph.backends.device._check", refuse)
        assert_same(cp, compiled(x), expected)
    assert calls and compiled.stats.refusals == 1
    assert_same(cp, compiled(x), expected)


def test_a_random_generator_before_and_behind(cp: Any) -> None:
    def f(x: Any, rng: Any) -> Any:
        return rng.normal() + x * rng.normal(), x + 1

    compiled = dg.compile(f)
    for seed in range(2):
        ours, plain = np.random.default_rng(seed), np.random.default_rng(seed)
        assert_same(cp, compiled(put(cp, X), ours), f(put(cp, X), plain))
        assert ours.random() == plain.random()


def test_nothing_happens_without_cupy() -> None:
    """It is not imported, and NumPy's programs are what they were."""
    code = """
        import sys
        import numpy as np, dynagraph as dg
        f = dg.compile(lambda x: np.exp(x).sum(), backend="reference", fullgraph=True)
        assert f(np.ones(3)) == np.exp(np.ones(3)).sum()
        assert "cupy" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_a_name_like_cupys_that_is_not_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", type(sys)("cupy"))
    compiled = dg.compile(lambda x: np.exp(x), backend="reference", fullgraph=True)
    np.testing.assert_array_equal(compiled(X), np.exp(X))


def test_the_stand_in_is_none_of_numpys() -> None:
    assert not issubclass(stand_in.ndarray, np.ndarray)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(stand_in.fresh(X))


LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "sum of two": lambda cp, x: x.T + x.T,
    "function": lambda cp, x: cp.exp(x.T),
    "conversion": lambda cp, x: x.T.astype(np.float32),
    "zeros_like": lambda cp, x: cp.zeros_like(x.T),
    "full_like": lambda cp, x: cp.full_like(x.T, 3),
    "copy": lambda cp, x: cp.copy(x.T),
    "method copy": lambda cp, x: x.T.copy(),
    "array": lambda cp, x: cp.array(x.T),
    "flatten": lambda cp, x: x.T.flatten(),
    "ravel": lambda cp, x: x.T.ravel(),
    "product": lambda cp, x: x.T @ x,
    "where": lambda cp, x: cp.where(x.T > 1, x.T, 0),
    "concatenate": lambda cp, x: cp.concatenate([x.T, x.T]),
    "roll": lambda cp, x: cp.roll(x.T, 1, axis=0),
    "kept dimensions": lambda cp, x: x.T.sum(axis=0, keepdims=True),
    "accumulate": lambda cp, x: cp.cumsum(x.T, axis=0),
    "power": lambda cp, x: x.T**2,
    "logic": lambda cp, x: cp.logical_and(x.T, x.T),
    "integers": lambda cp, x: x.T.astype(int) // 2,
    "tril": lambda cp, x: cp.tril(x.T),
    "mean": lambda cp, x: x.T.mean(),
}


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_orders_that_are_asked_for(cp: Any, order: str) -> None:
    def f(x: Any) -> Any:
        return x.T.astype(np.float32, order=order), x.T.copy(order), cp.zeros_like(x.T, order=order), cp.copy(x[:, ::2].T, order)

    check(cp, f, X)


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_lies_in_another_order_than_c(cp: Any, name: str) -> None:
    """New arrays lie where CuPy puts them, or the call breaks."""
    check(cp, lambda x: (LAYOUTS[name](cp, x), x + 1), X, whole=False)
