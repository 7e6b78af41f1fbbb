"""What stands for an array while plain Python is differentiated: it does what the array does, and nothing is lost in silence."""

from __future__ import annotations

import copy
import gc
import itertools
import operator
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.autodiff import recipes, tape

X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.4, -0.7])
M = np.array([[0.5, 1.5, -1.0], [2.0, -0.3, 0.8]])


@pytest.fixture(autouse=True)
def plainly() -> Iterator[None]:
    with dg.disable():
        yield
    assert not is_open()


def is_open() -> bool:
    reference = getattr(tape._thread, "tape", None)
    found = reference() if reference is not None else None
    return found is not None and bool(found.open)


def inside(look: Callable[[Any], Any], x: Any = X) -> Any:
    """What `look` sees of a value that is being differentiated."""
    return dg.grad(lambda x: (np.sum(x) * 1.0, look(x)), has_aux=True)(x)[1]


def check(f: Callable[..., Any], *args: Any) -> None:
    """The gradient on the tape is that of differences, and what the function gives is what it gives plainly."""
    dg.check_grads(f, args, order=1)
    value, _ = dg.vjp(f, *args)
    np.testing.assert_array_equal(value, f(*args))
    assert type(value) is type(f(*args))


# -- operators ------------------------------------------------------------------------------------------------------------

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod, operator.floordiv]
IN_PLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imod]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_operators_and_reflected_ones(op: Any) -> None:
    positive = np.abs(X)
    for other in (Y + 2.03, 1.7, 2, np.float64(1.7), [1.1, 2.3, 0.7], np.array(1.7)):
        check(lambda x, other=other: op(x, other) * x, positive)
        check(lambda x, other=other: op(other, x) * x, positive)
    check(lambda x, y: op(x, y) * x, positive, Y + 2)
    check(lambda x: op(x, np.float32(1.5)) * x, np.float64(0.7))
    check(lambda x: op(1.5, x) * x, np.float64(0.7))


