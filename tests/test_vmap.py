"""`dg.vmap`: what a loop over the examples and np.stack give, for every op, in every nesting, captured or not."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph.ir.ops import Composite, Creation, Op
from tests import sampling
from tests.gradients.numpy_table import ROWS
from tests.gradients.test_transformations import same
from tests.ops.cases import ROWS as OPS
from tests.ops.cases import cases
from tests.sampling import examples

N = 3
rng = np.random.default_rng(5)
X, Y = rng.standard_normal((N, 4)), rng.standard_normal((N, 4))
M = rng.standard_normal((4, 5))


def looped(f: Callable, args: tuple, axes: tuple, out_axis: int = 0) -> np.ndarray:
    """What vmap promises, of a function with one result."""
    n = next(np.shape(a)[axis] for a, axis in zip(args, axes) if axis is not None)
    results = [f(*(a if axis is None else np.moveaxis(a, axis, 0)[k] for a, axis in zip(args, axes))) for k in range(n)]
    return np.stack(results, out_axis)


def check(f: Callable, *args: Any, axes: Any = 0, out: int = 0, captured: bool = True, rtol: float = 1e-12) -> Any:
    made = dg.vmap(f, axes, out)
    got = made(*args)
    plain = getattr(f, "__wrapped__", f)
    want = looped(plain, args, axes if isinstance(axes, tuple) else (axes,) * len(args), out)
    same(got, want, rtol)
    assert got.flags.c_contiguous
    assert not captured or not made.program.stats.breaks, dict(made.program.stats.breaks)
    return made


@pytest.fixture
def strict() -> Iterator[None]:
    with dg.config.override(strict=True):
        yield


pytestmark = pytest.mark.usefixtures("strict")

# -- every op ---------------------------------------------------------------------------------------------------------------------


def several(x: Any) -> np.ndarray:
    """The value, and others of the same elements."""
    x = np.asarray(x)
    others = [np.random.default_rng(k).permutation(x.reshape(-1)).reshape(x.shape) for k in range(1, N)]
    return np.stack([x, *others])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ROWS)
def test_functions_of_numpy(name: str) -> None:
    f, *args = ROWS[name]
    compiled = dg.compile(f, backend="reference")
    for chosen in {(0,), tuple(range(len(args)))}:
        axes = tuple(0 if k in chosen else None for k in range(len(args)))
        given_ = tuple(several(a) if k in chosen else a for k, a in enumerate(args))
        got = dg.vmap(compiled, axes)(*given_)
        want = looped(f, given_, axes)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5 if want.dtype.itemsize < 8 else 1e-9, atol=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", [op for op in OPS if cases(op) and not isinstance(op.lowering, Creation)], ids=lambda op: op.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_ops_of_the_table(op: Op) -> None:
    f = dg.allow_in_graph(op.eager)
    case = cases(op)[len(cases(op)) // 2]

    def one(*operands: Any) -> Any:
        return f(np, *operands, **case.attrs)

    operands = tuple(several(x) for x in case.operands)
    made = dg.vmap(dg.compile(one, backend="reference"))
    made.program.reset()  # each op has functions of this one code
    got = made(*operands)
    want = looped(one, operands, (0,) * len(operands))
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype.kind in "fc":
        rough = got.dtype.itemsize < 8 or isinstance(op.lowering, Composite)
        tolerance = 1e-2 if got.dtype.itemsize < 4 else 1e-4 if rough else 1e-9
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, want)


def test_the_examples_are_one_program() -> None:
    made = check(lambda x, w: np.tanh(x @ w) + 1, X, M, axes=(0, None))
    assert made.program.stats.compiles == 1
    products = [node for node in made.program.last_graph.nodes if node.is_op("matmul")]
    assert len(products) == 1 and products[0].shape == (N, 5)


# -- axes -------------------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_axes(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 4))
    shape = data.draw(st.lists(st.integers(1, 3), max_size=3))
    axes, args = [], []
    for k in range(2):
        axis = data.draw(st.none() if k and axes == [None] else st.integers(-len(shape) - 1, len(shape)))
        mapped = data.draw(st.booleans()) or k == 0
        axes.append(axis if mapped else None)
        full = list(shape)
        if mapped:
            full.insert(axis % (len(shape) + 1), n)
        args.append(np.random.default_rng(k).standard_normal(full))
    out = data.draw(st.integers(-len(shape) - 1, len(shape)))
    function = dg.compile(added, backend="reference")
    same(dg.vmap(function, tuple(axes), out)(*args), looped(added, tuple(args), tuple(axes), out))
    with dg.disable():
        same(dg.vmap(added, tuple(axes), out)(*args), looped(added, tuple(args), tuple(axes), out))


def added(x: Any, y: Any) -> Any:
    return x * 2 + np.sin(y)


class Pair(NamedTuple):
    one: Any
    two: Any


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


def test_nested_containers_are_mapped_leaf_by_leaf() -> None:
    def f(params: Any, pair: Pair, *, scale: Any) -> Any:
        y = pair.one @ params["layer"].w + params["layer"].b
        return {"y": y * scale, "both": (pair.two, Pair(y.sum(), 3)), "none": None}

    params = {"layer": Layer(M, np.arange(5.0))}
    scale = np.array([1.0, 2.0, 3.0])
    made = dg.vmap(f, in_axes=({"layer": None}, Pair(0, 1)), out_axes={"y": 1, "both": 0, "none": None})
    pair = Pair(X, Y.T)
    got = made(params, pair, scale=scale)
    singles = [f(params, Pair(X[k], Y[k]), scale=scale[k]) for k in range(N)]
    same(got["y"], np.stack([s["y"] for s in singles], 1))
    same(got["both"][0], np.stack([s["both"][0] for s in singles]))
    assert type(got["both"][1]) is Pair
    same(got["both"][1].one, np.stack([s["both"][1].one for s in singles]))
    same(got["both"][1].two, np.array([3, 3, 3]))
    assert got["none"] is None
    assert not made.program.stats.breaks, dict(made.program.stats.breaks)


def test_what_is_the_same_for_all_examples_needs_no_axis() -> None:
    made = dg.vmap(lambda x, y: (x + y, y * 2), (0, None), (0, None))
    got = made(X, np.arange(4.0))
    same(got, (X + np.arange(4.0), np.arange(4.0) * 2))
    assert not made.program.stats.breaks


def test_unmapped_arguments_may_be_anything() -> None:
    def f(x: Any, how: str, by: float, k: int) -> Any:
        return x * by + k if how == "scaled" else x

    made = dg.vmap(f, (0, None, None, None))
    for by, k in ((2.0, 1), (3.0, 4), (4.5, 5)):
        same(made(X, "scaled", by, k), X * by + k)


def test_arrays_of_all_kinds() -> None:
    check(lambda x: x[::-1].cumsum(), X.astype(np.float32), rtol=1e-5)
    check(lambda x: x % 3 + 1, np.arange(12).reshape(3, 4))
    check(lambda x: ~x, X > 0)
    check(lambda x: x.conj() * 1j, X + 1j * Y)
    check(lambda x: x + 1, np.asfortranarray(X))
    check(lambda x: x.T.copy(), np.arange(24.0).reshape(4, 3, 2)[::-1], axes=1)


def test_results_do_not_share_memory_with_arguments() -> None:
    x = X.copy()
    got = dg.vmap(lambda row: row)(x)
    got += 1
    same(x, X)
    first, second = dg.vmap(lambda row: (row, row))(x)
    first += 1
    same(second, X)


def test_sizes_change() -> None:
    made = dg.vmap(lambda x: np.sum(np.sin(x)) * x)
    for n in (3, 5, 8, 1, 2):
        x = np.random.default_rng(n).standard_normal((n, n + 1))
        same(made(x), np.stack([np.sum(np.sin(r)) * r for r in x]))
    assert made.program.stats.compiles <= 3 and not made.program.stats.breaks


def test_no_examples() -> None:
    got = dg.vmap(lambda x: np.sum(x))(np.empty((0, 3)))
    same(got, np.empty(0))


# -- nested -----------------------------------------------------------------------------------------------------------------------


def energy(x: Any) -> Any:
    return np.sum(np.sin(x) * x**2)


def test_vmap_of_gradients() -> None:
    made = dg.vmap(dg.grad(energy))
    same(made(X), np.cos(X) * X**2 + 2 * X * np.sin(X))
    assert not made.program.stats.breaks
    same(dg.vmap(dg.hessian(energy))(X), np.stack([dg.hessian(energy)(x) for x in X]))
    same(dg.vmap(dg.jacobian(np.sin))(X), np.stack([np.diag(np.cos(x)) for x in X]))
    values, gradients = dg.vmap(dg.value_and_grad(energy))(X)
    same((values, gradients), (np.stack([energy(x) for x in X]), made(X)))


def test_gradients_of_vmap() -> None:
    made = dg.grad(lambda x: np.sum(dg.vmap(energy)(x) * np.arange(1.0, 4.0)))
    same(made(X), (np.cos(X) * X**2 + 2 * X * np.sin(X)) * np.arange(1.0, 4.0)[:, None])
    assert not made.program.stats.breaks, dict(made.program.stats.breaks)
    dg.check_grads(lambda x, w: dg.vmap(lambda r, w: np.tanh(r @ w), (0, None))(x, w), (X, M))
    with dg.disable():
        same(dg.grad(lambda x: np.sum(dg.vmap(energy)(x)))(X), np.cos(X) * X**2 + 2 * X * np.sin(X))


def test_tangents_within_and_around() -> None:
    def f(x: Any) -> Any:
        return np.exp(x) * x

    want = (f(X), (np.exp(X) * (X + 1)) * Y)
    same(dg.vmap(lambda x, t: dg.jvp(f, (x,), (t,)))(X, Y), want)
    same(dg.jvp(dg.vmap(f), (X,), (Y,)), want)
    _, pull = dg.vjp(dg.vmap(f), X)
    same(pull(Y), (want[1],))


def test_vmap_of_vmap() -> None:
    outer = dg.vmap(dg.vmap(np.dot, (None, 0)), (0, None))
    same(outer(X, Y), X @ Y.T)
    assert not outer.program.stats.breaks, dict(outer.program.stats.breaks)
    pairs = dg.vmap(dg.vmap(lambda a, b: np.sum((a - b) ** 2), (None, 0), -1), (0, None), -1)(X, Y)
    same(pairs, np.array([[np.sum((a - b) ** 2) for a in X] for b in Y]))


def test_inside_a_compiled_function() -> None:
    @dg.compile
    def step(x: Any, w: Any) -> Any:
        y = dg.vmap(lambda row: np.tanh(row @ w))(x * 2)
        return y.sum(axis=0)

    for _ in range(2):
        same(step(X, M), np.tanh(X * 2 @ M).sum(axis=0))
    assert not step.stats.breaks and step.stats.compiles == 1


def test_as_a_decorator() -> None:
    @dg.vmap
    def normalised(x: Any) -> Any:
        return x / np.sqrt(np.sum(x * x))

    same(normalised(X), X / np.sqrt(np.sum(X * X, axis=1, keepdims=True)))

    @functools.partial(dg.vmap, in_axes=(0, None))
    @dg.compile
    def scaled(x: Any, by: Any) -> Any:
        return x * by

    same(scaled(X, 2.0), X * 2)
    assert scaled.__name__ == "vmap_scaled" and scaled.__wrapped__


def test_values_that_are_closed_over_are_shared() -> None:
    w = np.arange(4.0)
    for k in range(3):
        same(dg.vmap(lambda x: x * w + k)(X), X * w + k)


def test_custom_gradients() -> None:
    @dg.custom_vjp
    def clipped(x: Any) -> Any:
        return np.clip(x, -0.5, 0.5)

    clipped.defvjp(lambda x: (np.clip(x, -0.5, 0.5), None), lambda kept, g: (g * 7,))
    made = dg.vmap(dg.grad(lambda x: np.sum(clipped(x))))
    same(made(X), np.full_like(X, 7))
    assert not made.program.stats.breaks, dict(made.program.stats.breaks)
    same(dg.grad(lambda x: np.sum(dg.vmap(clipped)(x)))(X), np.full_like(X, 7))
    checkpointed = dg.checkpoint(np.sin)
    same(dg.grad(lambda x: np.sum(dg.vmap(checkpointed)(x)))(X), np.cos(X))
    same(dg.grad(lambda x: np.sum(dg.vmap(lambda r: r * dg.stop_gradient(r))(x)))(X), X)


# -- loops and what is not captured -----------------------------------------------------------------------------------------------


def test_loops() -> None:
    def unrolled(x: Any) -> Any:
        y = np.zeros(4)
        for k in range(4):
            y[k] = x[k] * (k + 1) + (y[k - 1] if k else 0.0)
        return y

    check(unrolled, X)

    def native(x: Any) -> Any:
        s = 0.0
        for k in range(len(x)):
            if x[k] > 0:
                s += x[k] * k
        return s

    check(native, X, captured=False)


def test_what_data_decide_is_called_for_each_example() -> None:
    def f(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else -x

    made = check(f, X, captured=False)
    assert "depends on the value of an array" in str(dict(made.program.stats.breaks))
    chosen = dg.vmap(lambda x: np.sum(x[x > 0]))
    same(chosen(X), np.array([np.sum(x[x > 0]) for x in X]))


def test_random_draws_are_made_for_each_example() -> None:
    generator, again = np.random.default_rng(3), np.random.default_rng(3)
    made = dg.vmap(lambda x: x + generator.standard_normal(4))
    for _ in range(2):
        same(made(X), np.stack([x + again.standard_normal(4) for x in X]))
    assert made.program.stats.breaks


def test_effects_are_made_for_each_example() -> None:
    seen: list[Any] = []
    count = 0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        seen.append(len(seen))
        return x * 2

    same(dg.vmap(f)(X), X * 2)
    assert (seen, count) == ([0, 1, 2], 3)

    @dg.compile
    def outer(x: Any) -> Any:
        kept: list[Any] = []
        state = {"n": 0}
        total = np.zeros(4)

        def g(row: Any) -> Any:
            kept.append(row.sum())
            state["n"] += 1
            return row + 1

        def h(row: Any) -> Any:
            total[:] += row
            return row

        return dg.vmap(g)(x), kept, state, dg.vmap(h)(x), total

    one, kept, state, two, total = outer(X)
    same(one, X + 1)
    same(np.array(kept), X.sum(axis=1))
    assert state == {"n": 3}
    same(two, X)
    same(total, X.sum(axis=0))


def test_writes_to_an_example_are_seen_in_the_argument() -> None:
    def f(x: Any) -> Any:
        x[0] = 7.0
        return x.sum()

    given_, plainly = X.copy(), X.copy()
    same(dg.vmap(f)(given_), np.array([f(x) for x in plainly]))
    same(given_, plainly)


def test_generators_that_are_shared_go_on() -> None:
    @dg.compile
    def outer(x: Any) -> Any:
        counter = iter(range(10))
        return dg.vmap(lambda row: row * next(counter))(x)

    same(outer(X), X * np.arange(3.0)[:, None])


def test_errors_of_numpy_are_raised() -> None:
    matrices = np.stack([np.eye(2), np.zeros((2, 2)), np.eye(2)])
    with pytest.raises(np.linalg.LinAlgError):
        dg.vmap(np.linalg.inv)(matrices)
    with pytest.raises(IndexError, match="out of bounds"):
        dg.vmap(lambda x, k: x[k])(X, np.array([0, 9, 1]))
    same(dg.vmap(lambda x, k: x[k])(X, np.array([0, -1, 3])), X[np.arange(3), [0, -1, 3]])


def test_many_examples_of_what_has_no_rule() -> None:
    x = np.random.default_rng(0).integers(0, 5, (2000 if sampling.all_cases else 200, 3))
    same(dg.vmap(lambda r: np.bincount(r, minlength=5))(x), np.stack([np.bincount(r, minlength=5) for r in x]))


# -- errors -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plainly", [False, True], ids=["compiled", "plain"])
def test_errors(plainly: bool) -> None:
    with dg.config.override(strict=False):
        _errors(dg.disable() if plainly else dg.config.override())


def fails(kind: type[Exception], text: str) -> Any:
    return pytest.raises(kind, match=text)


def _errors(way: Any) -> None:
    with way:
        with fails(ValueError, r"^vmap of added: all mapped axes .* argument 0 has 3 along axis 0, and argument 1 has 4 along"):
            dg.vmap(added)(X, X.T)
        with fails(ValueError, r"^vmap of added: nothing is mapped, with in_axes=None; give at least one array an axis"):
            dg.vmap(added, None)(X, X)
        with fails(dg.ShapeError, r"in_axes has axis 2 for argument 0, of shape \(3, 4\); an axis .* from -2 to 1"):
            dg.vmap(added, 2)(X, X)
        with fails(dg.ShapeError, r"for argument 1, of shape \(\); which has no axes: give None for it"):
            dg.vmap(added)(X, np.float64(1.0))
        with fails(TypeError, r"argument 1\['w'\] is a float, and only arrays are mapped; .* None for it in in_axes"):
            dg.vmap(lambda x, p: x)(X, {"w": 1.0})
        with fails(ValueError, r"in_axes=\(0,\) has 1 entries, and the call has 2 positional arguments"):
            dg.vmap(added, (0,))(X, X)
        with fails(ValueError, r"in_axes has \(0, 0\) for argument 0, which is a ndarray; nest it as argument 0 is"):
            dg.vmap(added, ((0, 0), 0))(X, X)
        with fails(ValueError, r"out_axes has \(0, 0\) for the result, which is a ndarray"):
            dg.vmap(added, 0, (0, 0))(X, X)
        with fails(dg.ShapeError, r"out_axes has axis 2 for the result, of shape \(4,\) for one example"):
            dg.vmap(added, 0, 2)(X, X)
        with fails(TypeError, r"the result\[1\] is a str, and only arrays and numbers are stacked"):
            dg.vmap(lambda x: (x, "no"))(X)
        with fails(ValueError, r"out_axes is None for the result, which differs between example 0 and example 1"):
            dg.vmap(lambda x: x, 0, None)(X)
        with fails(dg.ShapeError, r"the result has shape \(1,\) for example 0 and \(2,\) for example 1; all examples"):
            dg.vmap(lambda x, n: x[: int(n)])(X, np.array([1, 2, 3]))
    with fails(TypeError, r"^vmap of added: in_axes='rows': expected an int, None, or containers of these, got a str"):
        dg.vmap(added, "rows")
    with fails(TypeError, r"^vmap: expected a function, got 3 of type int"):
        dg.vmap(3)  # type: ignore[arg-type]
