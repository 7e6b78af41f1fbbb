"""Every reason in the catalogue of breaks: a program that has it, and the same after its cure, which is one graph."""

from __future__ import annotations

import asyncio
import builtins
import datetime
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph._core import _dispatch
from dynagraph.frontend.executor.breaks import REASONS
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed

X = np.linspace(-1.0, 2.0, 6)


@dataclass
class Case:
    """`broken` and `cured` are called with what `arguments` and `cured_arguments` give: new for each call."""

    broken: Callable[..., Any]
    cured: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]] = lambda: (X.copy(),)
    cured_arguments: Callable[[], tuple[Any, ...]] | None = None
    raises: type[BaseException] | None = None  # what the broken program raises, plain or compiled
    same: bool = True  # both give the same
    whole: bool = True  # it is what a CaptureError names under fullgraph=True


def array_branch(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def array_while(x):
    while x.max() > 0.1:
        x = x * 0.5
    return x


def fixed_while(x):
    for _ in range(10):
        x = np.where(x.max() > 0.1, x * 0.5, x)
    return x


def around_break(x):
    for k in range(3):
        if x.tolist()[-1] > k:
            x = x - k
    return x


def not_around_break(x):
    for k in range(3):
        x = np.where(x.sum() > k, x - k, x)
    return x


def resizes(x):
    y = x.copy()
    y.resize(3, refcheck=False)
    return y


def overlapping():
    base = X.copy()
    return base[:-1], base[1:]


def writes_one(a, b):
    a += 1
    return a + b


def asks_the_world(x):
    file = open("/dev/null")  # noqa: SIM115
    file.close()
    return x * 0


GENERATOR = np.random.default_rng(0)


def draws_and_indexes(x, i):
    return x[i] * GENERATOR.random(2).sum()


def draws_from_its_own(x, i):
    return x[i] * np.random.default_rng(0).random(2).sum()


def raises(x):
    if x.ndim == 1:
        raise KeyError("one")
    return x + 1


LOCK = threading.Lock()


def locked(x):
    with LOCK:
        return x * 2


class Metered(type):
    def __call__(cls, *args):
        return super().__call__(*args)


class Meter(metaclass=Metered):
    factor = 2


def half_consumed(x):
    products = (x * k for k in range(3))
    return [next(products), products]


def makes_class(x):
    class Pair:
        factor = 2

    return x * Pair.factor


class Pair:
    factor = 2


def evaluates(x):
    return x * eval("2")


def breaks_graph(x):
    y = x + 1
    dg.graph_break()
    return y * 2


def awaits(x):
    async def doubled():
        return x * 2

    return asyncio.run(doubled())


def recursive(x, n):
    return x if n == 0 else recursive(x + 1, n - 1)


def iterative(x, n):
    for _ in range(n):
        x = x + 1
    return x


def many(x):
    n = 0
    for k in range(2500):
        try:
            n += len(str(k)) // len(str(k)) * k
        except KeyError:
            n = 0
    return x * n


def in_errstate(x):
    with np.errstate(divide="raise"):
        return 1 / (x + 3)


def in_default_errstate(x):
    return 1 / (x + 3)


@dg.disable
def disabled(x):
    return x * 2


def not_disabled(x):
    return x * 2


CASES = {
    "ARRAY_BRANCH": Case(array_branch, lambda x: np.where(x.sum() > 0, x * 2, x - 1)),
    "ARRAY_LOOP": Case(array_while, fixed_while),
    "LOOP_AROUND_BREAK": Case(around_break, not_around_break, whole=False),
    "AMBIGUOUS_TRUTH": Case(
        lambda x: x * 2 if x > 0 else x, lambda x: np.where(np.any(x > 0), x * 2, x), raises=ValueError, same=False
    ),
    "DATA_DEPENDENT": Case(lambda x: x * float(x.sum()), lambda x: x * x.sum()),
    "IN_PLACE_WRITE": Case(resizes, lambda x: x[:3].copy()),
    "OVERLAP": Case(writes_one, writes_one, overlapping, lambda: (overlapping()[0], overlapping()[1].copy()), same=False),
    "SIDE_EFFECT": Case(asks_the_world, lambda x: x * 0),
    "WOULD_RAISE": Case(raises, raises, cured_arguments=lambda: (X.reshape(2, 3),), raises=KeyError, same=False),
    "NUMPY_ERROR": Case(
        lambda x, y: x + y, lambda x, y: x + y, lambda: (X, np.ones(4)), lambda: (X, np.ones(6)), raises=ValueError, same=False
    ),
    "UNSUPPORTED_FUNCTION": Case(
        lambda x: x * np.fromiter([2], float), lambda x, y: x * y, cured_arguments=lambda: (X, np.fromiter([2], float))
    ),
    "UNSUPPORTED_ARGUMENT": Case(
        lambda x: np.einsum("i,i", x, x, casting="unsafe"),
        lambda x: np.einsum("i,i", x, x),
        lambda: (np.arange(6.0),),  # whose products are exact: BLAS and NumPy's own sums differ in the last bit
    ),
    "UNSUPPORTED_DTYPE": Case(lambda x: x.astype(np.longdouble) * 2, lambda x: x.astype(np.float64) * 2),
    "UNSUPPORTED_INDEX": Case(lambda x: x.flat[x > 0].sum(), lambda x: x[x > 0].sum()),
    "UNSUPPORTED_INPUT": Case(
        lambda x: x * 2, lambda x: x * 2, lambda: (np.ma.array(X),), lambda: (np.asarray(np.ma.array(X)),)
    ),
    "UNSUPPORTED_VALUE": Case(
        lambda x, m: x * m[0], lambda x, m: x * m[0], lambda: (X, memoryview(b"\2")), lambda: (X, list(memoryview(b"\2")))
    ),
    "UNSUPPORTED_RESULT": Case(half_consumed, lambda x: [x * 0, x * 1, x * 2]),
    "UNKNOWN_OPCODE": Case(makes_class, lambda x: x * Pair.factor),
    "CONTEXT_MANAGER": Case(locked, lambda x: x * 2),
    "ITERATOR": Case(
        lambda x, pairs: sum(x * a + b for a, b in pairs),
        lambda x, left, right: sum(x * a + b for a, b in zip(left, right)),
        lambda: (X, zip([1, 2], [3, 4])),
        lambda: (X, [1, 2], [3, 4]),
    ),
    "METACLASS": Case(lambda x: x * Meter().factor, lambda x, meter: x * meter.factor, cured_arguments=lambda: (X, Meter())),
    "FRAME_ACCESS": Case(evaluates, lambda x, value: x * value, cured_arguments=lambda: (X, 2)),
    "GRAPH_BREAK": Case(breaks_graph, lambda x: (x + 1) * 2),
    "GENERATOR": Case(awaits, lambda x: x * 2),
    "ATTRIBUTE": Case(
        lambda x, day: x * day.year, lambda x, year: x * year,
        lambda: (X, datetime.date(2020, 1, 1)), lambda: (X, datetime.date(2020, 1, 1).year),
    ),
    "RECURSION": Case(recursive, iterative, lambda: (X, 50)),
    "TOO_MANY_VALUES": Case(
        lambda x: [x + i for i in range(150)] + [x + i for i in range(150, 300)], lambda x: x + np.arange(300.0)[:, None]
    ),
    "UNROLL_LIMIT": Case(many, lambda x: x * np.arange(2500).sum()),
    "FLOATING_POINT_ERRORS": Case(in_errstate, in_default_errstate),
    "RANDOM_DRAW": Case(draws_and_indexes, draws_from_its_own, lambda: (X, np.array([1, 2])), same=False),
    "DISABLED": Case(lambda x: disabled(x) + 1, lambda x: not_disabled(x) + 1),
}
ELSEWHERE = {
    "STACK_FULL", "NOTHING_TO_COMPILE", "MIXED_LIBRARIES", "COMPILE_BUDGET", "COMPILER_AT_WORK", "REPLACED_BUILTIN",  # below
    "NATIVE_LOOP", "LOOP_IN_PYTHON", "LOOP_IN_CALL",  # tests/frontend/loops
    "LOOP_ON_DEVICE",  # tests/cuda/test_host_loops.py
    "GRADIENT_BY_STEPS",  # tests/gradients/test_loop_tangents.py
    "COLD_CACHE",  # tests/frontend/test_cold_caches.py
    "FIRST_IMPORT",  # tests/frontend/test_cold_caches.py
    "GRAPH_FROM_OUTSIDE",  # tests/torch/rnn/test_captures.py
}  # fmt: skip


def outcome(function, arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return error


def assert_equal(got, wanted):
    if isinstance(wanted, BaseException):
        assert type(got) is type(wanted) and str(got) == str(wanted)
    elif wanted is not None and isinstance(wanted, list):
        np.testing.assert_array_equal(got[0], wanted[0])
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", CASES)
def test_a_program_that_breaks_so(name):
    case = CASES[name]
    compiled = dg.compile(case.broken)
    wanted = outcome(case.broken, case.arguments())
    state = GENERATOR.bit_generator.state
    got = outcome(compiled, case.arguments())
    GENERATOR.bit_generator.state = state
    wanted = outcome(case.broken, case.arguments()) if name == "RANDOM_DRAW" else wanted
    assert_equal(got, wanted)
    assert isinstance(wanted, case.raises or object) and isinstance(wanted, Exception) == (case.raises is not None)
    slug = REASONS[name].slug
    assert any(line.endswith(f"[{slug}]") and "\n" not in line for line in compiled.stats.breaks), compiled.stats.breaks


@pytest.fixture(autouse=True)
def _few_arrays(request, monkeypatch):
    """As many arrays as there can be take minutes to make."""
    if "TOO_MANY_VALUES" in request.node.name:
        monkeypatch.setattr(_dispatch, "MAX_ARRAYS", 200)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.whole])