@pytest.mark.parametrize("op", IN_PLACE, ids=lambda op: op.__name__)
def test_operators_in_place(op: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        a = x * 1.5
        same = a
        a = op(a, y)
        a = op(a, 2.0)
        assert same is a
        return a * x

    check(f, np.abs(X), Y + 2)
    check(lambda x: op(x, 1.5) * x, np.float64(0.7))


def test_matrix_products_and_signs() -> None:
    check(lambda m, x: m @ x, M, X)
    check(lambda m: M @ m.T @ m, M)
    check(lambda x: x @ x, X)
    check(lambda x: [1.0, 2.0, 3.0] @ x, X)
    check(lambda x: -x * +x + abs(x) * x, X)
    check(lambda x: divmod(x, 0.7)[1] * pow(x, 2), X)


def test_comparisons_are_plain() -> None:
    for op in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        got = inside(lambda x, op=op: op(x, 0.3))
        assert type(got) is np.ndarray and got.dtype == bool
        np.testing.assert_array_equal(got, op(X, 0.3))
        assert type(inside(lambda x, op=op: op(x[0], x[1]))) is np.bool_
    assert inside(lambda x: bool(x[0]) and not x[0] < 0) is True
    assert inside(lambda x: 2.5 in x) and not inside(lambda x: 7 in x)


def test_integers_made_of_values_are_plain() -> None:
    assert type(inside(lambda x: x.astype(int))) is np.ndarray
    assert type(inside(lambda x: np.argmax(x))) is np.int64
    assert inside(lambda x: [int(x[2]), round(x[2]), x.argmin()]) == [2, 2, 1]
    assert type(inside(lambda x: (x > 0) & (x < 1))) is np.ndarray
    check(lambda x: x ** x.astype(int), np.abs(X))


# -- attributes and methods ---------------------------------------------------------------------------------------------------


def test_attributes() -> None:
    assert inside(lambda m: (m.shape, m.ndim, m.size, m.dtype, len(m), m.nbytes), M) == ((2, 3), 2, 6, np.dtype("f8"), 2, 48)
    assert inside(lambda x: isinstance(x, np.ndarray) and isinstance(x[0], np.float64) and isinstance(x[0], float))
    assert inside(lambda x: [hasattr(x, "T"), hasattr(x, "nothing")]) == [True, False]
    assert inside(lambda x: x.flags.c_contiguous) is True
    check(lambda m: m.T @ m.real + m.imag.sum(), M)
    check(lambda m: m.mT[0] * m.flat[3], M)


METHODS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda m: m.sum(axis=0) * m.sum(),
    "mean": lambda m: m.mean(1, keepdims=True) * m,
    "prod": lambda m: m.prod(),
    "max": lambda m: m.max(0) * m.min(),
    "std": lambda m: m.std() + m.var(ddof=1),
    "cumsum": lambda m: m.cumsum() * m.cumprod(),
    "reshape": lambda m: m.reshape(3, 2) @ m,
    "ravel": lambda m: m.ravel() * m.flatten(),
    "transpose": lambda m: m.transpose() @ m.swapaxes(0, 1).T,
    "clip": lambda m: m.clip(-0.6, 0.9) * m,
    "dot": lambda m: m.dot(m.T),
    "take": lambda m: m.take([0, 0, 3]) * m.ravel()[:3],
    "astype": lambda m: m.astype("f8") * m.astype(float, copy=False),
    "copy": lambda m: copy.copy(m) * copy.deepcopy(m) * m.copy(),
    "diagonal": lambda m: m.diagonal() * m.trace(),
    "repeat": lambda m: m.repeat(2) * m.repeat(2),
    "squeeze": lambda m: m[None].squeeze() * m,
    "round": lambda m: m.round(1) * m,
    "conj": lambda m: m.conj() * m,
    "compress": lambda m: m.compress([True, False], axis=0) * m[0],
    "choose": lambda m: np.array([0, 1, 1]).choose(m) * m[0],
    "searchsorted": lambda m: m * np.sort(m.ravel()).searchsorted(0.1),
    "dunder": lambda m: m.__add__(m).__mul__(m),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    check(METHODS[name], M)


def test_methods_of_ufuncs() -> None:
    check(lambda m: np.add.reduce(m, axis=1) * np.multiply.reduce(m, axis=None), M)
    check(lambda x: np.add.accumulate(x) * np.subtract.outer(x, x), X)
    check(lambda x: np.add(x, 1.0, where=x > 0, out=np.zeros_like(x)) * x, X)


def test_iteration_and_unpacking() -> None:
    check(lambda m: sum(row * row[0] for row in m), M)
    check(lambda m: sum(a * b * c for a, b, c in m), M)
    check(lambda x: np.stack([item * k for k, item in enumerate(reversed(list(x)))]), X)
    check(lambda x: max(x) * min(x) * sorted(x)[1], X)
    check(lambda x: np.prod([a * b for a, b in itertools.pairwise(x)]), X)


def test_lists_of_values() -> None:
    check(lambda x: np.array([x[0], x[1] * x[2], 1.0]) ** 2, X)
    check(lambda x: np.array([[x[0], 2.0], [x[1], x[2]]]) @ np.array([x[0], 1.0]), X)
    check(lambda x: np.concatenate([x, [x[0]], Y * x]), X)
    check(lambda x: np.stack([x, np.ones(3)]) * x, X)
    check(lambda x: np.sum([x[0], x[1] ** 2]) * np.max([x[0], x[2]]), X)
    check(lambda x: np.where(X > 0, [x[0], x[1], 3.0], x), X)
    check(lambda x: np.asarray([x, x * 2]), X)
    check(lambda x: np.dot([x[0], x[1]], [x[1], x[2]]), X)


# -- what would lose a gradient ----------------------------------------------------------------------------------------------------

LOSSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "float": (lambda x: float(x[0]) * x, r"float\(\) of a value that is being differentiated would lose its gradient"),
    "complex": (lambda x: complex(x[0]).real * x, r"complex\(\) of a value that is being differentiated would lose its gradient"),
    "item": (lambda x: x[0].item() * x, r"no gradient passes through \.item\(\)"),
    "tolist": (lambda x: np.array(x.tolist()), r"no gradient passes through \.tolist\(\)"),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), r"a pickle of a value .* would lose its gradient"),
    "bytes": (lambda x: np.frombuffer(x.tobytes()), r"no gradient passes through \.tobytes\(\)"),
    "out": (lambda x: np.exp(x, out=np.zeros(3)), r"np\.exp writes a value that is being differentiated into a plain array"),
    "operator in place": (lambda x: operator.iadd(np.zeros(3), x), r"np\.add writes a value .* into a plain array"),
    "copyto": (lambda x: _into(np.copyto, x), r"np\.copyto writes a value .* into a plain array; make the array of one that is"),
    "put": (lambda x: _into(lambda a, x: np.put(a, [0, 1], x[:2]), x), r"np\.put writes a value .* into a plain array"),
    "add.at": (lambda x: _into(lambda a, x: np.add.at(a, [0, 1], x[:2]), x), r"np\.add\.at writes a value .* into a plain array"),
    "fill_diagonal": (
        lambda x: _into(lambda a, x: np.fill_diagonal(a, x[0]), x, (3, 3)),
        r"float\(\) of a value .* would lose its gradient; .* np\.zeros_like\(x\)",
    ),
    "attribute": (lambda x: setattr(x, "shape", (3, 1)), r"\.shape of a value .* is set; make a new array"),
}


