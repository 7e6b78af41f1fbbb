"""Sizes that a guard makes equal go by one name, and those that it makes constant by their value; other calls are not served."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph.backends.c.backend import lower_graph
from dynagraph.ir.loops import Kernel
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.shapes import ShapeEnv
from tests.sampling import examples


def whole(*shape: int) -> np.ndarray:
    """Floats that add and multiply without rounding."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float64)


def captured(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    compiled = dg.compile(function, dynamic=True, **options)
    np.testing.assert_array_equal(compiled(*args), function(*args))
    assert compiled.stats.fallbacks == 0 and compiled.stats.compiles == 1
    return compiled


def placeholders(compiled: Any) -> list[str]:
    return sorted(f"{node.name}{list(node.shape)}" for node in compiled.last_graph.placeholders)


def kernels(compiled: Any) -> list[Kernel]:
    return [step for step in lower_graph(run_passes(compiled.last_graph, lint=True)).steps if isinstance(step, Kernel)]


def test_operands_of_one_shape_are_one_flat_loop() -> None:
    compiled = captured(lambda x, y: x + y, whole(30, 50), whole(30, 50))
    assert placeholders(compiled) == ["x[s0, s1]", "y[s0, s1]"]
    (kernel,) = kernels(compiled)
    assert [str(axis.extent) for axis in kernel.axes] == ["s0 * s1"]
    for shape in [(2, 3), (7, 2), (40, 40)]:
        x, y = whole(*shape), whole(*shape) * 2
        np.testing.assert_array_equal(compiled(x, y), x + y)
    assert compiled.stats.compiles == 1


def test_a_chain_of_operands_is_one_flat_loop() -> None:
    compiled = captured(lambda x, y, z, w: (x * y, z * w, x - w), *(whole(4, 5, 6) for _ in range(4)))
    assert {axis for p in compiled.last_graph.placeholders for axis in map(str, p.shape)} == {"s0", "s1", "s2"}
    assert all([str(axis.extent) for axis in kernel.axes] == ["s0 * s1 * s2"] for kernel in kernels(compiled))


def test_a_broadcast_axis_stays_one() -> None:
    compiled = captured(lambda x, y: x + y, whole(4, 5), whole(1, 5))
    assert placeholders(compiled) == ["x[s1, s0]", "y[1, s0]"]
    np.testing.assert_array_equal(compiled(whole(1, 6), whole(1, 6)), whole(1, 6) * 2)
    np.testing.assert_array_equal(compiled(whole(3, 6), whole(1, 6)), whole(3, 6) + whole(1, 6))


@pytest.mark.parametrize("backend", ["reference", "numpy", "c"])
def test_calls_with_other_sizes_are_not_served(backend: str) -> None:
    compiled = captured(lambda x, y: x + y, whole(4, 5), whole(4, 5), backend=backend)
    for x, y in [(whole(4, 5), whole(3, 5)), (whole(4, 5), whole(4, 6)), (whole(5), whole(4, 6)), (whole(2, 3, 4), whole(2, 4))]:
        with pytest.raises(ValueError, match="could not be broadcast"):
            compiled(x, y)
    np.testing.assert_array_equal(compiled(whole(6, 7), whole(6, 7)), whole(6, 7) * 2)


def test_a_size_that_is_compared_with_a_number_is_that_number() -> None:
    def f(x, y):
        return x + y if x.shape[0] == 4 else x - y

    compiled = captured(f, whole(4, 5), whole(4, 5))
    assert placeholders(compiled) in (["x[4, s1]", "y[4, s1]"], ["x[4, s3]", "y[4, s3]"])
    assert all(type(d) is int for p in compiled.last_graph.placeholders for d in p.shape[:1])
    for shape in [(4, 6), (5, 5), (4, 4), (6, 2)]:
        np.testing.assert_array_equal(compiled(whole(*shape), whole(*shape) * 2), f(whole(*shape), whole(*shape) * 2))
    assert compiled.stats.compiles == 2


def test_sizes_that_their_products_tell() -> None:
    def f(x, y):
        return x.reshape(y.shape) + y if x.shape[0] == y.shape[0] else x

    compiled = captured(f, whole(4, 6), whole(4, 6))
    assert len({str(d) for p in compiled.last_graph.placeholders for d in p.shape}) == 2
    for shapes in [((5, 3), (5, 3)), ((2, 2), (2, 2)), ((4, 3), (6, 2))]:
        x, y = (whole(*shape) for shape in shapes)
        np.testing.assert_array_equal(compiled(x, y), f(x, y))
    with pytest.raises(ValueError, match="reshape"):
        compiled(whole(4, 3), whole(4, 2))


def test_a_number_that_is_a_size_gives_its_name() -> None:
    def f(x, n):
        return np.ones(n) + x

    compiled = dg.compile(f)
    for n in range(3, 9):
        np.testing.assert_array_equal(compiled(whole(n), n), f(whole(n), n))
    assert compiled.stats.compiles == 2
    x, n = sorted(compiled.last_graph.placeholders, key=lambda p: p.ndim, reverse=True)
    assert str(x.shape[0]) == n.attrs["symbol"]
    with pytest.raises(ValueError, match="could not be broadcast"):
        compiled(whole(4), 3)


@pytest.mark.parametrize("scale", [0.5, 1.5])
def test_a_number_that_is_a_size_stays_a_number(scale: float) -> None:
    """A float is made of it at each call, not at capture: before it is known to be a size, and after."""

    def f(x, n):
        before = scale * n
        return (np.ones(n) + x) * (scale * n) + before + scale * x.shape[0]

    compiled = dg.compile(f, fullgraph=True)
    for n in range(3, 9):
        np.testing.assert_array_equal(compiled(whole(n), n), f(whole(n), n))
    assert compiled.stats.compiles == 2 and compiled.stats.fallbacks == 0


def test_a_number_that_is_compared_is_a_number_still() -> None:
    def f(x, n, scale):
        return x * (scale * n) + n * 2.5 if n == 4 else x * n

    compiled = dg.compile(f, fullgraph=True)
    for n, scale in [(3, 0.5), (4, 1.5), (4, 2.5), (5, 2.5), (4, 3.5)]:
        np.testing.assert_array_equal(compiled(whole(3), n, scale), f(whole(3), n, scale))
    assert compiled.stats.fallbacks == 0


def test_equal_sizes_behind_a_break_and_before() -> None:
    def f(x, y):
        z = x + y
        dg.graph_break()
        return z * y, z.shape[0] - y.shape[0]

    compiled = dg.compile(f, dynamic=True)
    for shape in [(4, 5), (6, 3), (2, 2)]:
        (got, zero), (want, _) = compiled(whole(*shape), whole(*shape)), f(whole(*shape), whole(*shape))
        np.testing.assert_array_equal(got, want)
        assert zero == 0
    assert compiled.stats.compiles <= 2
    with pytest.raises(ValueError, match="could not be broadcast"):
        compiled(whole(4, 5), whole(4, 6))


def test_results_know_their_sizes() -> None:
    """Sizes, views and broadcast results that are made outside the program, of symbols that have been replaced."""

    def f(x, y):
        before = y[1:], y.shape
        total = x + y
        return (*before, total.T, y.shape, len(y), np.broadcast_to(y, (2, *x.shape)), total)

    compiled = dg.compile(f, dynamic=True, fullgraph=True)
    for shape in [(4, 5), (6, 3), (2, 2)]:
        x, y = whole(*shape), whole(*shape) * 2
        for got, want in zip(compiled(x, y), f(x, y), strict=True):
            np.testing.assert_array_equal(got, want)
        assert np.shares_memory(compiled(x, y)[0], y)
    assert compiled.stats.compiles == 1


def test_writes_into_an_argument_of_the_same_sizes() -> None:
    def f(x, y, out):
        np.multiply(x, y, out=out)
        y += out

    compiled = dg.compile(f, dynamic=True)
    for shape in [(4, 5), (6, 3), (2, 2)]:
        x = whole(*shape)
        given, wanted = (x + 1, np.zeros(shape)), (x + 1, np.zeros(shape))
        compiled(x, *given)
        f(x, *wanted)
        np.testing.assert_array_equal(given, wanted)
    assert compiled.stats.compiles == 1
    with pytest.raises(ValueError, match="broadcast"):
        compiled(whole(4, 5), whole(4, 5), np.zeros((4, 6)))


def test_gradients_of_operands_of_one_shape() -> None:
    def loss(w, x, y):
        return ((w * x - y) ** 2).sum()

    def f(w, x, y):
        return dg.grad(loss)(w, x, y), dg.vjp(lambda w: w * x, w)[1](y)

    compiled = dg.compile(f, dynamic=True, fullgraph=True)
    for shape in [(4, 5), (6, 3), (2, 2)]:
        w, x, y = (whole(*shape) + k for k in range(3))
        (slope, pulled) = compiled(w, x, y)
        np.testing.assert_array_equal(slope, 2 * (w * x - y) * x)
        np.testing.assert_array_equal(pulled[0] if isinstance(pulled, tuple) else pulled, x * y)
    assert compiled.stats.compiles == 1
    assert len({str(d) for p in compiled.last_graph.placeholders for d in p.shape}) == 2


# -- any program ------------------------------------------------------------------------------------------------------------

STEPS = (
    "A + B", "A * B", "np.maximum(A, B)", "A.sum(axis=0)", "A.sum(axis=-1, keepdims=True)", "A.reshape(-1)", "A.T",
    "np.concatenate([A, B])", "A[1:]", "A[:, None]", "np.zeros(A.shape) + B", "A * A.shape[0] + B.shape[-1]",
    "np.where(A > B, A, B)", "A @ B", "(A + 1 if A.shape == B.shape else A - 1)", "(A if A.shape[0] == 3 else -A)",
    "A.reshape(B.shape)", "np.full(B.shape[0], 2.0) + A", "A[: B.shape[0]]", "A - A.mean(axis=0)", "np.arange(A.size) * 1.0",
    "np.add(A, B, out=A)", "np.broadcast_to(A, B.shape)", "np.add.outer(A, B)", "A[len(B) - len(A) :]", "A.reshape(n, -1) + B",
    "np.ones((n, B.shape[-1])) * A", "A * n", "np.stack([A, B])", "A.cumsum(axis=0)", "(A if A.size == B.size else B)",
)  # fmt: skip
Call = tuple[list[tuple[int, ...]], int]
SIZES = st.sampled_from([1, 2, 3, 3, 4])


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[Call]]:
    """The text of a function of arrays and a number, and the shapes and numbers of some calls."""
    n_arrays = draw(st.integers(2, 4))
    axes = [draw(st.lists(st.sampled_from("1nmk"), min_size=1, max_size=3)) for _ in range(n_arrays)]
    names = [f"x{k}" for k in range(n_arrays)]
    lines = []
    for k in range(draw(st.integers(1, 5))):
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        step = draw(st.sampled_from(STEPS)).replace("A", "\0").replace("B", b).replace("\0", a)
        lines.append(f"    t{k} = {step}")
        names.append(f"t{k}")
    lines.append(f"    return {names[-1]}, {draw(st.sampled_from(names))}")
    text = "\n".join([f"def f({', '.join(names[:n_arrays])}, n):", *lines])
    calls = []
    for _ in range(draw(st.integers(2, 6))):
        sizes = {"1": 1, "n": draw(SIZES), "m": draw(SIZES), "k": draw(SIZES)}
        shapes = [[sizes[axis] for axis in shape] for shape in axes]
        if draw(st.integers(0, 3)) == 0:  # what was equal so far is not
            wrong = draw(st.sampled_from(shapes))
            wrong[draw(st.integers(0, len(wrong) - 1))] = draw(SIZES)
        calls.append(([tuple(shape) for shape in shapes], draw(st.sampled_from([sizes["n"], 2, 5]))))
    return text, calls


