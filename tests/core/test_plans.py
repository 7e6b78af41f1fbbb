"""Plans and recipes: native entries, what a call returns, and what is refused."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import traceback
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import MAX_ARRAYS, MAX_REGISTERS, CompiledFunction, Entry, GuardError, NativePlan, PythonPlan, Tail

from .native import address, library

F8 = np.dtype(float)


def array_guard(k: int, array: np.ndarray) -> tuple:
    strides = None if array.flags.c_contiguous else tuple(s // array.itemsize for s in array.strides)
    return ("array", k, k, array.dtype, array.ndim, array.shape, strides, None)


def native(
    name: str,
    arrays: tuple = (),
    outputs: tuple = (),
    result: Any = ("out", 0),
    *,
    workspace: Any = 0,
    release_gil: bool = False,
    n_symbols: int = 0,
    guards: tuple | None = None,
) -> Entry:
    plan = NativePlan(address(name), library(), len(arrays), outputs, workspace, result, release_gil, n_symbols)
    return Entry(tuple(array_guard(k, a) for k, a in enumerate(arrays)) if guards is None else guards, 8, plan)


def making(recipe: tuple, *values: Any, outputs: tuple = ()) -> Any:
    """What a recipe gives for these parameters and outputs."""
    return Entry((), 8, PythonPlan(lambda: outputs, 0, recipe)).run(values)


# -- plans that write into inputs, and bail out ------------------------------------------------------------------------------


def negating(kind: str) -> Entry:
    """Negates an array of four where it lies; refuses it where its first element is negative."""
    recipe, checked = ("tuple", (("out", 0), ("arg", 0))), np.dtype(bool)
    guards = (("array", 0, 0, F8, 1, (4,), None, True),)
    if kind == "native":
        outputs = ((F8, (4,), False, 0), (checked, (), True))
        plan: Any = NativePlan(address("negate_in_place"), library(), 1, outputs, 0, recipe, False, 0, 1)
    else:
        plan = PythonPlan(lambda a: (-a, np.asarray(a[0] < 0)), 1, recipe, 0, 2, (False, True), True, (0, -1), 1)
    return Entry(guards, 1, plan)


@pytest.mark.parametrize("kind", ["native", "python"])
def test_outputs_into_inputs(kind: str) -> None:
    x = np.arange(4.0)
    result, argument = negating(kind).run((x,))
    assert result is x and argument is x
    assert x.tolist() == [0, -1, -2, -3]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_program_bails_out_and_nothing_happens(kind: str) -> None:
    x = np.arange(-1.0, 3.0)
    entry, other = negating(kind), object()
    with pytest.raises(GuardError, match="bails out"):
        entry.run((x,))
    assert entry.run_or((x,), other) is other and entry.call_or((x,), other) is other
    assert x.tolist() == [-1, 0, 1, 2]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_the_plain_function_does_what_is_refused(kind: str) -> None:
    def plain(x, *, again=False):
        return "plain", x

    cf = CompiledFunction(plain, lambda *_: pytest.fail("a miss"))
    cf.add_entry(Entry((("array", 0, 0, F8, 1, (4,), None, True),), 2, negating(kind).plan))
    x = np.arange(-1.0, 3.0)
    references = sys.getrefcount(x)
    for _ in range(3):
        assert cf(x) == ("plain", x) and cf(x, again=True) == ("plain", x)
    assert cf.counters() == {"hits": 0, "misses": 0, "refusals": 6, "stayed_eager": 0}
    assert sys.getrefcount(x) == references
    cf(np.arange(4.0))
    assert cf.counters()["hits"] == 1


@pytest.mark.parametrize("kind", ["native", "python"])
def test_outputs_in_another_order(kind: str) -> None:
    """The program writes a C-contiguous array; the result is its transpose, which owns the memory."""
    x = np.arange(8, dtype=np.int8)
    if kind == "native":
        plan: Any = NativePlan(address("copy8"), library(), 1, ((x.dtype, (4, 2), False, -1, (1, 0)),), 0, ("out", 0), False, 0)
    else:
        plan = PythonPlan(lambda a: (a.reshape(4, 2),), 1, ("out", 0), 0, 1, (False,), True, (-1,), axes=((1, 0),))
    entry = Entry((("array", 0, 0, x.dtype, 1, (8,), None, None),), 1, plan)
    got = entry.run((x,))
    np.testing.assert_array_equal(got, x.reshape(4, 2).T)
    assert got.flags.f_contiguous and not got.flags.c_contiguous and got.flags.owndata and not np.shares_memory(got, x)


@pytest.mark.parametrize("axes", [(0, 0), (1, 2), (0,), (0, 1, 2)])
def test_axes_that_are_no_permutation(axes: tuple) -> None:
    with pytest.raises(ValueError, match=r"plan: .*axes"):
        NativePlan(address("copy8"), library(), 1, ((F8, (3, 2), False, -1, axes),), 0, ("out", 0), False, 0)


@pytest.mark.parametrize("into", [(1,), (7, -1)])
def test_inputs_that_are_not_there(into: tuple) -> None:
    with pytest.raises(ValueError, match="PythonPlan"):
        PythonPlan(lambda a: (a,), 1, ("out", 0), 0, 1, (False,), True, into)
    with pytest.raises(ValueError, match="an output into input"):
        NativePlan(address("copy8"), library(), 1, ((F8, (), False, into[0]),), 0, ("out", 0), False, 0)


# -- native plans ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release_gil", [False, True])
def test_three_arrays(release_gil: bool) -> None:
    a, b, c = (np.random.default_rng(k).normal(size=16) for k in range(3))
    e = native("add3", (a, b, c), ((F8, (16,), False),), release_gil=release_gil)
    got = e.run((a, b, c))
    assert type(got) is np.ndarray and got.dtype == F8 and got.flags.c_contiguous and got.flags.owndata and got.base is None
    assert np.array_equal(got, a + b + c)
    assert e.run((a, b, c)) is not got


@pytest.mark.parametrize("n", [2, 3, 1000, 8192, 100_000, 400_000])
def test_sizes_from_symbols(n: int) -> None:
    guards = (("array", 0, 0, F8, 1, (None,), None, None), ("dim", 0, 0, 0))
    e = native("twice", (None,), ((F8, ((("s", 0), 1, "*"),), False),), n_symbols=1, guards=guards)
    x = np.arange(n, dtype=float)
    got = e.run((x,))
    assert np.array_equal(got, 2 * x) and got.flags.aligned and got.flags.owndata and got.flags.writeable and got.base is None


@pytest.mark.parametrize(
    "type_, name, value",
    [
        (float, "copy8", -1.5),
        (int, "copy8", -(2**63)),
        (np.float64, "copy8", np.float64(0.1)),
        (np.int64, "copy8", np.int64(-3)),
        (np.float32, "copy4", np.float32(0.1)),
        (np.int32, "copy4", np.int32(-7)),
        (np.uint8, "copy1", np.uint8(200)),
        (np.bool_, "copy1", np.True_),
        (bool, "copy1", True),
        (bool, "copy1", False),
    ],
)
def test_scalars_in_and_out(type_: type, name: str, value: Any) -> None:
    dtype = np.dtype({float: float, int: np.int64, bool: np.bool_}.get(type_, type_))
    for scalar in (True, False):
        e = native(name, (None,), ((dtype, (), scalar),), guards=(("scalar", 0, 0, type_),))
        got = e.run((value,))
        assert type(got) is (dtype.type if scalar else np.ndarray) and got.dtype == dtype and got == value


def test_a_complex_scalar() -> None:
    for count in (1, 5):
        outputs = ((np.dtype(complex), (), True),) * count
        assert native("imaginary", (), outputs).run(()) == 1.5 - 2.5j


def test_workspace() -> None:
    for _ in range(3):
        e = native("uses_workspace", (), ((np.dtype(np.int64), (), True),), workspace=(1 << 19, 2, "*"))
        assert e.run(()) == (1 << 20) // 256 * (255 * 128)


def test_failures_raise_memory_error() -> None:
    with pytest.raises(MemoryError):
        native("fails", (), ((F8, (3,), False),)).run(())


def test_sizes_that_memory_cannot_hold() -> None:
    for shape in ((2**40, 2**10), (2**62, 2**62), (2**31, 2**31, 2**31), (2**63 - 1,)):
        with pytest.raises((GuardError, ValueError)):
            native("nothing", (), ((F8, shape, False),)).run(())
    guards = (("array", 0, 0, F8, 1, (None,), None, None), ("dim", 0, 0, 0))
    for program in ((0, ("s", 0), "-"), (("s", 0), 2**61, "*"), (("s", 0), 2**40, "*")):
        with pytest.raises((GuardError, ValueError)):
            native("nothing", (None,), ((F8, (program,), False),), n_symbols=1, guards=guards).run((np.zeros(3),))
    with pytest.raises(GuardError):
        native("nothing", (), ((F8, (3,), False),), workspace=2**61).run(())


def test_empty_outputs() -> None:
    got = native("nothing", (), ((F8, (0, 5), False),)).run(())
    assert got.shape == (0, 5)


def test_the_gil_is_released() -> None:
    x = np.ones(16)
    e = native("slow_sum", (x,), ((F8, (), True),), release_gil=True)
    e.run((x,))
    results: list = []
    threads = [threading.Thread(target=lambda: results.append(e.run((x,)))) for _ in range(8)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [16.0] * 8 and time.perf_counter() - start < 0.3  # one after the other: 0.4


def test_inputs_live_while_the_gil_is_released() -> None:
    box = [np.ones(16)]
    guards = (("item", 1, 0, 0), ("array", 1, 0, F8, 1, (16,), None, None))
    e = native("slow_sum", (None,), ((F8, (), True),), release_gil=True, guards=guards)
    results: list = []
    thread = threading.Thread(target=lambda: results.append(e.run((box,))))
    thread.start()
    time.sleep(0.02)
    box.clear()
    trash = [np.full(16, 9.0) for _ in range(100)]
    thread.join()
    assert results == [16.0] and len(trash) == 100


# -- recipes -----------------------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "first second")


def test_plain_recipes() -> None:
    a, x, y = object(), np.zeros(3), np.ones(2)
    outputs = (x, y)
    assert making(("out", 1), outputs=outputs) is y
    assert making(("arg", 0), a) is a
    assert making(("const", a)) is a
    assert making(("tuple", ())) == () and making(("list", ())) == [] and making(("dict", ())) == {}
    got = making(("tuple", (("out", 0), ("list", (("arg", 0), ("out", 0), ("const", None))))), a, outputs=outputs)
    assert got[0] is x and got[1][0] is a and got[1][1] is x and got[1][2] is None and type(got[1]) is list
    got = making(("dict", (("b", ("out", 0)), ("a", ("arg", 0)), (1, ("dict", ())))), a, outputs=outputs)
    assert list(got) == ["b", "a", 1] and got["b"] is x and got["a"] is a and got[1] == {}
    assert making(("call", Pair, (("arg", 0), ("out", 1))), a, outputs=outputs) == Pair(a, y)


def test_memo_keeps_shared_containers_shared() -> None:
    shared = ("memo", 3, ("list", (("const", 1),)))
    first, second, third = making(("tuple", (shared, shared, ("list", (("const", 1),)))))
    assert first is second and first is not third and first == third == [1]
    assert making(("tuple", (shared, shared)))[0] is not first


def test_scalar_of() -> None:
    got = making(("scalar_of", ("out", 0)), outputs=(np.array(1.5),))
    assert type(got) is np.float64 and got == 1.5
    same = np.zeros(3)
    assert making(("scalar_of", ("out", 0)), outputs=(same,)) is same
    assert making(("scalar_of", ("out", 0)), outputs=(np.float32(2),)) == 2


def test_python_plans_scalars() -> None:
    plan = PythonPlan(lambda: (np.array(1.5), np.array(2.5)), 0, ("tuple", (("out", 0), ("out", 1))), 0, 2, (True, False))
    first, second = Entry((), 0, plan).run(())
    assert type(first) is np.float64 and type(second) is np.ndarray


def test_do_evaluates_in_order_and_gives_the_last() -> None:
    log: list = []
    counter = iter(range(100))
    note = ("call", log.append, (("call", counter.__next__, ()),))
    number = ("memo", 0, ("call", counter.__next__, ()))
    effects = (note, ("call", log.append, (number,)), ("do", (note,), ("const", None)), ("call", log.append, (number,)))
    assert making(("do", effects, ("tuple", (number, ("do", (note,), ("arg", 0))))), "given") == (1, "given")
    assert log == [0, 1, 2, 1, 3]
    assert making(("do", (), ("const", 5))) == 5


def test_do_stops_at_an_exception() -> None:
    log: list = []
    with pytest.raises(ZeroDivisionError):
        making(("do", (("call", divmod, (("const", 1), ("const", 0))), ("call", log.append, (("const", 1),))), ("const", 5)))
    assert log == []


def test_do_drops_what_its_steps_give() -> None:
    class Thing:
        pass

    alive = weakref.WeakSet()

    def make() -> Thing:
        alive.add(thing := Thing())
        return thing

    assert making(("do", (("call", make, ()), ("call", make, ())), ("call", lambda: len(alive), ()))) == 0


def test_sizes_as_python_ints() -> None:
    guards = (("array", 0, 0, F8, 1, (None,), None, None), ("dim", 0, 0, 0), ("int", 1, 1))
    recipe = ("tuple", (("size", (("s", 0),)), ("size", (("s", 0), ("s", 1), "*", 1, "-")), ("size", -7)))
    got = Entry(guards, 2, NativePlan(0, None, 1, (), 0, recipe, False, 2)).run((np.zeros(5), 2**40))
    assert got == (5, 5 * 2**40 - 1, -7) and [type(x) for x in got] == [int] * 3


def test_native_plans_without_a_kernel() -> None:
    value = object()
    plan = NativePlan(0, None, 0, (), 0, ("list", (("arg", 0), ("memo", 0, ("const", 3)))), True, 0)
    assert Entry((), 1, plan).run((value,)) == [value, 3]
    x = np.zeros(3)
    plan = NativePlan(0, None, 1, (), 0, ("arg", 0), False, 0)
    assert Entry((array_guard(0, x),), 1, plan).run((x,)) is x


def view(base: tuple, shape: Any, strides: Any, offset: Any = 0, writeable: bool = True, dtype: Any = F8) -> tuple:
    return ("view", base, dtype, shape, strides, offset, writeable)


def test_views_of_arguments() -> None:
    x = np.arange(12.0).reshape(3, 4).copy()
    for recipe, expected in [
        (view(("arg", 0), (4, 3), (1, 4)), x.T),
        (view(("arg", 0), (12,), (1,)), x.reshape(-1)),
        (view(("arg", 0), (3, 4), (4, -1), 3), x[:, ::-1]),
        (view(("arg", 0), (2,), (4,), 5), x[1:, 1]),
        (view(("arg", 0), (), (), 7), x[1, 3:4].reshape(())),
        (view(("arg", 0), (5, 4), (0, 1)), np.broadcast_to(x[0], (5, 4))),
        (view(("arg", 0), (0, 4), (4, 1)), x[3:]),
    ]:
        got = making(recipe, x)
        assert np.array_equal(got, expected) and got.shape == expected.shape
        assert got.base is x and np.shares_memory(got, x) == (got.size > 0) and not got.flags.owndata
        assert got.flags.c_contiguous == expected.flags.c_contiguous and got.flags.f_contiguous == expected.flags.f_contiguous
        assert got.flags.writeable and got.flags.aligned
    got = making(view(("arg", 0), (12,), (1,), 0, False), x)
    assert not got.flags.writeable
    got = making(view(("arg", 0), (4, 3), (1, 4)), x)
    got[0, 0] = 99
    assert x[0, 0] == 99


def test_views_of_views_and_of_read_only_arrays() -> None:
    whole = np.arange(12.0)
    part = whole[2:10]
    got = making(view(("arg", 0), (4,), (2,)), part)
    assert got.tolist() == [2, 4, 6, 8] and got.base is whole  # as NumPy does
    back = part[::-1]
    assert making(view(("arg", 0), (8,), (1,), -7), back).tolist() == part.tolist()
    whole.flags.writeable = False
    assert not making(view(("arg", 0), (2,), (1,)), whole).flags.writeable


def test_views_of_outputs_keep_them_alive() -> None:
    x = np.arange(6.0).reshape(2, 3)
    e = native(
        "twice",
        (None,),
        ((F8, (400_000,), False),),
        view(("out", 0), (200_000, 2), (1, 200_000)),
        n_symbols=1,
        guards=(("array", 0, 0, F8, 1, (None,), None, None), ("dim", 0, 0, 0)),
    )
    x = np.arange(400_000.0)
    got = e.run((x,))
    gc.collect()
    assert np.array_equal(got, (2 * x).reshape(2, -1).T) and got.base.flags.owndata and got.base.base is None


def test_views_with_symbolic_sizes() -> None:
    guards = (("array", 0, 0, F8, 2, (None, None), None, None), ("dim", 0, 0, 0), ("dim", 1, 0, 1))
    m, n = ("s", 0), ("s", 1)
    recipe = view(("arg", 0), ((n,), (m,)), ((n, 1, "-", -1, "*", 0, "*", 1, "+"), (n,)))
    e = Entry(guards, 1, PythonPlan(lambda x: (), 1, recipe, 2))
    x = np.arange(15.0).reshape(3, 5)
    assert np.array_equal(e.run((x,)), x.T)


@pytest.mark.parametrize(
    "recipe",
    [
        view(("arg", 0), (7,), (1,)),
        view(("arg", 0), (6,), (1,), 1),
        view(("arg", 0), (2,), (-1,)),
        view(("arg", 0), (1,), (1,), -1),
        view(("arg", 0), (4,), (2,)),
        view(("arg", 0), (2, 2), (3, 3)),
        view(("arg", 0), (4,), (1,), 0, True, np.dtype(complex)),
        view(("arg", 0), (), (), 6),
        view(("arg", 0), (-1,), (1,)),
    ],
)
def test_views_stay_inside_of_their_base(recipe: tuple) -> None:
    with pytest.raises(ValueError):
        making(recipe, np.zeros(6))


def test_views_of_what_is_no_array() -> None:
    with pytest.raises(TypeError, match="a view of int"):
        making(view(("arg", 0), (1,), (1,)), 5)


@pytest.mark.parametrize(
    "recipe",
    [
        None,
        5,
        (),
        ("what", 1),
        ("out",),
        ("out", 0, 0),
        ("out", "a"),
        ("out", -1),
        ("out", 300),
        ("out", 2**70),
        ("arg", -1),
        ("arg", MAX_REGISTERS),
        ("arg", 9),
        ("tuple", 5),
        ("tuple", (5,)),
        ("list", [("const", 1)]),
        ("dict", (("a",),)),
        ("dict", ((1, ("what",)),)),
        ("dict", 5),
        ("call", 5, ()),
        ("call", len, 5),
        ("memo", MAX_REGISTERS, ("const", 1)),
        ("memo", -1, ("const", 1)),
        ("do", (), 5),
        ("do", [], ("const", 1)),
        ("do", (5,), ("const", 1)),
        ("do", ("const", 1)),
        ("size", "a"),
        ("size", (("s", 0),)),
        ("memo", 0, 5),
        ("scalar_of", 5),
        view(5, (), ()),
        view(("arg", 0), (1,), ()),
        view(("arg", 0), 5, ()),
        view(("arg", 0), (), 5),
        view(("arg", 0), (1,) * 9, (1,) * 9),
        view(("arg", 0), ("a",), (1,)),
        view(("arg", 0), (), (), "a"),
        view(("arg", 0), (), (), 0, True, np.dtype(object)),
        view(("arg", 0), (), (), 0, True, "nonsense"),
        view(("arg", 0), ((("s", 0),),), (1,)),
        view(("arg", 0), (), (), 0, True, np.dtype("f8,i4")),
        ("\udc80", 1),
    ],
)
def test_recipes_that_are_refused(recipe: Any) -> None:
    for _ in range(3):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            making(recipe, 1)


def test_deeply_nested_recipes() -> None:
    recipe: tuple = ("const", 1)
    for _ in range(100):
        recipe = ("list", (recipe,))
    assert str(making(recipe)).count("[") == 100
    for _ in range(100_000):
        recipe = ("list", (recipe,))
    with pytest.raises(RecursionError):
        making(recipe)
    while len(recipe) > 1 and recipe[0] == "list":  # undo it without recursion
        recipe = recipe[1][0]


def test_errors_while_building() -> None:
    def boom(*args):
        raise KeyError("built")

    with pytest.raises(KeyError, match="built"):
        making(("memo", 0, ("tuple", (("list", ()), ("call", boom, (("const", 1),))))))
    with pytest.raises(TypeError, match="unhashable"):
        making(("dict", (([], ("const", 1)),)))


@pytest.mark.parametrize(
    "change",
    [
        {"address": 0},
        {"address": -1},
        {"address": "a"},
        {"n_inputs": -1},
        {"n_inputs": MAX_ARRAYS + 1},
        {"outputs": [(F8, (), True)]},
        {"outputs": (5,)},
        {"outputs": ((F8, ()),)},
        {"outputs": ((F8, (1,) * 9, False),)},
        {"outputs": ((F8, (-1,), False),)},
        {"outputs": ((F8, (3,), True),)},
        {"outputs": ((F8, [3], False),)},
        {"outputs": ((object, (3,), False),)},
        {"outputs": ((">f8", (3,), False),)},
        {"outputs": (("f8,i4", (3,), False),)},
        {"outputs": (("(2,)f8", (3,), False),)},
        {"outputs": (("S5", (3,), False),)},
        {"outputs": ((np.clongdouble, (), True),)},
        {"outputs": ((F8, ((("s", 0),),), False),)},
        {"outputs": ((F8, (), True),) * (MAX_ARRAYS + 1)},
        {"workspace": "a"},
        {"workspace": (("s", 0),)},
        {"workspace": None},
        {"n_symbols": -1},
        {"n_symbols": 65},
        {"result": ("out", 1)},
    ],
)
def test_plans_that_are_refused(change: dict) -> None:
    arguments = {
        "address": address("nothing"),
        "keepalive": None,
        "n_inputs": 0,
        "outputs": ((F8, (), True),),
        "workspace": 0,
        "result": ("out", 0),
        "release_gil": False,
        "n_symbols": 0,
    }
    NativePlan(**arguments)
    for _ in range(3):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            NativePlan(**(arguments | change))
            if change == {"address": -1}:
                raise ValueError("any number is an address")


@pytest.mark.parametrize(
    "arguments",
    [
        (5, 0, ("const", 1)),
        (len, -1, ("const", 1)),
        (len, 0, ("const", 1), 0, -5),
        (len, 0, ("const", 1), -1),
        (len, 0, ("out", 3), 0, 2),
        (len, 0, ("const", 1), 0, 0, [1]),
    ],
)
def test_python_plans_that_are_refused(arguments: tuple) -> None:
    with pytest.raises((TypeError, ValueError)):
        PythonPlan(*arguments)


def test_what_python_programs_are_given() -> None:
    def given_for(type_: Any, value: Any) -> Any:
        seen = []
        Entry((("scalar", 0, 0, type_),), 1, PythonPlan(lambda x: seen.append(x) or (), 1, ("const", None))).run((value,))
        return seen[0]

    assert given_for(float, 1.5).dtype == float and given_for(float, 1.5).shape == ()
    assert given_for(int, 2**62).dtype == np.int64 and given_for(bool, True).dtype == np.bool_
    scalar = np.float32(2)
    assert given_for(np.float32, scalar) is scalar


def test_reference_counts() -> None:
    x = [np.random.default_rng(k).normal(size=16) for k in range(3)]
    thing = object()
    result = (
        "tuple",
        (
            ("out", 0),
            ("const", thing),
            ("arg", 3),
            view(("arg", 0), (4, 4), (4, 1)),
            ("memo", 0, ("dict", ((thing, ("arg", 1)),))),
        ),
    )
    e = native("add3", tuple(x), ((F8, (16,), False),), result)
    values = (*x, thing)
    e.run(values)
    gc.collect()
    before = [sys.getrefcount(o) for o in (*x, thing, F8, values)]
    for _ in range(1000):
        e.run(values)
    gc.collect()
    assert [sys.getrefcount(o) for o in (*x, thing, F8, values)] == before


# -- programs that call Python functions --------------------------------------------------------------------------------------


def calling_out(function: Any, release_gil: bool = False) -> Entry:
    plan = NativePlan(
        address("calls_out"), library(), 1, ((F8, (4,), False),), 0, ("out", 0), release_gil, 0, 0, function
    )
    return Entry((("array", 0, 0, F8, 1, (4,), None, None),), 1, plan)


@pytest.mark.parametrize("release_gil", [False, True])
def test_generated_code_calls_out(release_gil: bool) -> None:
    def twice(number: int, sizes: tuple, operands: tuple, results: tuple) -> None:
        assert (number, sizes, operands[0].flags.writeable) == (7, (), False)
        results[0][...] = 2 * operands[0]

    assert calling_out(twice, release_gil).run((np.arange(4.0),)).tolist() == [6, 4, 2, 0]


@pytest.mark.parametrize("release_gil", [False, True])
def test_an_external_call_that_raises_bails_out(release_gil: bool) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("not today")

    entry = calling_out(fails, release_gil)
    assert entry.call_or((np.arange(4.0),), Tail(lambda: "plainly")) == "plainly"


def test_an_interrupt_comes_out_of_an_external_call() -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calling_out(interrupted).call_or((np.arange(4.0),), Tail(lambda: "plainly"))


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_what_a_handler_raises_in_an_external_call_is_raised_in_the_plain_function(error: type[BaseException]) -> None:
    """As if the signal had come when the plain function began."""

    def handler(*_: Any) -> None:
        raise error

    def disturbed(number: int, sizes: tuple, operands: tuple, results: tuple) -> None:
        signal.raise_signal(signal.SIGUSR1)
        results[0][...] = operands[0]

    def plainly() -> str:
        return "not raised"

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(error) as raised:
            calling_out(disturbed).call_or((np.arange(4.0),), Tail(plainly))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "plainly" in [frame.name for frame in traceback.extract_tb(raised.tb)]


def test_what_is_called_out_must_be_callable() -> None:
    with pytest.raises(TypeError, match="external_call=3 is not callable"):
        calling_out(3)


# -- steps before the program ----------------------------------------------------------------------------------------------------


def stepping(kind: str, prologue: tuple, result: Any, n_checks: int = 0, guards: tuple = ()) -> Entry:
    """Negates what the steps give as input 0, of four float64; the check refuses where its first element is negative."""
    outputs = ((F8, (4,), False, 0), (np.dtype(bool), (), True))
    if kind == "native":
        plan: Any = NativePlan(address("negate_in_place"), library(), 1, outputs, 0, result, False, 0, n_checks, prologue=prologue)
    else:
        program = lambda a: (-a, np.asarray(a[0] < 0))  # noqa: E731
        plan = PythonPlan(program, 1, result, 0, 2, (False, True), True, (0, -1), n_checks, prologue=prologue)
    return Entry(guards, 2, plan)


@pytest.mark.parametrize("kind", ["native", "python"])
def test_steps_are_taken_in_order_before_the_program(kind: str) -> None:
    seen: list[Any] = []

    def noted(*given: Any) -> np.ndarray:
        seen.append(given)
        return np.arange(4.0) + len(seen)

    first = ("memo", 0, ("call", noted, (("arg", 0),)))
    second = ("memo", 1, ("call", noted, (first, ("arg", 1))))
    entry = stepping(kind, ((first,), (second, 0, F8, (4,), False)), ("tuple", (first, second, ("out", 0))))
    a, b, out = entry.run(("x", "y"))
    assert out is b and seen[0] == ("x",) and seen[1][0] is a and seen[1][1] == "y" and len(seen) == 2
    assert a.tolist() == [1.0, 2.0, 3.0, 4.0] and b.tolist() == [-2.0, -3.0, -4.0, -5.0]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_step_that_raises_ends_the_call(kind: str) -> None:
    def fail() -> None:
        raise KeyError("no number")

    later = ("memo", 1, ("call", pytest.fail, (("const", "taken"),)))
    entry = stepping(kind, ((("memo", 0, ("call", fail, ())), 0, F8, (4,), False), (later,)), ("const", 1))
    with pytest.raises(KeyError, match="no number"):
        entry.run((1, 2))


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_program_with_steps_may_refuse(kind: str) -> None:
    made = ("memo", 0, ("call", lambda: np.full(4, -1.0), ()))
    entry = stepping(kind, ((made, 0, F8, (4,), False),), made, 1)
    assert entry.run_or((1, 2), "refused") == "refused"


@pytest.mark.parametrize("given", [
    np.zeros(3), np.zeros((4, 1)), np.zeros(4, np.float32), np.zeros(8)[::2], [0.0] * 4, 1.0, np.float64(1.0),
    np.ma.zeros(4),
], ids=repr)  # fmt: skip
def test_a_step_that_gives_something_else(given: Any) -> None:
    entry = stepping("native", ((("memo", 0, ("const", given)), 0, F8, (4,), False),), ("const", 1))
    with pytest.raises(TypeError, match="which is not what the program takes"):
        entry.run((1, 2))


@pytest.mark.parametrize("given, dtype, fits", [
    (2.5, F8, True), (np.float64(2.5), F8, True), (np.float32(2.5), F8, False), (np.int16(7), np.dtype(np.int16), True),
    (3, F8, False), (np.bool_(True), np.dtype(bool), True), (2.5, np.dtype(np.float32), False),
    (np.zeros(()), F8, False),
])  # fmt: skip
def test_a_step_that_gives_a_number(given: Any, dtype: np.dtype, fits: bool) -> None:
    made = ("memo", 0, ("const", given))
    plan = PythonPlan(lambda a: (a,), 1, ("tuple", (made, ("out", 0))), 0, 1, (True,), prologue=((made, 0, dtype, (), True),))
    entry = Entry((), 1, plan)
    if fits:
        result = entry.run((0,))
        assert result[0] is given and result[1] == given
    else:
        with pytest.raises(TypeError, match="which is not what the program takes"):
            entry.run((0,))


ONE = ("memo", 0, ("const", 1))


@pytest.mark.parametrize("prologue, error, text", [
    ((1,), TypeError, r"a step is \(memo,\) or"),
    (((ONE, 0),), TypeError, r"a step is \(memo,\) or"),
    (((("const", 1),),), TypeError, r"a step is \(memo,\) or"),
    (((ONE, 1, F8, (), True),), ValueError, "a step gives input 1 of 1"),
    (((ONE, 0, F8, (), True), (ONE, 0, F8, (), True)), ValueError, "a step gives input 0 of 1"),
    (((("memo", 0, ("out", 0)),),), ValueError, "out"),
    (((ONE, 0, F8, (4,), True),), ValueError, "a scalar output is 0-d"),
])  # fmt: skip
def test_steps_that_are_refused(prologue: tuple, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        PythonPlan(lambda a: (a,), 1, ("const", 1), 0, 1, prologue=prologue)


def test_guards_leave_inputs_of_steps_alone() -> None:
    made = ("memo", 0, ("call", np.zeros, (("const", 4),)))
    outputs, steps = ((F8, (4,), False, 0), (np.dtype(bool), (), True)), ((made, 0, F8, (4,), False),)
    plan = NativePlan(address("negate_in_place"), library(), 1, outputs, 0, made, False, 0, 1, prologue=steps)
    with pytest.raises(ValueError, match="input 0 is given by the plan"):
        Entry((array_guard(0, np.zeros(4)),), 1, plan)
    assert Entry((("disjoint", (0,)),), 1, plan).run((1,)).tolist() == [0.0] * 4