def _into(write: Callable[[Any, Any], Any], x: Any, shape: Any = 3) -> Any:
    plain = np.zeros(shape)
    write(plain, x)
    return np.sum(plain)


@pytest.mark.parametrize("name", LOSSES)
def test_what_would_lose_a_gradient_says_so(name: str) -> None:
    f, message = LOSSES[name]
    with pytest.raises(dg.GradientError, match=rf"^test_tape\.py:\d+: {message}"):
        dg.grad(lambda x: np.sum(f(x)))(X)


def test_assignments_to_plain_arrays_say_so() -> None:
    def f(x: Any) -> Any:
        plain = np.zeros(3)
        plain[:] = x
        return np.sum(plain)

    with pytest.raises(dg.GradientError, match=r"would lose its gradient; .* np\.zeros_like\(x\)"):
        dg.grad(f)(X)


def test_arrays_like_others_can_be_written_to() -> None:
    def f(x: Any) -> Any:
        a, b = np.zeros_like(x), np.full_like(x, 2.0)
        for k in range(3):
            a[k] = x[k] * b[k - 1]
            b[k] = a[k] + 1
        np.copyto(b, x * 2, where=X > 0)
        return a * b

    check(f, X)


def test_constants_may_leave() -> None:
    assert type(inside(lambda x: float(dg.stop_gradient(x[0])))) is float
    assert type(inside(lambda x: np.zeros_like(x))) is np.ndarray
    assert inside(lambda x: float(np.ones_like(x)[0])) == 1.0


def test_texts_show_the_value() -> None:
    assert inside(lambda x: f"{x[0]:.2f} {x[0]} {x!s}") == f"0.30 0.3 {X}"
    assert inside(lambda x: repr(x[0])) == "<being differentiated: np.float64(0.3)>"
    assert inside(lambda x: hash(x[0])) == hash(np.float64(0.3))


# -- writes ------------------------------------------------------------------------------------------------------------------


def after_use(x: Any, y: Any) -> Any:
    a = x * 2
    first = np.sin(a) * a**2
    a[0] = y[0]
    a *= 3
    second = np.exp(a / 10)
    a[:] = 0.0
    return first * second + a


def through_views(x: Any, y: Any) -> Any:
    a = x * 1.5
    view = a[::-1]
    square = view * view
    view[:2] = y[:2] * 2
    a.reshape(3, 1)[1:] -= y[1:, None]
    return a * square * view


def masks_and_places(x: Any, y: Any) -> Any:
    a = x.copy()
    a[a > 0] = y[a > 0] ** 2
    a[[2, 0]] += y[:2]
    np.add.at(a, [0, 0, 1], x)
    a.sort()
    return a * np.arange(3.0)


def rows(x: Any, y: Any) -> Any:
    m = np.zeros((4, 3)) * x
    m[0] = x
    for k in range(1, 4):
        m[k] = np.tanh(m[k - 1] * y)
        m[k - 1, 0] += 1
    return m


