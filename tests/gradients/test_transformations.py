"""What the transformations promise, compiled and on the tape: values, structures, arguments, and each within each."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import operator
from typing import Any, NamedTuple

import numpy as np
import pytest

import dynagraph as dg

pytestmark = [pytest.mark.usefixtures("way"), pytest.mark.sampled(8)]
X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.4, -0.7])
M = np.array([[0.5, 1.5, -1.0], [2.0, -0.3, 0.8]])


def same(got: Any, want: Any, rtol: float = 1e-10) -> None:
    """Equal in structure, kinds, dtypes, shapes and, but for rounding, values."""
    assert type(got) is type(want), f"{type(got)} instead of {type(want)}"
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w, rtol)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            same(got[key], want[key], rtol)
    elif dataclasses.is_dataclass(want):
        for field in dataclasses.fields(want):
            same(getattr(got, field.name), getattr(want, field.name), rtol)
    elif isinstance(want, (np.ndarray, np.generic)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    else:
        assert got == want


def was_captured(made: Any) -> None:
    """A transformation's program holds all of it; there is none on the tape."""
    assert not made.program.stats.breaks, made.program.stats.breaks


# -- values -----------------------------------------------------------------------------------------------------------------


def test_grad_is_the_derivative() -> None:
    gradient = dg.grad(lambda x: np.sum(np.sin(x) * x**2))
    same(gradient(X), np.cos(X) * X**2 + 2 * X * np.sin(X))
    was_captured(gradient)


def test_value_and_grad_gives_both() -> None:
    function = dg.value_and_grad(lambda x: np.sum(np.exp(x)))
    same(function(X), (np.sum(np.exp(X)), np.exp(X)))
    was_captured(function)


def test_vjp_takes_cotangents_back() -> None:
    value, pull = dg.vjp(lambda m, x: np.tanh(m @ x), M, X)
    same(value, np.tanh(M @ X))
    slope = 1 - np.tanh(M @ X) ** 2
    for cotangent in (np.array([1.0, -2.0]), np.array([0.0, 3.0])):
        same(pull(cotangent), (np.outer(cotangent * slope, X), M.T @ (cotangent * slope)))


def test_jvp_pushes_tangents_forward() -> None:
    same(dg.jvp(lambda m, x: m @ np.exp(x), (M, X), (2 * M, Y)), (M @ np.exp(X), 2 * M @ np.exp(X) + M @ (Y * np.exp(X))))


def test_hvp_is_the_hessian_times_a_vector() -> None:
    f = lambda x: np.sum(x**3) * x[0]  # noqa: E731
    same(dg.hvp(f, (X,), (Y,)), (dg.hessian(f)(X) @ Y,))


def test_jacobians_of_both_modes_agree() -> None:
    f = lambda x: np.concatenate([np.sin(x), [x[0] * x[1]]])  # noqa: E731
    want = np.vstack([np.diag(np.cos(X)), [X[1], X[0], 0.0]])
    for mode in ("auto", "fwd", "rev"):
        same(dg.jacobian(f, mode=mode)(X), want)


def test_jacobian_of_a_matrix_by_a_vector() -> None:
    want = np.einsum("ij,k->ijk", M, np.ones(3)) * 0 + np.einsum("ij,jk->ijk", M, np.eye(3)) * 2 * X
    same(dg.jacobian(lambda x: M * x**2)(X), want)


def test_jacobians_of_trees() -> None:
    def f(p: dict[str, Any], x: Any) -> Any:
        return {"a": p["w"] * x, "b": (np.sum(p["w"] ** 2),)}

    got = dg.jacobian(f, (0, 1))({"w": Y}, X)
    zeros = np.zeros(3)
    same(got, {"a": ({"w": np.diag(X)}, np.diag(Y)), "b": (({"w": 2 * Y}, zeros),)})


def test_hessian_is_symmetric_and_right() -> None:
    got = dg.hessian(lambda x: np.exp(x[0]) * x[1] ** 2 + np.sin(x[2]))(X)
    e = np.exp(X[0])
    same(got, np.array([[e * X[1] ** 2, 2 * e * X[1], 0], [2 * e * X[1], 2 * e, 0], [0, 0, -np.sin(X[2])]]))


def test_hessian_by_two_arguments_has_four_blocks() -> None:
    (xx, xy), (yx, yy) = dg.hessian(lambda x, y: np.sum(x**2 * y), (0, 1))(X, Y)
    same((xx, xy, yx, yy), (np.diag(2 * Y), np.diag(2 * X), np.diag(2 * X), np.zeros((3, 3))))


# -- kinds of arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "x", [2.0, np.float64(2.0), np.float32(2.0), np.array(2.0), np.array(2.0, "f4"), X, X.astype("f4"), M[:0], M[::-1, ::2].T],
    ids=["float", "float64", "float32", "0-d", "0-d float32", "array", "array of float32", "empty", "strided"],
)  # fmt: skip
def test_gradients_are_of_the_argument_s_kind(x: Any) -> None:
    want = 3 * x**2 if type(x) is not float else np.float64(12.0)
    want = np.asarray(want) if isinstance(x, np.ndarray) else want
    same(dg.grad(lambda x: np.sum(x**3))(x), want, 1e-5)
    same(dg.vjp(lambda x: np.sum(x**3), x)[1](1.0), (want,), 1e-5)
    same(dg.jvp(lambda x: np.sum(x * x), (x,), (x,))[0], np.sum(np.asarray(x) ** 2), 1e-5)


