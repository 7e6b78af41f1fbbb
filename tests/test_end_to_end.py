"""Whole programs: what a compiled function gives, against the plain function, and that nothing stale is ever served."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.ir import dtypes

SCALE = 3
TABLE = {"double": lambda v: v * 2, "half": lambda v: v / 2}
X = np.arange(12.0).reshape(3, 4) / 7 - 0.5


def same(got, want) -> None:
    """Equal in type, dtype, shape and value, all the way down."""
    assert type(got) is type(want), (type(got), type(want))
    if isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.shape == want.shape
        assert got.flags.writeable == want.flags.writeable
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    elif isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            same(got[key], want[key])
    elif isinstance(want, np.generic):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    else:
        assert got == want


def check(function, *args, **kwargs):
    """The compiled function, after two calls that agree with the plain one, the second of which compiled nothing."""
    compiled = dg.compile(function, fullgraph=True)
    same(compiled(*args, **kwargs), function(*args, **kwargs))
    same(compiled(*args, **kwargs), function(*args, **kwargs))
    assert (compiled.stats.hits, compiled.stats.compiles, compiled.stats.fallbacks) == (1, 1, 0)
    return compiled


class Layer:
    scale = 2.0

    def __init__(self) -> None:
        self.w = np.full((4, 2), 0.5)

    @property
    def doubled(self):
        return self.w * 2

    @staticmethod
    def shift(x):
        return x + 1

    def __call__(self, x):
        return self.shift(x @ self.doubled) * self.scale


LAYER = Layer()


def branches(x, flag=True, *, k=2):
    if flag and k > 1:
        y = x * k
    elif k:
        y = x
    else:
        y = -x
    return y if x.shape[0] == 3 else y + 1


def loops(x):
    total = x * 0
    for k in range(5):
        if k == 1:
            continue
        if k == 4:
            break
        for row in x:
            total = total + row * k
    else:
        total = total * 100
    n = 0
    while n < 3:
        total, n = total + n, n + 1
    return total


def containers(x):
    parts = [x[i] * i for i in range(3) if i != 1]
    first, *rest = [*parts, x.sum()]
    named = {"a": first, **{f"k{i}": v for i, v in enumerate(rest)}}
    named.update(b=x.T)
    return named, (len(parts), x.shape, x.ndim), [p.mean() for p in parts]


def helpers(x):
    def inner(v, *more, k=1, **named):
        return v * k + sum(more) + named.get("extra", 0)

    add = functools.partial(inner, k=2)
    return add(x, 1, 2, extra=5), TABLE["double"](x), (lambda v: v - SCALE)(x)


def recursive(x, depth=3):
    return x if depth == 0 else recursive(x * 0.5, depth - 1) + depth


def walrus_and_chains(x, a=2):
    if (n := x.shape[1]) > 3 and 1 < a <= 2:
        return x * n, f"{n}-{a:03d}"
    return x


def in_place_on_fresh(x):
    y = x * 2
    alias = y
    y += 1
    y *= x
    return y, alias


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def numpy_mix(x):
    y = np.where(x > 0, np.log1p(np.abs(x)), np.minimum(x, -x))
    z = np.concatenate([y, np.zeros((1, 4))]).reshape(2, -1)
    return y.clip(-0.25, 0.25), z.T, np.linalg.norm(x), x.argmax(axis=1), x.std(axis=0, ddof=1), (x @ x.T).astype(np.float32)


def in_order(x):
    return math.sqrt(4.0) * x, min(3, 1), sorted([3, 1, 2]), [*zip("ab", (1, 2))], x.dtype == np.float64


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        branches,
        loops,
        containers,
        helpers,
        recursive,
        walrus_and_chains,
        in_place_on_fresh,
        softmax,
        numpy_mix,
        in_order,
        lambda x: LAYER(x),
        lambda x: x.T,
        lambda x: x[1],
        lambda x: x[1, 2],
        lambda x: x.sum(),
        lambda x: (x, x[::2], x + 1),
    ],
    ids=lambda f: f.__name__,
)
def test_programs(function):
    check(function, X)


SCALARS = (2, 2.5, True, np.float32(2), np.int64(3), np.bool_(True), np.int8(-3), np.uint16(7), np.uint64(2**64 - 1))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("args", [(scalar,) for scalar in SCALARS])
@pytest.mark.parametrize("dtype", [d.numpy.type for d in dtypes.ALL])
def test_scalars_promote_as_numpy_does(args, dtype):
    check(lambda x, k: (x * k, k + x), (X > 0).astype(dtype), *args)


@pytest.mark.parametrize("exponent", [0.5, np.float64(0.5), np.array(0.5), np.full((3, 1), 0.5), np.full(4, 0.5), np.float64(1.5)])
def test_powers_treat_special_values_as_numpy_does(exponent):
    x = np.tile([-0.0, -np.inf, 4.0, -4.0], (3, 1))
    with np.errstate(all="ignore"):
        want = np.power(x, exponent)
        got = dg.compile(lambda x, e: np.power(x, e), fullgraph=True)(x, exponent)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_results_alias_what_eager_aliases():
    compiled = check(lambda x: (x, x.T, x[1:], (x + 1).T), X)
    same_object, transposed, rest, fresh = compiled(X)
    assert same_object is X
    assert np.shares_memory(transposed, X) and np.shares_memory(rest, X) and rest.base is X[1:].base
    assert not np.shares_memory(fresh, X) and fresh.base is not None


def test_one_object_stays_one_object():
    compiled = check(lambda x: (lambda y: [y, y, {"again": y}])(x * 2), X)
    first, second, third = compiled(X)
    assert first is second is third["again"]


def test_broadcast_results_are_read_only():
    assert not check(lambda x: np.broadcast_to(x[0], (3, 4)), X)(X).flags.writeable


def test_dynamic_sizes_take_one_program():
    compiled = dg.compile(softmax, dynamic=True, fullgraph=True)
    for n in (4, 5, 6, 100):
        x = np.random.default_rng(n).standard_normal((n, 7))
        same(compiled(x), softmax(x))
    assert compiled.stats.compiles == 1


# -- breaks ---------------------------------------------------------------------------------------------------------------


def array_branch(x):
    return x if x.sum() > 0 else -x


def writes(x):
    y = x.copy()
    y.resize(3, refcheck=False)
    return y


def raises(x):
    if x.ndim == 2:
        raise KeyError("two")
    return x


@pytest.mark.parametrize(
    "function, reason",
    [
        (array_branch, "array-branch"),
        (writes, "in-place-write"),
        (lambda x: float(x.sum()), "data-dependent"),
        (lambda x: np.fromiter(x.ravel(), float), "unsupported-function"),
    ],
)
def test_breaks_are_gone_around_and_say_why(function, reason):
    compiled = dg.compile(function)
    for _ in range(3):
        same(compiled(X), function(X))
    assert compiled.stats.fallbacks == 0
    assert any(reason in text for text in compiled.stats.breaks)
    with pytest.raises(dg.CaptureError, match=reason):
        dg.compile(function, fullgraph=True)(X)


def test_a_call_without_arrays_is_no_error():
    compiled = dg.compile(lambda x: 3, fullgraph=True)
    assert compiled(X) == compiled(X) == 3 and compiled.stats.compiles == 0


def test_a_break_names_file_and_line():
    line = array_branch.__code__.co_firstlineno + 1
    with pytest.raises(dg.CaptureError, match=rf"test_end_to_end\.py:{line}: the branch depends on the value of an array"):
        dg.compile(array_branch, fullgraph=True)(X)


def test_exceptions_are_the_programs_own():
    with pytest.raises(KeyError, match="two"):
        dg.compile(raises)(X)
    with pytest.raises(ValueError) as plain:
        np.add(np.ones(3), np.ones(4))
    with pytest.raises(ValueError) as compiled:
        dg.compile(lambda a, b: np.add(a, b))(np.ones(3), np.ones(4))
    assert str(plain.value) == str(compiled.value)


def test_writes_into_arguments_happen_once():
    def increment(x):
        x += 1
        return x

    compiled, x = dg.compile(increment), np.zeros(3)
    for n in range(1, 4):
        assert compiled(x) is x
        np.testing.assert_array_equal(x, n)


# -- never stale --------------------------------------------------------------------------------------------------------


def scaled(x):
    return x * SCALE


def test_globals(monkeypatch):
    compiled = check(scaled, X)
    monkeypatch.setitem(globals(), "SCALE", 10)
    same(compiled(X), X * 10)
    monkeypatch.setitem(globals(), "UNREAD", 1)
    same(compiled(X), X * 10)
    assert compiled.stats.compiles == 2


def test_numpy_patched(monkeypatch):
    compiled = check(lambda x: np.sin(x), X)
    monkeypatch.setattr(np, "sin", np.cos)
    same(compiled(X), np.cos(X))


def test_builtins_shadowed(monkeypatch):
    compiled = check(lambda x: x * abs(-2), X)
    monkeypatch.setitem(globals(), "abs", lambda v: 7)
    same(compiled(X), X * 7)


def test_closures():
    factor = 2

    def multiply(x):
        return x * factor

    compiled = check(multiply, X)
    factor = 5
    same(compiled(X), X * 5)


def test_callees(monkeypatch):
    def helper(v, k=1):
        return v + k

    compiled = check(lambda x: helper(x), X)
    helper.__defaults__ = (9,)
    same(compiled(X), X + 9)
    helper.__code__ = (lambda v, k=1: v * k).__code__
    same(compiled(X), X * 9)


def test_attributes_and_the_classes_that_resolve_them():
    class Base:
        k = 2

        def go(self, x):
            return x * self.k

    class Derived(Base):
        pass

    thing = Derived()
    compiled = check(lambda x: thing.go(x), X)
    Base.k = 3
    same(compiled(X), X * 3)
    thing.k = 4
    same(compiled(X), X * 4)
    del thing.k
    Derived.k = 5
    same(compiled(X), X * 5)
    Base.go = lambda self, x: x
    same(compiled(X), X)
    Derived.go = lambda self, x: x - 1
    same(compiled(X), X - 1)


def test_attributes_that_may_be_missing():
    class Box:
        pass

    box = Box()
    compiled = check(lambda x: x * getattr(box, "k", 2) + hasattr(box, "k"), X)
    box.k = 5
    same(compiled(X), X * 5 + True)
    del box.k
    Box.k = 7
    same(compiled(X), X * 7 + True)


def test_disabled_helpers_are_not_inlined():
    @dg.disable
    def helper(v):
        return v + 1

    with pytest.raises(dg.CaptureError, match=r"dg.disable was applied to this function"):
        dg.compile(lambda x: helper(x) * 2, fullgraph=True)(X)
    same(dg.compile(lambda x: helper(x) * 2)(X), (X + 1) * 2)


def test_containers_of_the_caller():
    values = [1.0, 2.0]
    compiled = check(lambda x: x * values[0] + len(values), X)
    values[0] = 3.0
    same(compiled(X), X * 3 + 2)
    values.append(0.0)
    same(compiled(X), X * 3 + 3)


def test_the_function_itself():
    def f(x):
        return x + 1

    compiled = check(f, X)
    f.__code__ = (lambda x: x - 1).__code__
    same(compiled(X), X - 1)


@pytest.mark.parametrize("values", [(1, True, 1.0), (0.0, -0.0), (2, 2.0, np.float64(2))])
def test_equal_numbers_of_different_kinds_are_different(values):
    compiled = dg.compile(lambda x, k: np.copysign(x, k) * k, fullgraph=True)
    for value in values:
        same(compiled(X, value), np.copysign(X, value) * value)
    assert compiled.stats.compiles == len(values)


def test_floating_point_errors_are_raised_where_numpy_raises():
    compiled = dg.compile(lambda a, b: a / b)
    compiled(np.ones(3), np.ones(3))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        compiled(np.ones(3), np.zeros(3))


OF_INTEGERS = (
    "a // b", "a % b", "divmod(a, b)", "np.fmod(a, b)", "np.reciprocal(b)", "a // 0", "a + a", "a - b - a - a", "a * a", "-(a + b)",
    "abs(a)", "np.floor_divide.reduce(np.stack([a, b]))", "np.remainder.reduce(np.stack([a, b]))",
    "np.fmod.accumulate(np.stack([a, b]), axis=0)",
)  # fmt: skip


@pytest.mark.parametrize("expression", OF_INTEGERS)
def test_floating_point_errors_of_integers_are_raised_where_numpy_raises(expression):
    f = eval(f"lambda a, b: {expression}", {"np": np})
    a, b = np.full(2, -128, np.int8), np.zeros(2, np.int8)
    for given in ((a, b), (a[0], b[0])):
        compiled = dg.compile(f, backend="reference")
        with np.errstate(all="ignore"):
            same(compiled(*given), f(*given))
        with np.errstate(all="raise"):
            try:
                want = f(*given)
            except FloatingPointError as error:
                with pytest.raises(FloatingPointError, match=str(error)):
                    compiled(*given)
            else:
                same(compiled(*given), want)
    with pytest.raises(FloatingPointError), np.errstate(all="raise"):
        f(a[0], b[0])


# -- bad input ------------------------------------------------------------------------------------------------------------


def _unaligned() -> np.ndarray:
    raw = np.zeros(8 * 12 + 1, np.uint8)
    array = raw[1:].view(np.float64).reshape(3, 4)
    array[...] = X
    return array


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "array",
    [
        X.astype(object),
        X.astype(">f8"),
        X.astype(np.float16),
        X.astype(complex),
        np.ma.masked_less(X, 0),
        _unaligned(),
        np.asfortranarray(X),
        X[::-1, ::-2],
        np.broadcast_to(X[0], (3, 4)),
        X[:0],
        X[:, :0],
        np.float64(2.0),
        np.array(2.0),
        X.astype(np.int16),
    ],
    ids=[
        "object",
        "swapped",
        "float16",
        "complex",
        "masked",
        "unaligned",
        "fortran",
        "negative",
        "broadcast",
        "no-rows",
        "no-columns",
        "scalar",
        "0-d",
        "int16",
    ],
)
def test_unusual_arrays_give_right_results(array):
    for function in (lambda x: x + x * 2, lambda x: (x * x).sum(), lambda x: np.dot(x.T, x)):
        compiled = dg.compile(function)
        for _ in range(2):
            with np.errstate(all="ignore"):
                got, want = compiled(array), function(array)
            assert type(got) is type(want) and np.asarray(got).dtype == np.asarray(want).dtype and np.shape(got) == np.shape(want)
            np.testing.assert_allclose(np.asarray(got, complex), np.asarray(want, complex), rtol=1e-6, atol=1e-9)
        assert compiled.stats.fallbacks == 0


def test_read_only_arrays():
    array = X.copy()
    array.flags.writeable = False
    assert not check(lambda x: (x[1:], x + 1), array)(array)[0].flags.writeable


@pytest.mark.parametrize("args, kwargs", [((), {}), ((1, 2, 3), {}), ((1,), {"z": 2}), ((1,), {"a": 2})])
def test_calls_that_do_not_fit_raise_the_plain_error(args, kwargs):
    def f(a, b=1):
        return a + b

    with pytest.raises(TypeError) as plain:
        f(*args, **kwargs)
    with pytest.raises(TypeError) as compiled:
        dg.compile(f)(*args, **kwargs)
    assert str(plain.value) == str(compiled.value)


def test_a_batch_of_no_matrices_with_symbolic_sizes():
    """The sizes stand in the call of BLAS alone: no buffer has a size that depends on them."""
    compiled = dg.compile(lambda x, y: x @ y, dynamic=True, backend="c")
    assert compiled(np.ones((0, 7, 4)), np.ones((0, 4, 9))).shape == (0, 7, 9)
    assert compiled.stats.fallbacks == 0


@pytest.mark.parametrize("layout", [slice(None, None, 2), slice(None, None, -1)], ids=["strided", "reversed"])
def test_products_of_what_is_written_to_strided_memory(layout):
    def sweep(a, x):
        for i in range(len(x)):
            x[i] = 1.0 - a[i, :i] @ x[:i] - a[i, i + 1 :] @ x[i + 1 :]
        return a @ x

    compiled = dg.compile(sweep, backend="c")
    a = np.random.default_rng(0).standard_normal((3, 3))
    ours, theirs = (np.arange(6.0)[layout][:3] for _ in range(2))
    np.testing.assert_allclose(compiled(a, ours), sweep(a, theirs), rtol=1e-12)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_what_is_written_to_strided_memory_is_indexed_by_arrays():
    def program(x, places):
        x[0] = 7.0
        return x[places]

    compiled = dg.compile(program, backend="c")
    x, places = np.arange(6.0)[::2], np.array([2, 0, 1, 1])
    np.testing.assert_array_equal(compiled(x, places), [4.0, 7.0, 2.0, 2.0])
    assert compiled.stats.compiles == 1


VIEWS = {
    "transposed": lambda x: x.T,
    "cut": lambda x: x[1:, ::-1],
    "two": lambda x: (x[0], x[:, None]),
    "longer": lambda x: np.broadcast_to(x[0], x.shape),
    "a part": lambda x: x.real[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_alone_need_no_program_and_no_error_state(name: str) -> None:
    f = VIEWS[name]
    compiled = dg.compile(f)
    for dtype in (np.float64, np.complex128, np.int64):
        x = np.arange(12).reshape(3, 4).astype(dtype)
        compiled(x)
        with np.errstate(all="raise"):
            got = compiled(x)
        for g, want in zip(got if isinstance(got, tuple) else (got,), f(x) if isinstance(got, tuple) else (f(x),)):
            assert g.__array_interface__ == want.__array_interface__ and g.flags.writeable == want.flags.writeable
            assert str(g.flags) == str(want.flags) and np.shares_memory(g, x)
    assert compiled.stats.hits == 3 and all(program.executable is None for program in compiled.programs)