def swapped(x: Any, y: Any) -> Any:
    a = np.stack([x, y])
    a[0], a[1] = a[1].copy(), a[0].copy()
    a[0, :2], a[1, 1:] = a[0, 1:] * 2, a[1, :2] * 3
    return a**2


def out_arguments(x: Any, y: Any) -> Any:
    a = x * 1.0
    np.multiply(a, y, out=a)
    np.sin(a, out=a[:])
    np.exp(x, out=a, where=X > 0)
    return a * x


@pytest.mark.parametrize("f", [after_use, through_views, masks_and_places, rows, swapped, out_arguments], ids=lambda f: f.__name__)
def test_writes_do_not_disturb_what_gradients_need(f: Any) -> None:
    check(f, X, Y)
    want = dg.vjp(f, X, Y)[1](f(X, Y))
    np.testing.assert_allclose(want, compiled_vjp(f)[0], rtol=1e-12)


def compiled_vjp(f: Any) -> Any:
    """The same from a thread in which nothing is disabled."""
    found: list[Any] = []
    enabled = threading.Thread(target=lambda: found.append(dg.vjp(f, X, Y)[1](f(X, Y))))
    enabled.start()
    enabled.join()
    return found


def test_plain_arrays_that_change_after_use() -> None:
    weight, kept = Y.copy(), np.zeros(3)

    def f(x: Any) -> Any:
        product = x * weight
        weight[:] = 100.0
        kept[:] = dg.stop_gradient(product)
        return np.sum(product * x)

    np.testing.assert_allclose(dg.grad(f)(X), 2 * X * Y)
    np.testing.assert_allclose(kept, X * Y)


def test_memory_that_changes_before_the_pull() -> None:
    x, y = X.copy(), Y.copy()
    value, pull = dg.vjp(lambda x: np.exp(x * y), x)
    want = pull(np.ones(3))[0].copy()
    value[:] = 0.0
    x[:] = 5.0
    y[:] = 7.0
    np.testing.assert_array_equal(pull(np.ones(3))[0], want)
    np.testing.assert_allclose(want, Y * np.exp(X * Y))


def test_arguments_may_not_be_written_to() -> None:
    def assign(x: Any) -> None:
        x[0] = 1.0

    def add(x: Any) -> None:
        x += 1.0

    others = [lambda x: np.exp(x, out=x), lambda x: x.sort(), lambda x: x[1:].fill(0.0), lambda x: np.put(x, 0, 1.0)]
    for write in (assign, add, *others):
        x = X.copy()
        with pytest.raises((dg.GradientError, ValueError), match=r"write to a copy of it: x = x\.copy\(\)|read-only"):
            dg.grad(lambda x, write=write: (write(x), np.sum(x))[1])(x)
        np.testing.assert_array_equal(x, X)


# -- lives ---------------------------------------------------------------------------------------------------------------------


def test_memory_is_let_go_with_the_level() -> None:
    seen: list[weakref.ref[Any]] = []

    def f(x: Any) -> Any:
        a = np.exp(x * 2)
        seen.append(weakref.ref(a.value))
        b = a.reshape(1, 3) @ np.ones((3, 2))
        seen.append(weakref.ref(b.value))
        for row in b:
            seen.append(weakref.ref(row.value))
        return np.sum(b)

    gc.collect()
    gc.disable()
    try:
        dg.value_and_grad(f)(X)
        assert [r() for r in seen] == [None] * 3
        seen.clear()
        dg.jvp(f, (X,), (X,))
        dg.hessian(f)(X)
        assert len(seen) > 3 and all(r() is None for r in seen)
        seen.clear()
        _, pull = dg.vjp(f, X)
        pull(1.0)
        assert any(r() is not None for r in seen)
        del pull
        assert all(r() is None for r in seen)
    finally:
        gc.enable()


def test_functions_that_are_called_out_leave_no_cycle() -> None:
    seen: list[weakref.ref[Any]] = []

    def f(x: Any) -> Any:
        a = np.outer(x, x) + np.eye(3)
        seen.append(weakref.ref(a.value))
        return np.sum(np.linalg.inv(a)) + np.sum(np.sort(a.ravel())) + np.median(a)

    gc.collect()
    gc.disable()
    try:
        dg.grad(f)(X)
        assert [r() for r in seen] == [None]
    finally:
        gc.enable()