def test_the_gradient_of_a_precision_is_of_that_precision() -> None:
    got = dg.grad(lambda x, y: np.sum(x * y), (0, 1))(X.astype("f4"), Y)
    same(got, (Y.astype("f4"), X.astype("f4").astype("f8")), 1e-6)


def test_halves_have_gradients() -> None:
    same(dg.grad(lambda x: np.sum(x * x))(X.astype("f2")), (2 * X.astype("f2")), 1e-2)


def test_python_floats_become_float64() -> None:
    value, (a, b) = dg.value_and_grad(lambda x, y: x * math.pi + y * y, (0, 1))(2.0, 3.0)
    same((value, a, b), (np.float64(2 * math.pi + 9), np.float64(math.pi), np.float64(6.0)))


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    name: str = "dense"
    activation: Any = np.tanh


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: Any
    layers: Any = ()


def norm(tree: Any) -> Any:
    """The sum of all squares, by the tree's own structure."""
    if isinstance(tree, dict):
        return sum(norm(item) for item in tree.values())
    if isinstance(tree, (tuple, list)):
        return sum(norm(item) for item in tree)
    return np.sum(tree**2)


def doubled(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: doubled(item) for key, item in tree.items()}
    if hasattr(tree, "_fields"):
        return type(tree)(*map(doubled, tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map(doubled, tree))
    return 2 * np.asarray(tree) if isinstance(tree, np.ndarray) else np.float64(2 * tree)


TREES: dict[str, Any] = {
    "tuple": (X, 2.0),
    "list": [X, Y, [1.5]],
    "dict": {"b": X, "a": 3.0},
    "named tuple": Pair(X, Pair(Y, 0.5)),
    "nested": {"layers": [(M, X), (M + 1, Y)], "scale": (1.5,)},
    "the same array twice": [X, X],
    "empty containers": {"a": [], "x": X, "b": ()},
    "many": [np.full(2, k + 0.5) for k in range(20)],
}


@pytest.mark.parametrize("name", TREES)
def test_gradients_are_nested_as_arguments(name: str) -> None:
    gradient = dg.grad(lambda tree: norm(tree))
    same(gradient(TREES[name]), doubled(TREES[name]))
    was_captured(gradient)


def test_other_dicts_keep_their_kind() -> None:
    ordered = collections.OrderedDict(b=X, a=Y)
    same(dg.grad(lambda p: np.sum(p["b"] * p["a"]))(ordered), collections.OrderedDict(b=Y, a=X))
    default = collections.defaultdict(list, {"w": X})
    got = dg.grad(lambda p: np.sum(p["w"] ** 2))(default)
    same(got, collections.defaultdict(list, {"w": 2 * X}))
    assert got.default_factory is list


def test_dataclasses_are_containers_and_what_is_no_number_stays() -> None:
    layer = Layer(M, np.array([0.1, 0.2]))

    def loss(layer: Layer, x: Any) -> Any:
        return np.sum(layer.activation(layer.w @ x + layer.b)) * (2 if layer.name == "dense" else 1)

    slope = 2 * (1 - np.tanh(M @ X + layer.b) ** 2)
    got = dg.grad(loss)(layer, X)
    assert type(got) is Layer and got.name is None and got.activation is None
    same((got.w, got.b), (np.outer(slope, X), slope))
    assert layer.name == "dense" and layer.w is M


def test_frozen_dataclasses_and_none() -> None:
    model = Frozen(np.float64(2.0), (Layer(X, None), None))
    got = dg.grad(lambda m: m.scale * np.sum(m.layers[0].w ** 2))(model)
    assert type(got) is Frozen and got.layers[1] is None and got.layers[0].b is None
    same((got.scale, got.layers[0].w), (np.sum(X**2), 4 * X))


def test_texts_and_functions_among_the_arguments() -> None:
    got = dg.grad(lambda p: np.sum(p["f"](p["x"])))({"f": np.exp, "x": X, "kind": "exp"})
    assert got["f"] is None and got["kind"] is None
    same(got["x"], np.exp(X))


def test_trees_of_tangents_and_cotangents() -> None:
    def f(p: Any) -> Any:
        return {"y": p["w"] * p["x"], "n": 3, "s": "text"}

    value, change = dg.jvp(f, ({"w": X, "x": Y},), ({"w": Y, "x": X},))
    same(value, {"y": X * Y, "n": 3, "s": "text"})
    same(change["y"], Y * Y + X * X)
    assert change["n"] is None
    value, pull = dg.vjp(f, {"w": X, "x": Y})
    same(pull({"y": np.ones(3), "n": 0, "s": ""}), ({"w": Y, "x": X},))


# -- argnums, has_aux, keywords ----------------------------------------------------------------------------------------------


def test_argnums_choose_arguments() -> None:
    f = lambda x, y, z: np.sum(x * y) * z  # noqa: E731
    same(dg.grad(f)(X, Y, 2.0), 2 * Y)
    same(dg.grad(f, 1)(X, Y, 2.0), 2 * X)
    same(dg.grad(f, -1)(X, Y, 2.0), np.float64(np.sum(X * Y)))
    same(dg.grad(f, (2, 0))(X, Y, 2.0), (np.float64(np.sum(X * Y)), 2 * Y))
    same(dg.grad(f, (-2,))(X, Y, 2.0), (2 * X,))


def test_integers_are_fine_outside_of_argnums() -> None:
    same(dg.grad(lambda x, n, flags: np.sum(x**n) if flags[0] else x[0])(X, 3, [True]), 3 * X**2)


def test_keywords_are_passed_on() -> None:
    def f(x: Any, *, power: int = 2, scale: Any = 1.0) -> Any:
        return np.sum(x**power) * scale

    gradient = dg.grad(f)
    same(gradient(X), 2 * X)
    same(gradient(X, power=3), 3 * X**2)
    same(gradient(X, scale=2.5), 5 * X)
    same(gradient(X, power=2, scale=np.float64(0.5)), X)


def test_aux_is_handed_out() -> None:
    def f(x: Any) -> Any:
        return np.sum(x**2), {"doubled": 2 * x, "n": len(x), "text": "aux"}

    aux = {"doubled": 2 * X, "n": 3, "text": "aux"}
    same(dg.grad(f, has_aux=True)(X), (2 * X, aux))
    same(dg.value_and_grad(f, has_aux=True)(X), ((np.sum(X**2), aux), 2 * X))


def test_aux_of_an_inner_gradient_is_differentiated_by_the_outer() -> None:
    def outer(x: Any) -> Any:
        _, aux = dg.grad(lambda y: (np.sum(y**2), y * x), has_aux=True)(2 * x)
        return np.sum(aux)

    same(dg.grad(outer)(X), 4 * X)


# -- what can be differentiated -----------------------------------------------------------------------------------------------


class Model:
    def __init__(self) -> None:
        self.scale = 3.0

    def loss(self, x: Any) -> Any:
        return self.scale * np.sum(x**2)

    @dg.compile
    def compiled_loss(self, x: Any) -> Any:
        return self.scale * np.sum(x**2)

    def __call__(self, x: Any) -> Any:
        return self.scale * np.sum(x**3)

    @staticmethod
    def static(x: Any) -> Any:
        return np.sum(x**2)

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return np.sum(x**2)


def power(x: Any, n: Any) -> Any:
    return np.sum(x**n)


def test_functions_of_all_kinds() -> None:
    model = Model()
    same(dg.grad(model.loss)(X), 6 * X)
    same(dg.grad(Model.loss, 1)(model, X), 6 * X)
    same(dg.grad(model.compiled_loss)(X), 6 * X)
    same(dg.grad(model)(X), 9 * X**2)
    same(dg.grad(Model.static)(X), 2 * X)
    same(dg.grad(Model.of_class)(X), 2 * X)
    same(dg.grad(functools.partial(power, n=3))(X), 3 * X**2)
    same(dg.grad(functools.partial(power, np.abs(X)))(2.0), np.float64(np.sum(X**2 * np.log(np.abs(X)))))
    same(dg.grad(np.sin)(0.5), np.float64(np.cos(0.5)))
    same(dg.grad(np.multiply)(0.5, 3.0), np.float64(3.0))
    same(dg.grad(np.linalg.norm)(X), X / np.linalg.norm(X))
    same(dg.grad(operator.mul, 1)(0.5, 3.0), np.float64(0.5))
    same(dg.grad(functools.lru_cache(lambda x: x * x))(3.0), np.float64(6.0))


def test_a_method_s_state_is_read_anew() -> None:
    model = Model()
    gradient = dg.grad(model.loss)
    same(gradient(X), 6 * X)
    model.scale = 5.0
    same(gradient(X), 10 * X)


def test_a_transformation_is_named_after_its_function() -> None:
    assert dg.grad(power).__name__ == "grad_power" and dg.grad(power).__qualname__ == "grad(power)"
    assert dg.jacobian(dg.grad(power)).__name__ == "jacobian_grad_power"


# -- each within each ---------------------------------------------------------------------------------------------------------


def cube(x: Any) -> Any:
    return np.sum(x**3)


def test_gradients_of_gradients() -> None:
    third = dg.grad(dg.grad(dg.grad(lambda x: x**4)))
    same(third(2.0), np.float64(48.0))
    same(dg.grad(dg.grad(dg.grad(dg.grad(np.sin))))(0.5), np.float64(np.sin(0.5)), 1e-8)
    was_captured(third)


def test_all_orders_of_two_transformations_agree() -> None:
    ones = np.ones(3)
    want = 6 * X
    same(dg.grad(lambda x: np.sum(dg.grad(cube)(x)))(X), want)
    same(dg.grad(lambda x: dg.jvp(cube, (x,), (ones,))[1])(X), want)
    same(dg.jvp(dg.grad(cube), (X,), (ones,))[1], want)
    same(dg.jvp(lambda x: dg.jvp(cube, (x,), (ones,))[1], (X,), (ones,))[1], np.float64(np.sum(want)))
    same(dg.vjp(dg.grad(cube), X)[1](ones), (want,))
    same(dg.grad(lambda x: np.sum(dg.vjp(cube, x)[1](1.0)[0]))(X), want)
    same(dg.jvp(lambda x: dg.vjp(cube, x)[1](1.0)[0], (X,), (ones,))[1], want)
    same(np.diag(dg.jacobian(dg.grad(cube))(X)), want)
    same(np.diag(dg.hessian(cube)(X)), want)
    same(dg.grad(lambda x: np.sum(np.diag(dg.jacobian(lambda y: y**3)(x))))(X), want)
    same(dg.hvp(cube, (X,), (ones,)), (want,))


def test_jacobians_of_jacobians() -> None:
    got = dg.jacobian(dg.jacobian(lambda x: x**3))(X)
    want = np.zeros((3, 3, 3))
    want[range(3), range(3), range(3)] = 6 * X
    same(got, want)
    want[want != 0] = 6.0
    same(dg.jacobian(dg.hessian(cube))(X), want)


def test_a_pulled_cotangent_is_differentiated() -> None:
    def outer(c: Any, x: Any) -> Any:
        _, pull = dg.vjp(np.sin, x)
        return np.sum(pull(c)[0] ** 2)

    same(dg.grad(outer, (0, 1))(Y, X), (2 * Y * np.cos(X) ** 2, -2 * Y**2 * np.cos(X) * np.sin(X)))


def test_what_a_pull_keeps_is_differentiated_later() -> None:
    value, pull = dg.vjp(lambda x: x**2, X)
    same(value, X**2)
    same(dg.grad(lambda c: np.sum(pull(c)[0] ** 2))(Y), 8 * X**2 * Y)
    same(dg.jvp(lambda c: pull(c)[0], (Y,), (X,)), (2 * X * Y, 2 * X * X))


# Siskind and Pearlmutter, "Perturbation confusion and referential transparency", 2005
def test_perturbations_are_not_confused() -> None:
    same(dg.grad(lambda x: x * dg.grad(lambda y: x + y)(1.0))(1.0), np.float64(1.0))
    same(dg.grad(lambda x: x * dg.grad(lambda y: x * y)(2.0))(3.0), np.float64(6.0))
    same(dg.grad(lambda x: dg.grad(lambda y: x**2 * y**2)(x))(3.0), np.float64(2 * 3 * 9.0))
    same(dg.jvp(lambda x: x * dg.jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))[1], np.float64(1.0))
    same(dg.grad(lambda x: x * dg.jvp(lambda y: x * y, (2.0,), (1.0,))[1])(3.0), np.float64(6.0))
    same(dg.jvp(lambda x: x * dg.grad(lambda y: x * y)(2.0), (3.0,), (1.0,))[1], np.float64(6.0))