def test_fullgraph_names_it(name):
    case = CASES[name]
    # what the program itself raises says more
    expected = case.raises or dg.CaptureError
    with pytest.raises(expected, match=None if case.raises else f"--reason {REASONS[name].slug}$"):
        dg.compile(case.broken, fullgraph=True)(*case.arguments())


@pytest.mark.parametrize("name", CASES)
def test_its_cure_makes_it_one_graph(name):
    case = CASES[name]
    arguments = case.cured_arguments or case.arguments
    compiled = dg.compile(case.cured, fullgraph=True)
    got = compiled(*arguments())
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks
    assert_equal(got, case.cured(*arguments()))
    if case.same:
        assert_equal(got, case.broken(*case.arguments()))


def test_every_reason_has_its_programs():
    assert set(CASES) | ELSEWHERE == set(REASONS) and not set(CASES) & ELSEWHERE


def test_a_replaced_builtin_is_put_back():
    compiled = dg.compile(lambda x: np.abs(x) + 1, fullgraph=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "abs", lambda x: 100)
        with pytest.raises(dg.CaptureError, match="abs"):
            compiled(X)
    assert "[replaced-builtin]" in next(iter(compiled.stats.breaks))
    np.testing.assert_array_equal(compiled(X), np.abs(X) + 1)
    assert compiled.stats.compiles == 1