def test_memory_of_a_part_is_let_go_with_the_level() -> None:
    seen: list[weakref.ref[Any]] = []

    @dg.custom_vjp
    def double(x: Any) -> Any:
        a = x * 2.0
        seen.append(weakref.ref(a.value))
        return a

    double.defvjp(lambda x: (x * 2.0, None), lambda kept, g: (g * 2.0,))
    gc.collect()
    gc.disable()
    try:
        np.testing.assert_array_equal(dg.grad(lambda x: np.sum(double(np.exp(x))))(np.zeros(3)), np.full(3, 2.0))
        dg.grad(lambda x: np.sum(dg.grad(lambda x: np.sum(double(x) ** 2))(x)))(X)
        assert len(seen) == 2 and seen[0]() is None and seen[1]() is None
    finally:
        gc.enable()


def test_memory_of_a_checkpoint_is_let_go_within() -> None:
    seen: list[weakref.ref[Any]] = []

    @dg.checkpoint
    def block(x: Any) -> Any:
        a = np.exp(x)
        seen.append(weakref.ref(a.value))
        return np.sin(a)

    def f(x: Any) -> Any:
        y = block(x)
        assert seen[0]() is None
        return np.sum(y)

    dg.grad(f)(X)


def test_an_exception_leaves_no_level_open() -> None:
    class Mine(Exception):
        pass

    def f(x: Any) -> Any:
        y = np.exp(x)
        if np.sum(y) > 0:
            raise Mine("of the function")
        return np.sum(y)

    twice = dg.grad(dg.grad(f))
    for call in (lambda: dg.grad(f)(X), lambda: dg.vjp(f, X), lambda: dg.hvp(f, (X,), (X,)), lambda: twice(0.5)):
        with pytest.raises(Mine, match="of the function"):
            call()
        assert not is_open()
    np.testing.assert_allclose(dg.grad(lambda x: np.sum(x**2))(X), 2 * X)


def test_a_kept_exception_does_no_harm() -> None:
    kept: list[Exception] = []

    def inner(x: Any) -> Any:
        raise ValueError("kept")

    def f(x: Any) -> Any:
        try:
            dg.grad(inner)(x)
        except ValueError as error:
            kept.append(error)
        return np.sum(x**2)

    for _ in range(3):
        got = dg.grad(f)(X)
        assert type(got) is np.ndarray
        np.testing.assert_allclose(got, 2 * X)
        assert type(dg.jvp(dg.grad(f), (X,), (X,))[1]) is np.ndarray
    kept.clear()
    gc.collect()


def test_what_leaks_is_a_plain_number_afterwards() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.extend([x * 2, x[0], np.zeros_like(x)])
        return np.sum(x)

    dg.grad(f)(X)
    array, scalar, zeros = kept
    for got in (array + 1, 1 + array, np.add(array, 1), array.__add__(1), np.sum([array, np.ones(3)], axis=0)):
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, X * 2 + 1)
    assert float(scalar) == 0.3 and scalar.item() == 0.3 and array.sum() == np.sum(X * 2)
    assert type(array.T) is np.ndarray and type(array[0]) is np.float64 and list(array) == list(X * 2)
    assert -scalar == -0.3 and divmod(scalar, 1.0) == divmod(0.3, 1.0) and array.tolist() == (X * 2).tolist()
    array[0] = 9.0
    array += 1.0
    assert array[0] == 10.0
    np.testing.assert_allclose(dg.grad(lambda x: np.sum(x * scalar * kept[0]))(X), 0.3 * kept[0].value)
    np.testing.assert_allclose(dg.grad(lambda x: np.sum(scalar * x + kept[0] * x))(X), 0.3 + kept[0].value)
    np.testing.assert_allclose(dg.grad(lambda x: np.sum(np.stack([kept[0], x])))(X), np.ones(3))
    assert zeros.value.tolist() == [0.0] * 3