def test_a_gradient_within_a_function_that_is_differentiated() -> None:
    def outer(x: Any) -> Any:
        inner = x
        for _ in range(3):
            inner = inner - 0.1 * dg.grad(lambda y: np.sum((y**2 - x) ** 2))(inner)
        return np.sum(inner)

    dg.check_grads(outer, (np.abs(X),), order=1, rtol=1e-5)


def test_a_gradient_by_what_the_outer_does_not_see() -> None:
    same(dg.grad(lambda x: np.sum(x) * dg.grad(cube)(Y)[0])(X), np.full(3, 3 * Y[0] ** 2))


# -- with compile -----------------------------------------------------------------------------------------------------------------


def test_compile_of_grad_and_grad_of_compile() -> None:
    same(dg.compile(lambda x: dg.grad(cube)(x))(X), 3 * X**2)
    same(dg.grad(dg.compile(cube))(X), 3 * X**2)
    same(dg.compile(lambda x: dg.grad(dg.compile(cube))(x) * 2)(X), 6 * X**2)
    same(dg.grad(dg.compile(lambda x: dg.grad(cube)(x)[0]))(X), np.array([6 * X[0], 0, 0]))


def test_a_compiled_function_with_a_gradient_is_one_program(way: str) -> None:
    def step(p: Any, x: Any) -> Any:
        value, g = dg.value_and_grad(lambda p: np.sum((p["w"] * x + p["b"]) ** 2))(p)
        return value, {k: p[k] - 0.1 * g[k] for k in p}

    compiled = dg.compile(step)
    p = {"w": X, "b": Y}
    expected = step(p, X)
    same(compiled(p, X), expected)
    if way == "compiled":
        assert compiled.stats.compiles == 1 and not compiled.stats.breaks