def outcomes(function: Callable[..., Any], calls: list[Call]) -> list[Any]:
    """What each call gives or raises, and what its arguments are afterwards."""
    found: list[Any] = []
    for shapes, n in calls:
        args = [whole(*shape) + k for k, shape in enumerate(shapes)]
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
                results = function(*args, n)
        except (ValueError, IndexError, TypeError, AttributeError) as error:
            found.append((type(error), args))
        else:
            found.append(([np.asarray(r) for r in results], [type(r) for r in results], args))
    return found


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.sampled_from([None, True]), st.sampled_from(["reference", "numpy"]))
def test_any_program_is_right_and_takes_no_more_compilations(
    program: tuple[str, list[Call]], dynamic: bool | None, backend: str
) -> None:
    text, calls = program
    namespace: dict[str, Any] = {"np": np}
    exec(text, namespace)
    plain = namespace["f"]
    compiled = dg.compile(plain, dynamic=dynamic, backend=backend)
    np.testing.assert_equal(outcomes(compiled, calls), outcomes(plain, calls))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShapeEnv, "_replace", lambda *args: None)
        before = dg.compile(plain, dynamic=dynamic, backend=backend)
        outcomes(before, calls)
    assert compiled.stats.compiles <= before.stats.compiles and compiled.stats.fallbacks <= before.stats.fallbacks