def test_what_leaks_of_an_inner_level_keeps_the_outer_gradient() -> None:
    kept: list[Any] = []

    def inner(y: Any, x: Any) -> Any:
        kept.append(x * y)
        return np.sum(y**2)

    def outer(x: Any) -> Any:
        dg.grad(inner)(2.0 * Y, x)
        return np.sum(kept[-1])

    np.testing.assert_allclose(dg.grad(outer)(X), 2 * Y)


def test_levels_are_of_one_thread() -> None:
    results: dict[int, Any] = {}
    barrier = threading.Barrier(4, timeout=30)

    def work(n: int) -> None:
        with dg.disable():

            def f(x: Any) -> Any:
                y = x * n
                barrier.wait()
                y = np.sin(y) * dg.grad(lambda z: np.sum(z**2 * n))(x)
                barrier.wait()
                return np.sum(y)

            results[n] = dg.grad(f)(X)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(1, 5):
        np.testing.assert_allclose(results[n], n * np.cos(n * X) * 2 * n * X + np.sin(n * X) * 2 * n, rtol=1e-12)


def test_long_loops_need_no_deep_stack() -> None:
    def f(x: Any) -> Any:
        for _ in range(3000):
            x = x * 0.999 + 0.001
        return np.sum(x)

    np.testing.assert_allclose(dg.grad(f)(X), np.full(3, 0.999**3000))


def test_real_if_close_is_what_it_is_in_this_run() -> None:
    def of(imag: float) -> Any:
        return dg.grad(lambda x: np.abs(np.sum(np.real_if_close(x * (1 + imag * 1j)) ** 2)))(np.array([1.0, 2.0]))

    np.testing.assert_allclose(of(0.0), [2.0, 4.0])
    np.testing.assert_allclose(of(1.0), [4.0, 8.0])  # abs((1 + 1j) ** 2) is 2


# -- how steps are recorded ------------------------------------------------------------------------------------------------------


def test_steps_that_are_alike_are_asked_of_the_tables_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    make = tape.recipe_of
    monkeypatch.setattr(tape, "recipe_of", lambda *args: asked.append(args) or make(*args))

    def f(m: Any) -> Any:
        for k in range(6):
            m = np.tanh(m @ M.T @ M) * 0.9 + m[k % 2] / np.sqrt((m**2).sum())
        return np.mean(m)

    recipes.RECIPES.clear()
    first = dg.grad(f)(M)
    assert 0 < len(asked) < 10
    asked.clear()
    np.testing.assert_array_equal(dg.grad(f)(M), first)
    assert not asked


LOOK_ALIKE: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda x: x[0] * x, lambda x: x[1] * x),
    (lambda x: x[:2] * x[0], lambda x: x[1:] * x[0]),
    (lambda x: np.clip(x, -1.0, 0.5) * x, lambda x: np.clip(x, -1.0, 3.0) * x),
    (lambda x: abs(x) ** 2, lambda x: abs(x) ** 2.0),
    (lambda x: np.copysign(x, np.where(X > 0, 0.0, -0.0)), lambda x: np.copysign(x, np.where(X > 0, -0.0, 0.0))),
    (lambda x: x[np.array([True, False, True])] ** 2, lambda x: x[np.array([False, True, True])] ** 2),
    (lambda x: x[[0, 0, 1]] ** 2, lambda x: x[[2, 0, 1]] ** 2),
    (lambda x: np.repeat(x, np.array([1, 2, 0])) ** 2, lambda x: np.repeat(x, np.array([0, 2, 1])) ** 2),
    (lambda x: np.ravel(np.stack([x, x**2]), order="K"), lambda x: np.ravel(np.stack([x, x**2]).T, order="K")),
    (lambda x: x.reshape(3, 1) * x, lambda x: x.reshape(1, 3) * x),
    (lambda x: np.sum([x, x * x], axis=0), lambda x: np.sum([x, x * x], axis=1)),
    (lambda x: x * True, lambda x: x * 1),
]


@pytest.mark.parametrize("pair", LOOK_ALIKE)
def test_steps_that_look_alike_are_told_apart(pair: Any) -> None:
    for f in (*pair, *pair):
        check(f, X)