def test_breaks_around_a_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    @dg.compile
    def f(x: Any) -> Any:
        y = x * 2
        dg.graph_break()
        g = dg.grad(lambda z: np.sum(z**2 * y))(x)
        print("between")
        return g + dg.jvp(cube, (x,), (x,))[1]

    same(f(X), 4 * X * X + np.sum(3 * X**3))
    assert capsys.readouterr().out == "between\n"


def test_one_program_serves_lambdas_made_anew(way: str) -> None:
    made = []
    for k in range(5):
        gradient = dg.grad(lambda x, k=float(k): np.sum(x**2) * k)
        same(gradient(X), 2 * k * X)
        made.append(gradient)
    assert all(g.program is made[0].program for g in made)
    if way == "compiled":
        assert made[0].program.stats.compiles <= 2 and not made[0].program.stats.breaks


def test_partials_of_one_function_share_a_program() -> None:
    gradients = [dg.grad(functools.partial(power, n=2)) for _ in range(40)]
    for gradient in gradients:
        same(gradient(X), 2 * X)


def test_many_ufuncs_have_gradients() -> None:
    names = [name for name in dir(np) if isinstance(getattr(np, name), np.ufunc) and getattr(np, name).nin == 1]
    found = 0
    for name in names:
        ufunc = getattr(np, name)
        if ufunc.nout == 1 and "d->d" in ufunc.types and name not in ("spacing", "arccosh", "acosh"):
            assert type(dg.grad(ufunc)(0.5)) is np.float64
            found += 1
    assert found > 25


