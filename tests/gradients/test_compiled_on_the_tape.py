"""Compiled functions that are called with values that are being differentiated as plain Python: as if they were not compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.autodiff import transforms as differentiation
from dynagraph.autodiff.transforms import _programs

pytestmark = pytest.mark.sampled(3)

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.4, -0.7])


def not_captured(body: Callable[[Any], Any]) -> Any:
    """The function, behind a branch on data."""

    def f(x: Any) -> Any:
        return body(x) if x[0] < 100 else np.sum(x)

    return f


class Holder:
    def __init__(self) -> None:
        self.held: Any = Y.copy()

    @dg.compile
    def product(self, a: Any) -> Any:
        return self.held * a

    @dg.compile
    def keep(self, a: Any) -> Any:
        self.held = a * 2
        return a * 1.0


def twice() -> Any:
    c = dg.compile(lambda a: np.sin(a) * a)
    return lambda x: np.sum(c(x) * c(2 * x))


def trees() -> Any:
    c = dg.compile(lambda p: p["a"] * p["b"][0])
    return lambda x: np.sum(c({"a": x, "b": [Y, x]}) + c({"a": Y, "b": [x]}))


def scalars() -> Any:
    c = dg.compile(lambda a, s: a * s)
    return lambda x: np.sum(c(x, 2)) + c(x[0], x[1]) + np.sum(c(x, float(dg.stop_gradient(x[0]))))


def overlapping() -> Any:
    c = dg.compile(lambda a, b: a * b)
    return lambda x: np.sum(c(x, x)) + np.sum(c(x[:2], x[1:]))


def integers() -> Any:
    c = dg.compile(lambda a, b: (a.astype(int), np.argmax(b), a * b, None, "s"))

    def body(x: Any) -> Any:
        i, j, p, _, _ = c(x, x * x)
        return np.sum(p * i) * j

    return body


def with_a_gradient() -> Any:
    return dg.compile(lambda a: np.sum(dg.grad(lambda b: np.sum(b**3))(a)))


def in_a_gradient() -> Any:
    c = dg.compile(lambda a: a**3)
    return lambda x: np.sum(dg.grad(lambda y: np.sum(c(y) * x))(x * 2))


def with_a_break() -> Any:
    c = dg.compile(lambda a: a * 2 if a[0] > 0 else a**3)
    return lambda x: np.sum(c(x) * c(-x))


def in_a_checkpoint() -> Any:
    block = dg.checkpoint(dg.compile(lambda a: np.sin(a)))
    return lambda x: np.sum(block(block(x)))


def in_a_custom_gradient() -> Any:
    c = dg.compile(lambda a: a * 2)
    q = dg.custom_vjp(c)
    q.defvjp(lambda a: (c(a), a), lambda a, g: (c(g) * a,))
    return lambda x: np.sum(q(x))


def closure() -> Any:
    def body(x: Any) -> Any:
        return np.sum(dg.compile(lambda a: a * x)(x * 2))

    return body


def held_by_an_object() -> Any:
    holder = Holder()

    def body(x: Any) -> Any:
        holder.held = x * 2
        return np.sum(holder.product(x))

    return body


def kept_by_an_object() -> Any:
    holder = Holder()
    return lambda x: np.sum(holder.keep(x) * holder.held)


def kept_in_a_list() -> Any:
    kept: list[Any] = []

    @dg.compile
    def c(a: Any) -> Any:
        kept.append(a * 2)
        return a * 1.0

    return lambda x: np.sum(c(x) * kept.pop())


def kept_in_a_variable() -> Any:
    kept: Any = None

    @dg.compile
    def c(a: Any) -> Any:
        nonlocal kept
        kept = a * 2
        return a * 1.0

    return lambda x: np.sum(c(x) * kept)


def kept_in_an_argument() -> Any:
    @dg.compile
    def c(a: Any, out: dict[str, Any]) -> Any:
        out["a"] = a * 2
        return a * 1.0

    def body(x: Any) -> Any:
        out: dict[str, Any] = {}
        return np.sum(c(x, out) * out["a"])

    return body


def given_in_an_object() -> Any:
    @dg.compile
    def c(a: Any) -> Any:
        holder = Holder()
        holder.held = a * 2
        return holder

    return lambda x: np.sum(c(x).held)


def given_in_a_function() -> Any:
    c = dg.compile(lambda a: lambda b: a * b * 2)
    return lambda x: np.sum(c(x)(x))


def state() -> Any:
    kept = {"n": 0, "w": np.ones(3)}

    @dg.compile
    def c(a: Any) -> Any:
        kept["n"] += 1
        kept["w"] *= 2
        return a * kept["w"] * kept["n"]

    return lambda x: np.sum(c(x) + c(x))


def argument_written() -> Any:
    @dg.compile
    def c(a: Any, b: Any) -> Any:
        a[0] = 5.0
        a *= 2
        return a + b

    def body(x: Any) -> Any:
        y = x * 1.5
        return np.sum(c(y, y) * y) + np.sum(c(y[:2], y[1:]))

    return body


def views() -> Any:
    c = dg.compile(lambda a: (a[::-1], {"view": a.T, "n": 3}))

    def body(x: Any) -> Any:
        u, d = c(x * 2)
        u *= 3
        return np.sum(u * d["view"] * d["n"])

    return body


def argument_given() -> Any:
    c = dg.compile(lambda a: a)

    def body(x: Any) -> Any:
        y = x * 2
        z = c(y)
        z *= 3
        return np.sum(y * z)

    return body


def written_afterwards() -> Any:
    w = np.array([1.0, 2.0, 3.0])
    c = dg.compile(lambda a: (np.exp(a * w), a.copy()))

    def body(x: Any) -> Any:
        y, z = c(x)
        w[:] = 1.0
        u = y * z
        y *= 2
        z[0] = 0
        return np.sum(y * z * u)

    return body


def handled() -> Any:
    @dg.compile
    def c(a: Any) -> Any:
        raise KeyError("a")

    def body(x: Any) -> Any:
        try:
            return c(x)
        except KeyError:
            return np.sum(x**2)

    return body


ONE_STEP = [twice, trees, scalars, overlapping, integers, with_a_gradient]
STEP_BY_STEP = [
    in_a_gradient, with_a_break, in_a_checkpoint, in_a_custom_gradient, closure, held_by_an_object, kept_by_an_object,
    kept_in_a_list, kept_in_a_variable, kept_in_an_argument, given_in_an_object, given_in_a_function, state, argument_written,
    views, argument_given, written_afterwards, handled,
]  # fmt: skip
TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: dg.grad(f)(X),
    "vjp": lambda f: dg.vjp(f, X)[1](2.0)[0],
    "jvp": lambda f: dg.jvp(f, (X,), (Y,))[1],
    "jacobian": lambda f: dg.jacobian(f, mode="rev")(X),
    "jacobian forward": lambda f: dg.jacobian(f, mode="fwd")(X),
    "hessian": lambda f: dg.hessian(f)(X),
    "hvp": lambda f: dg.hvp(f, (X,), (Y,))[0],
}


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("make", ONE_STEP + STEP_BY_STEP, ids=lambda make: make.__name__)
def test_gradients_are_as_if_nothing_were_compiled(make: Callable[[], Any], name: str) -> None:
    got = TRANSFORMED[name](not_captured(make()))
    with dg.disable():
        want = TRANSFORMED[name](not_captured(make()))
    assert type(got) is type(want)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", ONE_STEP, ids=lambda make: make.__name__)
def test_what_can_be_is_one_program_backward(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    backward = differentiation._gradients_from
    monkeypatch.setattr(differentiation, "_gradients_from", lambda *args: (calls.append(1), backward(*args))[1])
    dg.grad(not_captured(make()))(X)
    assert calls


# -- counts ---------------------------------------------------------------------------------------------------------------------

POINT, WEIGHTS = np.array([1.0, 2.0]), np.random.default_rng(0).normal(size=(2, 3))


def breaking():
    def layer(x, params):
        return {"values": np.tanh(x @ params["w"]), "times": 3}

    compiled = dg.compile(layer)

    def breaks(x, params):
        while np.sum(x) < 10:
            x = x * 2
        result = compiled(x, params)
        return np.sum(result["values"] ** 2) * result["times"]

    return layer, compiled, breaks


def close(got, want):
    (by_x, by_params), (x, params) = got, want
    np.testing.assert_allclose(by_x, x, rtol=1e-12)
    np.testing.assert_allclose(by_params["w"], params["w"], rtol=1e-12)
    assert type(by_x) is type(by_params["w"]) is np.ndarray


def test_gradients_go_through_two_programs():
    layer, _, breaks = breaking()
    gradient = dg.grad(breaks, (0, 1))
    got = [gradient(POINT, {"w": WEIGHTS}) for _ in range(3)]
    with dg.disable():
        want = gradient(POINT, {"w": WEIGHTS})
    for each in got:
        close(each, want)
    (on_tape,) = (p for key, p in _programs[layer.__code__].items() if key[0] == "on a tape")
    assert on_tape.stats.compiles == 1 and on_tape.stats.hits >= 2 and not on_tape.stats.fallbacks


@pytest.mark.parametrize("take", [
    lambda f, args, way: dg.jvp(f, args, way)[1],
    lambda f, args, way: sum(np.sum(g) for g in (lambda a, b: (a, b["w"]))(*dg.hvp(f, args, way))),
], ids=["jvp", "hvp"])  # fmt: skip
def test_tangents_and_second_derivatives(take):
    _, _, breaks = breaking()
    args, way = (POINT, {"w": WEIGHTS}), (np.ones(2), {"w": np.ones((2, 3))})
    got = take(breaks, args, way)
    with dg.disable():
        want = take(breaks, args, way)
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_what_breaks_in_a_compiled_function_is_differentiated_too():
    @dg.compile
    def breaks(x):
        return np.sin(x) if x.sum() > 0 else x

    gradient = dg.grad(lambda x: (breaks(x) * x if x[0] > 0 else x).sum())
    for x in (POINT, 2 * POINT, -POINT):
        np.testing.assert_allclose(gradient(x), np.cos(x) * x + np.sin(x) if x[0] > 0 else np.ones(2))


def test_side_effects_happen_once():
    seen = []

    @dg.compile
    def notes(x):
        seen.append(1)
        return np.sin(x) if x.sum() > 0 else x

    dg.grad(lambda x: notes(x).sum() if x[0] > 0 else x.sum())(POINT)
    assert seen == [1]


def test_one_program_for_all_gradients_of_a_function():
    def square(x):
        return np.sum(x * x)

    for _ in range(3):
        dg.grad(square)(POINT)
    (program,) = _programs[square.__code__].values()
    assert program.stats.compiles == 1 and program.stats.hits == 2