def is_noted(x: Any) -> bool:
    tape = getattr(x, "tape", None)
    return tape is not None and tape.has_notes


def test_a_tape_changes_over_where_arrays_do_not_tell() -> None:
    changed: list[bool] = []

    def f(x: Any) -> Any:
        y = np.sin(x) * 2.0
        view, total = y[1:], np.sum(y * y)
        later = y.reshape(3, 1).T
        changed.append(is_noted(x))
        view[0] = total * x[0]
        changed.append(is_noted(x))
        return np.sum(y * x) + view[0] * later[0, 1] + total

    dg.check_grads(f, (X,), order=2)
    changed.clear()
    dg.grad(f)(X)
    assert changed == [False, True]
    changed.clear()
    dg.grad(lambda x: np.sum(x[:2] * np.exp(x).reshape(3, 1)[0]) * (changed.append(is_noted(x)) or 1.0))(X)
    assert changed == [False]


def test_tangents_of_what_was_recorded() -> None:
    def f(x: Any) -> Any:
        m = np.outer(x, x) + np.where(x > 0, np.sort(x), 0.0)
        return np.sum(np.max(m, axis=0) / np.linalg.norm(x)) * np.mean(x[::-1] ** 3)

    h = dg.hessian(f)(X)
    np.testing.assert_allclose(dg.jacobian(dg.grad(f), mode="rev")(X), h, rtol=1e-12)
    np.testing.assert_allclose(dg.grad(lambda x: np.sum(dg.grad(f)(x) * Y))(X), h @ Y, rtol=1e-12)
    np.testing.assert_allclose(dg.hvp(f, (X,), (Y,))[0], h @ Y, rtol=1e-12)
    third = dg.grad(lambda x: np.sum(dg.grad(lambda x: np.sum(dg.grad(f)(x) * Y))(x) * Y))
    np.testing.assert_allclose(third(X), dg.jvp(lambda x: dg.hvp(f, (x,), (Y,))[0], (X,), (Y,))[1], rtol=1e-10)


def test_what_is_not_chosen_gets_zero_behind_infinite_slopes() -> None:
    zero = np.array([0.0, 1.0, 4.0])

    def f(x: Any) -> Any:
        return np.sum(np.where(x > 0, np.log(x), 0.0) + np.where(x > 0, np.sqrt(x), 0.0))

    with np.errstate(all="ignore"):
        got, twice = dg.grad(f)(zero), dg.grad(lambda x: np.sum(dg.grad(f)(x)))(zero)
        ties = dg.grad(lambda x: np.sum(np.maximum(np.sqrt(x), 0.5)))(zero)
    np.testing.assert_allclose(got, [0.0, 1.5, 0.5])
    np.testing.assert_allclose(twice, [0.0, -1.25, -0.09375])
    np.testing.assert_allclose(ties, [0.0, 0.5, 0.25])


def test_changes_of_dtype_are_recorded() -> None:
    check(lambda x: (x.astype(complex) * (1 + 2j)).real * x.astype(np.float64), X)
    got = dg.grad(lambda x: np.sum(x.astype(np.float64) * Y) + x[0] * np.float32(2.0))(X.astype(np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, Y + [2.0, 0.0, 0.0], rtol=1e-6)


def of_a_weight(x):
    w = np.full(3, 2.0)
    y = (x * w).sum()
    w[:] = 100.0
    return y


def of_places(x):
    at = np.array([0, 0, 2])
    y = x[at]
    at[:] = 1
    return (y * np.array([1.0, 2.0, 3.0])).sum()


def of_a_mask(x):
    mask = np.array([True, False, True])
    y = np.where(mask, x, 0)
    mask[:] = False
    return y.sum()


@pytest.mark.parametrize(("function", "wanted"), [(of_a_weight, [2, 2, 2]), (of_places, [3, 0, 3]), (of_a_mask, [1, 0, 1])])
def test_plain_arrays_that_are_written_to_after_they_were_read(function, wanted):
    with dg.disable():
        np.testing.assert_array_equal(dg.grad(function)(np.arange(1.0, 4.0)), wanted)