def test_a_training_step_in_place_is_one_program(way: str) -> None:
    rng = np.random.default_rng(0)
    params = {"w1": rng.normal(size=(2, 8)), "b1": np.zeros(8), "w2": rng.normal(size=(8, 1)) * 0.3, "b2": np.zeros(1)}
    momentum = {k: np.zeros_like(v) for k, v in params.items()}
    x, y = rng.normal(size=(20, 2)), rng.normal(size=(20, 1))

    def loss(p: Any) -> Any:
        return np.mean((np.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"] - y) ** 2)

    @dg.compile
    def step(params: Any, momentum: Any) -> Any:
        value, gradients = dg.value_and_grad(loss)(params)
        for k in params:
            momentum[k] *= 0.9
            momentum[k] += gradients[k]
            params[k] -= 0.05 * momentum[k]
        return value

    kept = [id(v) for v in params.values()]
    values = [step(params, momentum) for _ in range(40)]
    assert values[-1] < 0.7 * values[0]
    assert kept == [id(v) for v in params.values()]
    if way == "compiled":
        assert step.stats.compiles == 1 and not step.stats.breaks


# -- what functions do to arrays --------------------------------------------------------------------------------------------------


def written(x: Any, y: Any) -> Any:
    a = np.zeros_like(x)
    a[:] = x * y
    a[1] = y[0] ** 2
    a += x
    a[x > 0] *= 2.0
    b = a[::-1]
    b[0] = a[0] * x[2]
    np.multiply(a, y, out=a)
    a[[0, 2]] = a[[2, 0]]
    return np.sum(a * np.arange(1.0, 4.0))


def views(x: Any) -> Any:
    a = x.copy()
    rows = a.reshape(3, 1)
    rows[1:] *= rows[:-1]
    a[:2] -= a[1:]
    flat = np.stack([a, a**2])
    flat.T[0] = 5.0
    first, second = flat
    second += first
    return np.sum(flat**2)


def loops(x: Any, n: int = 5) -> Any:
    state, total = x, 0.0
    for k in range(n):
        state = np.sin(state) + x / (k + 1)
        if k % 2:
            total = total + np.sum(state)
        else:
            total = total * 0.5 + state[k % 3]
    while n > 2:
        total, n = total * x[0], n - 1
    return total


def choices(x: Any, kind: str = "square") -> Any:
    functions = {"square": lambda v: v * v, "exp": np.exp}
    y = functions[kind](x)
    y = np.where(y > 1, np.log(y + 1), y)
    y = y if x.shape[0] > 2 and x.ndim == 1 else -y
    return sum(item for item in (y[0], y[1] * y[2]))


def rows_of_lists(x: Any) -> Any:
    parts = [x[k] * k for k in range(3)]
    parts.append(parts[0] + 1)
    return np.sum(np.array(parts) ** 2) + np.sum(np.array([[x[0], 1.0], [x[1], x[2]]]))


GLOBAL = np.array([3.0, 4.0, 5.0])


def closures(x: Any) -> Any:
    scale = x[0]

    def inner(v: Any) -> Any:
        return v * scale + GLOBAL

    return np.sum(functools.reduce(lambda a, f: f(a), [inner, np.sin, inner], x))


PROGRAMS = [written, views, loops, choices, rows_of_lists, closures]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_have_the_gradients_of_their_values(f: Any) -> None:
    args = (X, Y)[: f.__code__.co_argcount - len(f.__defaults__ or ())]
    before = [a.copy() for a in args]
    dg.check_grads(f, args, order=2, rtol=2e-6)
    gradient = dg.grad(f)
    gradient(*args)
    was_captured(gradient)
    for a, b in zip(args, before):
        np.testing.assert_array_equal(a, b)


def test_a_global_array_that_is_written_to() -> None:
    state = np.zeros(3)

    def f(x: Any) -> Any:
        state[:] = dg.stop_gradient(x) * 2
        return np.sum(x**2)

    same(dg.grad(f)(X), 2 * X)
    same(state, 2 * X)


def test_what_is_zero_has_zeros() -> None:
    same(dg.grad(lambda x, y: np.sum(y), (0, 1))(X, Y), (np.zeros(3), np.ones(3)))
    same(dg.grad(lambda x: np.sum(np.argmax(x)) * 1.0)(X), np.zeros(3))
    same(dg.grad(lambda x: 3.0)(X), np.zeros(3))
    same(dg.jvp(lambda x: Y, (X,), (X,))[1], np.zeros(3))
    same(dg.jacobian(lambda x: Y)(X), np.zeros((3, 3)))


def test_the_function_may_give_its_argument() -> None:
    same(dg.grad(lambda x: x)(2.0), np.float64(1.0))
    value, pull = dg.vjp(lambda x: x, X)
    same((value, pull(Y)), (X, (Y,)))
    value, pull = dg.vjp(lambda x, y: (x, y, x), X, Y)
    same(pull((Y, X, X)), (Y + X, X))
    same(dg.jvp(lambda x: (x, x[1:]), (X,), (Y,)), ((X, X[1:]), (Y, Y[1:])))


# -- checkpoint ---------------------------------------------------------------------------------------------------------------


def block(x: Any) -> Any:
    return np.sin(np.exp(np.cos(x)))


def test_checkpoints_have_the_same_gradients() -> None:
    plain = lambda x: np.sum(block(block(x) * x) ** 2)  # noqa: E731
    again = dg.checkpoint(block)
    same(dg.grad(lambda x: np.sum(again(again(x) * x) ** 2))(X), dg.grad(plain)(X))
    same(dg.grad(dg.checkpoint(lambda x: np.sum(again(again(x) * x) ** 2)))(X), dg.grad(plain)(X))
    same(dg.hessian(lambda x: np.sum(again(again(x) * x) ** 2))(X), dg.hessian(plain)(X))
    same(dg.jvp(again, (X,), (Y,)), dg.jvp(block, (X,), (Y,)))
    same(again(X), block(X))


def test_checkpoints_of_trees_and_closures() -> None:
    scale = np.float64(0.7)

    @dg.checkpoint
    def layer(p: Any, x: Any, *, bias: Any) -> Any:
        return {"y": np.tanh(p["w"] * x + bias) * scale, "n": 2}

    def f(w: Any, bias: Any) -> Any:
        out = layer({"w": w}, Y, bias=bias)
        return np.sum(out["y"] * out["n"])

    slope = 1.4 * (1 - np.tanh(X * Y + 0.5) ** 2)
    same(dg.grad(f, (0, 1))(X, 0.5), (slope * Y, np.float64(np.sum(slope))))


def test_a_checkpoint_takes_what_its_function_closes_over() -> None:
    f = lambda x: np.sum(dg.checkpoint(lambda y: np.exp(y * x))(2 * x))  # noqa: E731
    same(dg.grad(f)(X), 4 * X * np.exp(2 * X**2))


def test_the_graph_computes_a_checkpoint_again(way: str) -> None:
    again = dg.checkpoint(block)
    gradient = dg.grad(lambda x: np.sum(again(x) ** 2))
    plain = dg.grad(lambda x: np.sum(block(x) ** 2))
    gradient(X), plain(X)
    if way == "compiled":
        counts = [str(g.program.last_graph).count("= exp(") for g in (gradient, plain)]
        assert counts == [2, 1]


# -- custom_vjp ---------------------------------------------------------------------------------------------------------------


def rounded() -> Any:
    """Integer steps, through which the gradient passes as if there were none."""
    straight = dg.custom_vjp(lambda x: np.floor(x * 4).astype(np.int64) / 4)
    straight.defvjp(lambda x: (np.floor(x * 4).astype(np.int64) / 4, None), lambda kept, g: (g,))
    return straight


def test_a_gradient_of_ones_own() -> None:
    straight = rounded()
    same(straight(X), np.floor(X * 4) / 4)
    same(dg.grad(lambda x: np.sum(straight(x) * Y))(X), Y)
    same(dg.jvp(straight, (X,), (Y,)), (np.floor(X * 4) / 4, Y))
    same(dg.jacobian(straight)(X), np.eye(3))


def made_product() -> Any:
    product = dg.custom_vjp(lambda x, y: {"p": x * y})
    product.defvjp(lambda x, y: ({"p": x * y}, (x, y)), lambda kept, g: (g["p"] * kept[1], g["p"] * kept[0]))
    return product


def test_second_derivatives_pass_through_ones_own() -> None:
    product = made_product()
    f = lambda x, y: np.sum(product(x, y)["p"] ** 2)  # noqa: E731
    same(dg.grad(f, (0, 1))(X, Y), (2 * X * Y**2, 2 * X**2 * Y))
    same(dg.hessian(f)(X, Y), np.diag(2 * Y**2))
    same(dg.jacobian(dg.grad(f, 1))(X, Y), np.diag(4 * X * Y))
    dg.check_grads(f, (X, Y), order=2)


def test_none_is_no_gradient() -> None:
    scaled = dg.custom_vjp(lambda x, n: x * n)
    scaled.defvjp(lambda x, n: (x * n, n), lambda n, g: (g * n, None))
    same(dg.grad(lambda x, y: np.sum(scaled(x, y)), (0, 1))(X, Y), (Y, np.zeros(3)))
    same(dg.grad(lambda x: np.sum(scaled(x, 3)))(X), np.full(3, 3.0))


def test_trees_in_a_gradient_of_ones_own() -> None:
    f = dg.custom_vjp(lambda p: (p["a"] + p["b"], 3))
    f.defvjp(lambda p: ((p["a"] + p["b"], 3), p["a"]), lambda a, g: ({"a": g[0] * 10, "b": g[0] * a},))
    same(dg.grad(lambda a, b: np.sum(f({"a": a, "b": b})[0]), (0, 1))(X, Y), (np.full(3, 10.0), X))


def test_a_value_that_is_closed_over_has_no_gradient() -> None:
    def outer(x: Any) -> Any:
        f = dg.custom_vjp(lambda y: y * x)
        f.defvjp(lambda y: (y * x, None), lambda kept, g: (g,))
        return np.sum(f(2 * x))

    with pytest.raises(dg.GradientError, match=r"uses a value that is being differentiated and is none of its arguments"):
        dg.grad(outer)(X)


WRONG: dict[str, tuple[Any, str]] = {
    "no tuple": (lambda kept, g: g, r"backward must return a tuple of 1, one for each argument, got array\[3\]"),
    "too many": (lambda kept, g: (g, g), r"backward must return a tuple of 1, one for each argument"),
    "another shape": (lambda kept, g: (g[:2],), r"the gradient .*has shape \(2,\), and its argument has shape \(3,\)"),
    "another nesting": (lambda kept, g: ((g, g),), r"the gradients must be nested as the arguments are, array\[3\], got"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_gradients_of_ones_own_are_refused(name: str) -> None:
    backward, message = WRONG[name]
    f = dg.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), backward)
    with pytest.raises(dg.GradientError, match=message):
        dg.grad(lambda x: np.sum(f(x)))(X)


def test_custom_vjp_without_defvjp() -> None:
    @dg.custom_vjp
    def scaled(x: Any) -> Any:
        return 2 * x

    with pytest.raises(dg.GradientError, match=r"custom_vjp of .*scaled: say what its gradient is: .*\.defvjp\(forw"):
        dg.grad(lambda x: np.sum(scaled(x)))(X)


# -- stop_gradient -------------------------------------------------------------------------------------------------------------


def test_stop_gradient_is_a_constant() -> None:
    same(dg.grad(lambda x: np.sum(x * dg.stop_gradient(x)))(X), X)
    same(dg.grad(lambda x: np.sum(dg.stop_gradient({"x": x, "n": 1})["x"] * x))(X), X)
    same(dg.jvp(lambda x: dg.stop_gradient(x) * x, (X,), (Y,))[1], X * Y)
    same(dg.hessian(lambda x: np.sum(dg.stop_gradient(x) * x**2))(X), np.diag(2 * X))
    assert dg.stop_gradient(3) == 3 and dg.stop_gradient(X) is X
    same(dg.grad(lambda x: float(dg.stop_gradient(np.sum(x))) * x[0])(X), np.array([np.sum(X), 0, 0]))


def test_stop_gradient_of_an_inner_gradient_only() -> None:
    inner = lambda x, y: np.sum(dg.stop_gradient(y) * y * x)  # noqa: E731
    same(dg.grad(lambda x: np.sum(dg.grad(inner, 1)(x, 2 * x)))(X), 2 * X)


# -- check_grads ---------------------------------------------------------------------------------------------------------------


def wrong_by(share: float) -> Any:
    f = dg.custom_vjp(lambda x: np.sin(x))
    f.defvjp(lambda x: (np.sin(x), x), lambda x, g: (g * np.cos(x) * (1 + share),))
    return f


@pytest.mark.parametrize("modes", [("fwd",), ("rev",)])
def test_check_grads_finds_a_small_error(modes: tuple[str, ...]) -> None:
    dg.check_grads(wrong_by(0.0), (X,), modes=modes)
    with pytest.raises(AssertionError, match=r"along a random direction is .*by differences"):
        dg.check_grads(wrong_by(5e-4), (X,), modes=modes, order=1)


def test_check_grads_finds_an_error_of_second_order() -> None:
    f = dg.custom_vjp(lambda x: np.sin(x))
    f.defvjp(lambda x: (np.sin(x), (x, np.cos(x))), lambda kept, g: (g * dg.stop_gradient(np.cos(kept[0])),))
    dg.check_grads(f, (X,), order=1)
    with pytest.raises(AssertionError, match=r"the tangent of the tangent of .* along a random direction"):
        dg.check_grads(f, (X,), order=2)
    with pytest.raises(AssertionError, match=r"the gradient of the gradient of .* along a random direction"):
        dg.check_grads(f, (X,), order=2, modes=("rev",))


def test_check_grads_of_all_precisions_and_trees() -> None:
    dg.check_grads(lambda x: np.sum(np.sin(x)), (X.astype("f4"),))
    dg.check_grads(lambda p: {"a": p["x"] ** 2, "n": 3}, ({"x": X, "text": "t"},))
    dg.check_grads(lambda x, n: x**n, (0.7, 3))


def test_check_grads_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"check_grads: order=0: expected an integer of at least 1"):
        dg.check_grads(cube, (X,), order=0)
    with pytest.raises(ValueError, match=r"check_grads: modes=\('forward',\): expected 'fwd', 'rev' or both"):
        dg.check_grads(cube, (X,), modes=("forward",))
    with pytest.raises(TypeError, match=r"check_grads: args must be a tuple of arguments, got a ndarray"):
        dg.check_grads(cube, X)  # type: ignore[arg-type]
    with pytest.raises(dg.GradientError, match=r"check_grads: there is no float among the arguments"):
        dg.check_grads(lambda n: n * 2, (3,))


# -- breaks ------------------------------------------------------------------------------------------------------------------


def branch_on_data(x: Any) -> Any:
    return np.sum(x**2) if x[0] > 0 else np.sum(x**3)


def loop_on_data(x: Any) -> Any:
    y = x
    while np.sum(y**2) < 50:
        y = y * 1.5
    return np.sum(y)


def newton(x: Any) -> Any:
    y = np.float64(1.0)
    for _ in range(50):
        new = y - (y * y - x) / (2 * y)
        if abs(new - y) < 1e-12:
            break
        y = new
    return new


def printing(x: Any) -> Any:
    print("x is", x.shape)
    return np.sum(x**2)


def trying(x: Any) -> Any:
    try:
        return np.sum(x @ np.ones(4))
    except ValueError:
        return np.sum(x**2)


def appending(x: Any) -> Any:
    kept = []
    for item in x:
        if item > 0:
            kept.append(item**2)
    return sum(kept)


def not_captured(x: Any) -> Any:
    order = np.unique(dg.stop_gradient(np.round(x))).size
    return np.sum(x**2) * order


def generator(x: Any) -> Any:
    def items() -> Any:
        for k in range(len(x)):
            yield x[k] * k

    return sum(items())


def early(x: Any) -> Any:
    for k in range(3):
        if x[k] > 1:
            return x[k] ** 2 * x[0]
    return x[0]


def comparing(x: Any) -> Any:
    return max(x[0], x[2]) * min(x) + sorted([x[0], x[1]])[0] ** 2 + abs(x[1])


def by_integers(x: Any) -> Any:
    return x[int(np.argmax(x))] ** 2 * x[int(abs(x[1]))]


BREAKS: list[tuple[Any, Any]] = [
    (branch_on_data, X),
    (branch_on_data, -X),
    (loop_on_data, X),
    (newton, np.float64(2.0)),
    (printing, X),
    (trying, X),
    (appending, X),
    (not_captured, X),
    (generator, X),
    (early, X),
    (comparing, X),
    (by_integers, X),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("f", "x"), BREAKS, ids=lambda f: getattr(f, "__name__", ""))
def test_what_breaks_is_differentiated_all_the_same(f: Any, x: Any, capsys: pytest.CaptureFixture[str]) -> None:
    dg.check_grads(f, (x,), order=2, rtol=1e-5)
    value, gradient = dg.value_and_grad(f)(x)
    same(value, np.float64(f(x)))
    assert type(gradient) is type(x)
    got = dg.compile(lambda x: dg.grad(f)(x) * 2)(x)
    same(got, gradient * 2)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[1:], lambda x: x.reshape(3, 1)], ids=["whole", "slice", "reshaped"])