@pytest.mark.parametrize("name, limit", [("RECURSION", "inline_depth"), ("UNROLL_LIMIT", "unroll_limit")])
def test_limits_may_be_raised(name, limit):
    case = CASES[name]
    with dg.config.override(**{limit: 3000}):
        compiled = dg.compile(case.broken, fullgraph=True)
        assert_equal(compiled(*case.arguments()), case.broken(*case.arguments()))
    assert compiled.stats.compiles == 1


def test_iterations_count_in_all_frames_of_a_capture():
    def inner(x, n):
        return sum(x[i % 6] * k for i in range(n) for k in range(2))

    def outer(x, n):
        return [inner(x, n) for _ in range(4)]

    with dg.config.override(unroll_limit=100):
        few, many = dg.compile(outer, fullgraph=True), dg.compile(outer, fullgraph=True)
        assert_equal(few(X, 5), outer(X, 5))
        with pytest.raises(dg.CaptureError, match="more than 100 iterations"):
            many(X, 50)


def test_a_loop_of_a_fixed_body_may_stay_outside():
    body = dg.compile(lambda x: x * 0.5, fullgraph=True)

    def loop(x):
        while x.max() > 0.1:
            x = body(x)
        return x

    assert_equal(loop(X), array_while(X))
    assert body.stats.compiles == 1 and body.stats.hits > 2


def test_a_full_stack():
    def at_depth(function, x, depth):
        return function(x) if depth == 0 else at_depth(function, x, depth - 1)

    def free():
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        return sys.getrecursionlimit() - depth

    def is_full(room):
        compiled = dg.compile(lambda x: x * 2)
        at_depth(compiled, X, free() - room)
        return any(line.endswith("[stack-full]") for line in compiled.stats.breaks)

    room = next(n for n in range(15, 60, 3) if is_full(n))
    limit = sys.getrecursionlimit()
    roomy, depth = dg.compile(lambda x: x * 2), free() - room
    sys.setrecursionlimit(limit + 500)
    try:
        at_depth(roomy, X, depth)
    finally:
        sys.setrecursionlimit(limit)
    assert roomy.stats.compiles == 1 and not roomy.stats.breaks


def test_nothing_to_compile():
    compiled = dg.compile(lambda n: n + 1, fullgraph=True)  # a call without arrays is whole as it is
    assert compiled(1) == 2
    assert any(line.endswith("[nothing-to-compile]") for line in compiled.stats.breaks)
    compiled = dg.compile(lambda x: x + 1, fullgraph=True)
    compiled(X)
    assert not compiled.stats.breaks


def test_mixed_libraries():
    with installed(stand_in.module()) as cp:
        compiled = dg.compile(lambda x, y: x + y, fullgraph=True)
        with pytest.raises(dg.CaptureError, match=r"--reason mixed-libraries$"):
            compiled(X, cp.asarray(X))
        got = compiled(cp.asarray(X), cp.asarray(X))
        assert compiled.stats.compiles == 1
        np.testing.assert_array_equal(got.get(), X + X)


def test_compile_budget():
    def unrolled(x):
        return np.stack([np.sin(x + k) for k in range(60)])

    with dg.config.override(compile_budget=0.01), pytest.warns(dg.CompileBudgetWarning):
        compiled = dg.compile(unrolled)
        assert_equal(compiled(X), unrolled(X))  # plainly
    # begun and not ended, or not begun
    assert compiled.stats.put_off or any(line.endswith("[compile-budget]") for line in compiled.stats.breaks)
    with dg.config.override(compile_budget=0.01):
        compiled = dg.compile(unrolled, mode="max", fullgraph=True)
        np.testing.assert_allclose(compiled(X), unrolled(X), rtol=1e-12)
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks
    with dg.config.override(compile_budget=None):
        compiled = dg.compile(unrolled, fullgraph=True)
        np.testing.assert_allclose(compiled(X), unrolled(X), rtol=1e-12)
    assert compiled.stats.compiles == 1