def test_what_is_returned_of_an_argument_may_be_written_to(part: Any) -> None:
    """It is the caller's, and not the caller's argument."""
    given = np.array([1.0, 2.0, 3.0])
    _, returned = dg.grad(lambda x: (np.sum(x), part(x)), has_aux=True)(given)
    np.testing.assert_array_equal(returned, part(given))
    returned[:] = 9.0
    np.testing.assert_array_equal(given, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("x", [[1.5, 0.5, 2.0, 3.0], [1.5, 0.0, 2.0, 3.0], [1.5, 0.0, 2.0, 0.0], [0.0, 0.0, 2.0, 0.5]])
def test_second_derivatives_of_running_products_behind_zeros(x: list[float], way: str) -> None:
    weight, n = np.arange(1.0, 5.0), 4
    want = np.zeros((n, n))
    for a, b in [(a, b) for a in range(n) for b in range(n) if a != b]:
        want[a, b] = sum(weight[k] * math.prod(x[i] for i in range(k + 1) if i not in (a, b)) for k in range(max(a, b), n))

    def f(x: Any) -> Any:
        return np.sum(weight * np.cumprod(x))

    point = np.array(x)
    np.testing.assert_allclose(dg.grad(lambda x: np.sum(dg.grad(f)(x) * weight))(point), want @ weight, rtol=1e-12)
    np.testing.assert_allclose(dg.hessian(f)(point), want, rtol=1e-12)
