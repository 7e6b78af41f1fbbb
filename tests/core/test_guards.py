"""Every guard instruction, passing and failing; programs that make no sense are refused."""

from __future__ import annotations

import abc
import builtins
import collections
import gc
import itertools
import math
import operator
import struct
import sys
import types
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagraph._core import _dispatch
from dynagraph._core._dispatch import MAX_REGISTERS, Entry, PythonPlan
from tests.sampling import examples

CONSTANT = ("const", None)


def entry(
    *guards: tuple,
    n_registers: int = 8,
    n_inputs: int = 0,
    n_symbols: int = 0,
    result: tuple = CONSTANT,
    closure: tuple | None = None,
) -> Entry:
    return Entry(guards, n_registers, PythonPlan(lambda *inputs: inputs, n_inputs, result, n_symbols), closure)


def holds(guard: tuple, *values: Any, **kwargs: Any) -> bool:
    failed = entry(guard, **kwargs).check(values)
    assert failed in (None, 0)
    return failed is None


# -- globals -----------------------------------------------------------------------------------------------------------


def module_with(**names: Any) -> types.ModuleType:
    module = types.ModuleType("a_module")
    vars(module).update(names)
    return module


def by_store_global(module: types.ModuleType, value: Any) -> None:
    exec("def store(v):\n global x\n x = v", vars(module))
    module.store(value)


def by_item(module: types.ModuleType, value: Any) -> None:
    vars(module)["x"] = value


def by_setattr(module: types.ModuleType, value: Any) -> None:
    module.x = value


def by_update(module: types.ModuleType, value: Any) -> None:
    vars(module).update(x=value)


def by_update_of_many(module: types.ModuleType, value: Any) -> None:
    vars(module).update({**{f"n{k}": k for k in range(100)}, "x": value})


def by_exec(module: types.ModuleType, value: Any) -> None:
    exec("x = v", vars(module), {"v": value})
    exec("global x; x = v", vars(module), {"v": value})


def by_or(module: types.ModuleType, value: Any) -> None:
    names = vars(module)
    names |= {"x": value}


def by_del_and_setdefault(module: types.ModuleType, value: Any) -> None:
    del vars(module)["x"]
    vars(module).setdefault("x", value)


def by_pop_and_store(module: types.ModuleType, value: Any) -> None:
    vars(module).pop("x")
    by_store_global(module, value)


def by_clear(module: types.ModuleType, value: Any) -> None:
    vars(module).clear()
    vars(module)["x"] = value


WAYS = [
    by_store_global,
    by_item,
    by_setattr,
    by_update,
    by_update_of_many,
    by_exec,
    by_or,
    by_del_and_setdefault,
    by_pop_and_store,
    by_clear,
]


@pytest.mark.parametrize("change", WAYS)
def test_a_global_that_changes(change) -> None:
    old, new = object(), object()
    module = module_with(x=old)
    e = entry(("global", 0, vars(module), "x"), ("is", 0, old))
    for _ in range(3):
        assert e.check(()) is None
    change(module, new)
    assert module.x is new
    assert e.check(()) == 1
    assert e.check(()) == 1
    change(module, old)
    assert e.check(()) is None


@pytest.mark.parametrize(
    "remove",
    [
        lambda m: delattr(m, "x"),
        lambda m: vars(m).pop("x"),
        lambda m: vars(m).clear(),
        lambda m: vars(m).__delitem__("x"),
        lambda m: [vars(m).popitem() for _ in list(vars(m))],
        lambda m: exec("def f():\n global x\n del x\nf()", vars(m)),
    ],
)
def test_a_global_that_goes(remove) -> None:
    module = module_with(x=5)
    present, absent = entry(("global", 0, vars(module), "x")), entry(("absent", vars(module), "x"))
    for _ in range(2):
        assert present.check(()) is None and absent.check(()) == 0
    remove(module)
    for _ in range(2):
        assert present.check(()) == 0 and absent.check(()) is None
    module.x = 6
    assert present.check(()) is None and absent.check(()) == 0


def test_an_empty_dict_from_its_first_look() -> None:
    names: dict = {}
    present, absent = entry(("global", 0, names, "x")), entry(("absent", names, "x"))
    assert present.check(()) == 0 and absent.check(()) is None
    names["x"] = 1
    assert present.check(()) is None and absent.check(()) == 0
    del names["x"]
    assert present.check(()) == 0 and absent.check(()) is None


def test_the_dict_of_an_instance() -> None:
    class Thing:
        pass

    for store in (lambda t, v: setattr(t, "x", v), lambda t, v: t.__dict__.update(x=v), lambda t, v: exec("t.x = v")):
        thing = Thing()
        old, new = object(), object()
        thing.x = old
        e = entry(("global", 0, thing.__dict__, "x"), ("is", 0, old))
        for _ in range(50):
            assert e.check(()) is None
            store(thing, new)
            assert e.check(()) == 1
            store(thing, old)


def test_instance_stores_that_the_interpreter_specialises() -> None:
    class Thing:
        pass

    def store(thing, value):
        thing.x = value

    thing = Thing()
    for k in range(300):
        store(thing, k)
    names = thing.__dict__
    for k in range(300):
        store(thing, k)
        e = entry(("global", 0, names, "x"), ("equal", 0, k))
        assert e.check(()) is None
        store(thing, -1)
        assert e.check(()) == 1


def test_builtins_and_names_of_other_modules() -> None:
    assert holds(("global", 0, vars(builtins), "len"))
    assert holds(("absent", vars(builtins), "no such name"))
    assert holds(("global", 0, vars(np), "add"))
    assert not holds(("absent", vars(np), "add"))


def test_a_value_that_dies_is_not_seen_again() -> None:
    module = module_with(x=object())
    e = entry(("global", 0, vars(module), "x"), result=("arg", 0))
    for _ in range(100):
        module.x = object()
        gc.collect(0)
        assert e.run(()) is module.x


@given(st.lists(st.sampled_from(["set a", "set b", "del", "other", "clear", "update", "setdefault", "look"]), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_history_of_a_dict(history: list[str]) -> None:
    a, b = object(), object()
    names: dict = {}
    e = entry(("global", 0, names, "x"), ("is", 0, a))
    none = entry(("absent", names, "x"))
    for step in history:
        match step:
            case "set a":
                names["x"] = a
            case "set b":
                names["x"] = b
            case "del":
                names.pop("x", None)
            case "other":
                names[str(len(names))] = 1
            case "clear":
                names.clear()
            case "update":
                names.update({"x": a, "y": 2})
            case "setdefault":
                names.setdefault("x", a)
        assert (e.check(()) is None) == (names.get("x") is a)
        assert (none.check(()) is None) == ("x" not in names)


# -- cells and closures ------------------------------------------------------------------------------------------------


def test_cells() -> None:
    cell = types.CellType()
    assert not holds(("cell", 0, cell))
    cell.cell_contents = 5
    e = entry(("cell", 0, cell), ("equal", 0, 5))
    assert e.check(()) is None
    cell.cell_contents = 6
    assert e.check(()) == 1
    del cell.cell_contents
    assert e.check(()) == 0


def test_closures() -> None:
    cells = (types.CellType(1), types.CellType())
    assert holds(("closure", 0, 0), closure=cells)
    assert not holds(("closure", 0, 1), closure=cells)
    assert not holds(("closure", 0, 2), closure=cells)
    assert not holds(("closure", 0, 0))


# -- types and attributes ----------------------------------------------------------------------------------------------


def test_type() -> None:
    assert holds(("type", 0, int), 5)
    assert not holds(("type", 0, int), True)
    assert not holds(("type", 0, float), np.float64(1))


def a_class() -> tuple[type, type]:
    class Base:
        def method(self):
            return 1

        attribute = 5

    class Derived(Base):
        pass

    return Base, Derived


@pytest.mark.parametrize(
    "change",
    [
        lambda base, derived: setattr(base, "method", lambda self: 2),
        lambda base, derived: setattr(derived, "method", lambda self: 2),
        lambda base, derived: setattr(derived, "new", 1),
        lambda base, derived: delattr(base, "attribute"),
        lambda base, derived: setattr(derived, "__getattr__", lambda self, name: 3),
        lambda base, derived: setattr(derived, "__bases__", (a_class()[0],)),
        lambda base, derived: type.__setattr__(base, "attribute", 6),
    ],
)
def test_a_type_that_is_modified(change) -> None:
    base, derived = a_class()
    instance = derived()
    e = entry(("type_version", 0, derived))
    instance.own = 3  # of the instance: no matter
    for _ in range(3):
        instance.method()
        assert e.check((instance,)) is None
    assert e.check((base(),)) == 0
    change(base, derived)
    for _ in range(3):
        assert e.check((instance,)) == 0
    assert entry(("type_version", 0, derived)).check((instance,)) is None


def test_an_instance_that_changes_its_class() -> None:
    base, derived = a_class()
    instance = derived()
    e = entry(("type_version", 0, derived))
    instance.__class__ = base
    assert e.check((instance,)) == 0


def test_version_of_builtin_types() -> None:
    assert holds(("type_version", 0, int), 5)
    assert holds(("type_version", 0, np.ndarray), np.zeros(3))
    assert not holds(("type_version", 0, np.ndarray), np.ma.zeros(3))


def test_attributes() -> None:
    class Thing:
        shared = object()

        def __getattr__(self, name):
            raise AssertionError("user code")

    class Slotted:
        __slots__ = ("x", "y")

    thing, slotted = Thing(), Slotted()
    thing.x = slotted.x = value = object()
    for owner in (thing, slotted, types.SimpleNamespace(x=value), module_with(x=value)):
        e = entry(("attr", 1, 0, "x"), ("is", 1, value))
        assert e.check((owner,)) is None
        owner.x = object()
        assert e.check((owner,)) == 1
        del owner.x
        assert e.check((owner,)) == 0
    assert not holds(("attr", 1, 0, "y"), slotted)
    assert not holds(("attr", 1, 0, "missing"), thing)
    assert holds(("attr", 1, 0, "shared"), thing)
    assert holds(("attr", 1, 0, "shared"), Thing)
    assert not holds(("attr", 1, 0, "missing"), Thing)
    assert sys.exc_info() == (None, None, None)


def test_attributes_that_are_made_anew_do_not_hold() -> None:
    class Thing:
        @property
        def fresh(self):
            return object()

    assert not holds(("attr", 1, 0, "fresh"), Thing())  # nobody would keep it alive


def test_no_attr() -> None:
    class Thing:
        x = 1

    class Slotted:
        __slots__ = ("x",)

    thing = Thing()
    assert holds(("no_attr", 0, "x"), thing)
    thing.x = 2
    assert not holds(("no_attr", 0, "x"), thing)
    del thing.x
    assert holds(("no_attr", 0, "x"), thing)
    thing.__dict__["x"] = 3
    assert not holds(("no_attr", 0, "x"), thing)
    assert holds(("no_attr", 0, "x"), Slotted())
    assert holds(("no_attr", 0, "x"), 5)
    assert holds(("no_attr", 0, "x"), module_with()) and not holds(("no_attr", 0, "x"), module_with(x=1))


# -- containers --------------------------------------------------------------------------------------------------------


class MyList(list):
    pass


class MyDict(dict):
    pass


def test_items() -> None:
    for make in (list, tuple):
        e = entry(("item", 1, 0, 2), ("equal", 1, 7))
        assert e.check((make([5, 6, 7]),)) is None
        assert e.check((make([5, 6, 8]),)) == 1
        assert e.check((make([5, 6]),)) == 0
    assert holds(("item", 1, 0, 0), MyList([1]))
    assert holds(("item", 1, 0, 1), collections.deque([1, 2])) and not holds(("item", 1, 0, 2), collections.deque([1, 2]))
    assert not holds(("item", 1, 0, 0), "abc")
    assert not holds(("item", 1, 0, -1), [1])
    assert not holds(("item", 1, 0, 0), 5)


def test_dict_items() -> None:
    e = entry(("dict_item", 1, 0, "k"), ("equal", 1, 7))
    assert e.check(({"k": 7},)) is None
    assert e.check(({"k": 8},)) == 1
    assert e.check(({},)) == 0
    assert e.check((MyDict(k=7),)) is None
    assert e.check((collections.defaultdict(list),)) == 0
    assert holds(("dict_item", 1, 0, 3), {3: "x"})


def test_lengths() -> None:
    for value in ([1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, frozenset((1, 2)), MyList([1, 2]), collections.deque([1, 2])):
        assert holds(("len", 0, 2), value)
        assert not holds(("len", 0, 3), value)
    for value in ("ab", np.zeros(2), 2):
        assert not holds(("len", 0, 2), value)


def test_keys_of_dicts() -> None:
    e = entry(("dict_keys", 0, ("a", 1, "b")))
    assert e.check(({"a": 0, 1: 0, "b": 0},)) is None
    assert e.check(({"a": 0, 1: 0, "".join(["b"]): 0},)) is None
    for other in (
        {"a": 0, "b": 0, 1: 0},
        {"a": 0, 1: 0},
        {"a": 0, 1: 0, "b": 0, "c": 0},
        {"a": 0, 1: 0, "c": 0},
        {},
        {"a": 0, True: 0, "b": 0},
        {"a": 0, 1.0: 0, "b": 0},
        ("a", 1, "b"),
    ):
        assert e.check((other,)) == 0, other
    assert holds(("dict_keys", 0, ()), {})
    assert e.check((MyDict({"a": 0, 1: 0, "b": 0}),)) is None
    ordered = collections.OrderedDict({"a": 0, 1: 0, "b": 0})
    assert e.check((ordered,)) is None
    ordered.move_to_end("a")
    assert e.check((ordered,)) == 0


def test_order_of_sets() -> None:
    e = entry(("set_order", 0, (8, 0)))
    assert e.check(({8, 0},)) is None
    assert e.check(({0, 8},)) == 0 and e.check(({8},)) == 0 and e.check(({8, 0, 16},)) == 0 and e.check(([8, 0],)) == 0


def test_bounds_of_deques() -> None:
    assert holds(("maxlen", 0, 1000), collections.deque(maxlen=1000)) and holds(("maxlen", 0, None), collections.deque())
    assert not holds(("maxlen", 0, 0), collections.deque()) and not holds(("maxlen", 0, None), [])


def test_dict_keys_run_no_user_code() -> None:
    class Key:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise AssertionError("user code")

    key = Key()
    assert holds(("dict_keys", 0, (key,)), {key: 1})
    assert not holds(("dict_keys", 0, (key,)), {Key(): 1})


# -- identity and equality ---------------------------------------------------------------------------------------------


def test_identity() -> None:
    thing = object()
    assert holds(("is", 0, thing), thing) and not holds(("is", 0, thing), object())
    assert holds(("is_not", 0, thing), object()) and not holds(("is_not", 0, thing), thing)
    assert holds(("same", 0, 1), thing, thing) and not holds(("same", 0, 1), thing, object())
    assert holds(("not_same", 0, 1), thing, object()) and not holds(("not_same", 0, 1), thing, thing)


def test_objects_that_are_distinct() -> None:
    """The first ones stand nowhere else; the others may be one object."""
    a, b, c = object(), object(), object()
    listed = np.arange(4, dtype=np.uint32).tobytes()
    assert holds(("distinct", listed, 2), a, b, c, c)
    assert not holds(("distinct", listed, 2), a, a, b, c)
    assert not holds(("distinct", listed, 2), a, b, c, a)
    assert holds(("distinct", listed, 0), a, a, a, a)
    many = [object() for _ in range(300)]
    numbers = np.arange(300, dtype=np.uint32).tobytes()
    assert holds(("distinct", numbers, 300), *many, n_registers=300)
    assert not holds(("distinct", numbers, 300), *many[:-1], many[7], n_registers=300)
    for wrong in (b"x", np.array([9], np.uint32).tobytes(), "0"):
        with pytest.raises(TypeError, match="distinct takes"):
            entry(("distinct", wrong, 1), a)


VALUES = [
    0,
    1,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    10**30,
    10**30 + 1,
    -(10**30),
    0.0,
    -0.0,
    1.0,
    math.nan,
    -math.nan,
    math.inf,
    struct.unpack("d", struct.pack("q", 0x7FF8000000000001))[0],
    1e-320,
    0j,
    -0j,
    1j,
    complex(0.0, -0.0),
    complex(math.nan, 0),
    "",
    "a",
    "ä",
    "\udc80",
    b"",
    b"a",
    b"\0",
]
OTHERS = [True, False, None, np.float64(1), np.int64(1), np.float64(math.nan), (), "1", np.str_("a")]


def bits(value: Any) -> Any:
    if type(value) is float:
        return struct.pack("d", value)
    if type(value) is complex:
        return struct.pack("dd", value.real, value.imag)
    return value


def copy_of(value: Any) -> Any:
    """An equal object, another one where that is possible."""
    if type(value) is int:
        return int(str(value))
    if type(value) is float:
        return struct.unpack("d", struct.pack("d", value))[0]
    if type(value) is complex:
        return complex(value.real, value.imag)
    if type(value) is str:
        return "".join([*value])
    return bytes(bytearray(value))


def test_equality_of_values() -> None:
    for wanted in VALUES:
        e = entry(("equal", 0, wanted))
        assert e.check((copy_of(wanted),)) is None, wanted
        for other in VALUES + OTHERS:
            same = type(other) is type(wanted) and bits(other) == bits(wanted)
            assert (e.check((other,)) is None) == same, (wanted, other)


@pytest.mark.parametrize("value", [True, None, (), [], np.float64(1), object()])
def test_values_that_equal_does_not_take(value: Any) -> None:
    with pytest.raises(TypeError, match="equal"):
        entry(("equal", 0, value))


# -- arrays and scalars ------------------------------------------------------------------------------------------------


def array_guard(
    dtype: Any = np.float64, dims: tuple = (2, 3), strides: tuple | None = None, writeable: bool | None = None
) -> tuple:
    return ("array", 0, 0, np.dtype(dtype), len(dims), dims, strides, writeable)


def array_holds(guard: tuple, array: Any) -> bool:
    return holds(guard, array, n_inputs=1)


def misaligned(shape: tuple[int, ...]) -> np.ndarray:
    n = math.prod(shape) * 8
    return np.zeros(n + 1, np.uint8)[1:].view(np.float64).reshape(shape)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


class MyArray(np.ndarray):
    pass


def test_arrays() -> None:
    good = np.zeros((2, 3))
    assert array_holds(array_guard(), good)
    assert array_holds(array_guard(), good.astype(np.dtype("f8", metadata={"a": 1})))
    for bad in (
        np.zeros((3, 2)),
        np.zeros((2, 3), np.float32),
        np.zeros((2, 3), np.int64),
        np.zeros((2, 3), ">f8"),
        np.zeros((2, 3, 1)),
        np.zeros(6),
        np.zeros((3, 2)).T,
        np.zeros((2, 6))[:, ::2],
        misaligned((2, 3)),
        good.view(MyArray),
        np.ma.zeros((2, 3)),
        good.tolist(),
        5,
        None,
        np.float64(3),
        np.zeros((2, 3), "m8[s]"),
    ):
        assert not array_holds(array_guard(), bad), bad


def test_arrays_of_zero_dimensions() -> None:
    assert array_holds(array_guard(dims=()), np.array(1.0))
    assert not array_holds(array_guard(dims=()), np.float64(1.0))
    assert not array_holds(array_guard(dims=()), np.zeros(1))


def test_dtypes_of_one_layout() -> None:
    """Equal dtypes whose scalars are of types of their own are not the same."""
    assert array_holds(array_guard(np.longlong), np.zeros((2, 3), np.longlong))
    assert not array_holds(array_guard(np.longlong), np.zeros((2, 3), np.int64))
    assert not array_holds(array_guard(np.int64), np.zeros((2, 3), np.longlong))
    assert array_holds(array_guard("M8[s]"), np.zeros((2, 3), "M8[s]"))
    assert not array_holds(array_guard("M8[s]"), np.zeros((2, 3), "M8[ms]"))
    assert array_holds(array_guard(np.float16), np.zeros((2, 3), np.float16))


def test_open_dims() -> None:
    guard = array_guard(dims=(None, 3))
    assert array_holds(guard, np.zeros((2, 3))) and array_holds(guard, np.zeros((7, 3)))
    for shape in ((0, 3), (1, 3), (2, 4), (2,), (2, 3, 1)):
        assert not array_holds(guard, np.zeros(shape))


def test_exact_strides() -> None:
    guard = array_guard(strides=(1, 2))
    assert array_holds(guard, np.zeros((3, 2)).T)
    assert not array_holds(guard, np.zeros((2, 3)))
    assert array_holds(array_guard(strides=(0, -1)), np.broadcast_to(np.zeros(3)[::-1], (2, 3)))
    assert not array_holds(guard, misaligned((3, 2)).T)
    # the stride of an axis of one element is anything
    assert array_holds(array_guard(dims=(1, 3), strides=(77, 1)), np.zeros((1, 3)))


def test_contiguity_as_numpy_sees_it() -> None:
    assert array_holds(array_guard(dims=(1, 3)), np.zeros((3, 1)).T)
    assert array_holds(array_guard(dims=(0, 3)), np.zeros((6, 6))[3:3, ::2])


def test_writeable() -> None:
    for wanted, array in itertools.product((None, True, False), (np.zeros((2, 3)), read_only(np.zeros((2, 3))))):
        expected = wanted is None or wanted == array.flags.writeable
        assert array_holds(array_guard(writeable=wanted), array) == expected


def test_the_slot_gets_the_array() -> None:
    a, b = np.zeros(3), np.ones(3)
    guards = (("array", 0, 1, a.dtype, 1, (3,), None, None), ("array", 1, 0, a.dtype, 1, (3,), None, None))
    e = Entry(guards, 2, PythonPlan(lambda *inputs: inputs, 2, ("tuple", (("out", 0), ("out", 1)))))
    first, second = e.run((a, b))
    assert first is b and second is a


@pytest.mark.parametrize(
    "type_, good, bad",
    [
        (float, 1.5, (1, True, np.float64(1.5), np.array(1.5))),
        (int, 2**63 - 1, (1.0, True, np.int64(1), 2**63, -(2**63) - 1)),
        (bool, True, (1, np.True_, 1.0)),
        (np.float64, np.float64(-2.5), (-2.5, np.float32(-2.5), np.array(-2.5))),
        (np.float32, np.float32(0.1), (0.1, np.float64(0.1))),
        (np.int64, np.int64(-(2**63)), (5, np.int32(5))),
        (np.int32, np.int32(-5), (-5, np.int64(-5))),
        (np.int16, np.int16(-(2**15)), (-5, np.int8(-5))),
        (np.int8, np.int8(-128), (-128, np.uint8(1))),
        (np.uint8, np.uint8(255), (255, np.int8(1))),
        (np.uint16, np.uint16(2**16 - 1), (1, np.int16(1))),
        (np.uint32, np.uint32(2**32 - 1), (1, np.int32(1))),
        (np.uint64, np.uint64(2**64 - 1), (1, np.int64(1), np.uint32(1))),
        (np.bool_, np.True_, (True, 1)),
    ],
)
def test_scalars(type_: type, good: Any, bad: tuple) -> None:
    e = entry(("scalar", 0, 0, type_), n_inputs=1, result=("out", 0))
    assert e.check((good,)) is None
    assert e.run((good,)) == good
    for other in bad:
        assert e.check((other,)) == 0


def test_comparisons_of_floats() -> None:
    operators = {"<": 0, "<=": 1, "==": 2, "!=": 3, ">": 4, ">=": 5}
    for symbol, number, now in itertools.product(operators, (0.0, 2, math.nan), (-1.0, 0.0, 2.0, 2.5, math.nan)):
        answer = getattr(operator, ("lt", "le", "eq", "ne", "gt", "ge")[operators[symbol]])(now, number)
        assert entry(("compares", 0, symbol, number, answer)).check((now,)) is None
        assert entry(("compares", 0, symbol, number, not answer)).check((now,)) == 0
    assert entry(("compares", 0, "<", 5, True)).check((1,)) == 0
    assert entry(("compares", 0, "<", "a", True)).check((1.0,)) == 0


def test_what_formulas_decide() -> None:
    formula = (operator.lt, (operator.truediv, (1.0,), 0), (operator.add, 1, (2,)))  # 1.0 / first < second + 2
    registers = struct.pack("2I", 0, 1)
    for first, second in itertools.product((4.0, 0.25, -1, 2), (-2.0, 1, 0.5)):
        answer = 1.0 / first < second + 2
        assert entry(("decides", registers, formula, answer)).check((first, second)) is None
        assert entry(("decides", registers, formula, not answer)).check((first, second)) == 0
    for wrong in ((0.0, 1), (True, 1.0), ("a", 1.0), (None, 2)):
        for answer in (False, True):
            assert entry(("decides", registers, formula, answer)).check(wrong) == 0


@pytest.mark.parametrize("how, number", [("first", 3), ("sum", 9), ("greatest", 5)])
def test_numbers_that_inputs_hold(how: str, number: int) -> None:
    inputs = ("array", 0, 0, np.dtype(np.int64), 1, (None,), (2,), None)

    def relation(value: int) -> Entry:
        return entry(inputs, ("held", 0, 0, how), ("relation", "==", (("s", 0),), (value,), True), n_inputs=1, n_symbols=1)

    def is_number(value: int) -> Entry:
        return entry(inputs, ("holds", 0, how, value), n_inputs=1)

    array = np.array([3, 0, 5, 0, 1, 0])[::2]
    for make in (relation, is_number):
        assert make(number).check((array,)) is None
        assert make(number + 1).check((array,)) is not None
    for small in (np.array([1, 0, -1, 0])[::2], np.array([-5, 0, 1, 0])[::2]):  # no symbol stands for these
        assert relation(1).check((small,)) == 1
    assert is_number(2**62).check((np.array([2**62, 0, 2**62, 0])[::2],)) == (1 if how == "sum" else None)  # beyond 64 bits
    assert relation(2**62).check((np.array([2**62, 0, 0, 0])[::2],)) == 1
    of_floats = ("array", 0, 0, np.dtype(float), 1, (None,), None, None)
    assert entry(of_floats, ("holds", 0, how, 0), n_inputs=1).check((np.zeros(2),)) == 1
    for wrong in ((inputs, ("holds", 0, "last", 1)), (("holds", 0, how, 1), inputs)):
        with pytest.raises((TypeError, ValueError)):
            entry(*wrong, n_inputs=1)


def test_sizes_and_relations() -> None:
    def relation(op: str, left: Any, right: Any, truth: bool = True) -> Entry:
        return entry(
            ("array", 0, 0, np.dtype(float), 2, (None, None), None, None),
            ("dim", 0, 0, 0),
            ("dim", 1, 0, 1),
            ("relation", op, left, right, truth),
            n_inputs=1,
            n_symbols=2,
        )

    array = np.zeros((5, 3))
    m, n = ("s", 0), ("s", 1)
    for left, right in itertools.product(
        (
            5,
            (m,),
            (n, 2, "+"),
            (n, n, "-"),
            (m, n, "*"),
            (m, 2, "//"),
            (m, n, "%"),
            (0, m, "-", 2, "//"),
            (0, m, "-", 2, "%"),
            (m, n, "min"),
            (m, n, "max"),
            -7,
        ),
        repeat=2,
    ):
        a, b = number(left, 5, 3), number(right, 5, 3)
        for op, truth in (("==", a == b), ("<", a < b), ("<=", a <= b)):
            assert (relation(op, left, right).check((array,)) is None) == truth
            assert (relation(op, left, right, False).check((array,)) is None) != truth


def number(program: Any, *symbols: int) -> int:
    if isinstance(program, int):
        return program
    stack: list[int] = []
    operators = {
        "+": int.__add__,
        "-": int.__sub__,
        "*": int.__mul__,
        "//": int.__floordiv__,
        "%": int.__mod__,
        "min": min,
        "max": max,
    }
    for item in program:
        if isinstance(item, str):
            b, a = stack.pop(), stack.pop()
            stack.append(operators[item](a, b))
        else:
            stack.append(item if isinstance(item, int) else symbols[item[1]])
    return stack[0]


@pytest.mark.parametrize(
    "program",
    [
        (-(2**63), -1, "//"),
        (-(2**63), -1, "%"),
        (2**62, 4, "*"),
        (5, 0, "//"),
        (5, 0, "%"),
        (2**63 - 1, 1, "+"),
        (-(2**63), 1, "-"),
    ],
)
def test_sizes_that_overflow_do_not_crash(program: tuple) -> None:
    entry(("relation", "==", program, 1, True)).check(())


@pytest.mark.parametrize("value", [2, 3, 1000, 2**31, 2**62 - 1])
def test_ints_become_sizes(value: int) -> None:
    e = entry(("int", 0, 0), ("relation", "==", (("s", 0),), value, True), n_symbols=1)
    assert e.check((value,)) is None
    assert e.check((value - 1 if value > 2 else 5,)) == 1


@pytest.mark.parametrize(
    "value", [0, 1, -1, -(2**40), 2**62, 2**63, 2**64 + 5, True, 3.0, "3", None, np.int64(3), types.SimpleNamespace()]
)
def test_ints_that_are_no_sizes(value: Any) -> None:
    assert not holds(("int", 0, 0), value, n_symbols=1)


def test_contents_of_cells() -> None:
    thing = object()
    e = entry(("contents", 1, 0), ("is", 1, thing))
    cell = types.CellType(thing)
    assert e.check((cell,)) is None
    cell.cell_contents = None
    assert e.check((cell,)) == 1
    del cell.cell_contents
    assert e.check((cell,)) == 0
    for other in (None, [thing], thing):
        assert e.check((other,)) == 0


def test_missing_items() -> None:
    class Sub(dict):
        pass

    assert holds(("no_item", 0, "a"), {"b": 1}) and holds(("no_item", 0, 5), {})
    assert not holds(("no_item", 0, "".join(["a", "b"])), {"ab": None})
    assert not holds(("no_item", 0, b"a"), {b"a": 1}) and not holds(("no_item", 0, int), {int: 1})
    assert holds(("no_item", 0, "a"), Sub()) and not holds(("no_item", 0, "a"), 5)


NAN = float("nan")


@pytest.mark.parametrize(
    "elements, good, bad",
    [
        ((), [set(), frozenset()], [{1}, [], (), {}, None]),
        (("a", 1), [{"a", 1}, frozenset({1, "".join(["", "a"])})], [{"a"}, {"a", 1, 2}, {"a", 2}, {"a", True}, ["a", 1]]),
        ((True, None), [{None, True}], [{None, 1}, {None, False}, {None, 1.0}]),
        ((0.0, b"x"), [{0.0, b"x"}], [{-0.0, b"x"}, {0, b"x"}, {False, b"x"}, {0.0, "x"}]),
        ((NAN,), [{NAN}], [{float("nan")}]),
        ((2**80, -1), [{2**79 * 2, -1}], [{2**80, -2}, {2**80 + 1, -1}]),
        ((Fraction, int), [{int, Fraction}], [{int, float}, {Fraction}]),  # of a metaclass that compares as `type` does
    ],
)
def test_sets(elements: tuple, good: list, bad: list) -> None:
    assert all(holds(("set_is", 0, frozenset(elements)), value) for value in good)
    assert not any(holds(("set_is", 0, frozenset(elements)), value) for value in bad)


def test_sets_run_no_user_code() -> None:
    class Shy:
        def __hash__(self) -> int:
            return hash("a")

        def __eq__(self, other: object) -> bool:
            raise AssertionError("asked")

    class Sub(set):
        def __iter__(self) -> Any:
            raise AssertionError("asked")

    class Meta(type):
        __eq__, __hash__ = Shy.__eq__, Shy.__hash__  # type: ignore[assignment]

    assert not holds(("set_is", 0, frozenset({int})), {Meta("a", (), {})})
    assert not holds(("set_is", 0, frozenset({"a"})), {Shy()}) and not holds(("set_is", 0, frozenset({"a"})), Sub({"a"}))


def test_values_of_subclasses() -> None:
    for wanted, other in ((7, 8), (2**70, 2**70 + 1), (1.5, 2.5), (0.0, -0.0), (1j, 2j), ("text", "test"), (b"text", b"test")):
        base = type(wanted)
        fails = lambda *_: 1 / 0  # noqa: E731
        cls = type("Sub", (base,), {"__eq__": fails, "__hash__": None, "__int__": fails, "__float__": fails})
        e = entry(("value", 0, wanted))
        assert e.check((cls(wanted),)) is None and e.check((wanted,)) is None
        assert e.check((cls(other),)) == 0 and e.check((None,)) == 0
    assert entry(("value", 0, 7)).check((type("Sub", (int,), {})(2**70),)) == 0
    assert entry(("value", 0, float("nan"))).check((type("Sub", (float,), {})("nan"),)) is None
    with pytest.raises(TypeError, match="takes an int"):
        entry(("value", 0, type("Sub", (int,), {})(7)))


def test_tokens() -> None:
    token = abc.get_cache_token()
    e = entry(("token", abc.get_cache_token, token))
    assert e.check(()) is None
    abc.ABCMeta("Some", (), {}).register(int)
    assert e.check(()) == 0
    assert entry(("token", abc.get_cache_token, token + 1)).check(()) is None


def test_errstate() -> None:
    e = entry(("errstate",))
    assert e.check(()) is None
    for mode in ("raise", "call", "print", "log"):
        for kind in ("divide", "over", "under", "invalid", "all"):
            with np.errstate(**{kind: mode}, call=lambda *a: None):
                assert e.check(()) == 0
            assert e.check(()) is None
    with np.errstate(all="ignore"):
        assert e.check(()) is None
        with np.errstate(over="warn"):
            assert e.check(()) is None
    old = np.seterr(all="raise")
    try:
        assert e.check(()) == 0
    finally:
        np.seterr(**old)
    assert e.check(()) is None


# -- programs that make no sense ---------------------------------------------------------------------------------------

GOOD = ("array", 0, 0, np.dtype(float), 1, (3,), None, None)


@pytest.mark.parametrize(
    "guards",
    [
        [("is", 0, None)],
        (5,),
        ((),),
        ("is",),
        ((5, 6),),
        (("nonsense", 0),),
        (("is", 0),),
        (("is", 0, 1, 2),),
        (("is", 8, None),),
        (("is", -1, None),),
        (("is", "a", None),),
        (("is", 2**70, None),),
        (("global", 0, [], "x"),),
        (("global", 0, {}, 5),),
        (("global", 99, {}, "x"),),
        (("absent", {}, None),),
        (("cell", 0, 5),),
        (("closure", 0, -1),),
        (("closure", 0, "a"),),
        (("type", 0, 5),),
        (("type_version", 0, None),),
        (("attr", 1, 0, 5),),
        (("attr", 1, 99, "x"),),
        (("no_attr", 0, []),),
        (("item", 1, 0, None),),
        (("dict_item", 1, 0, []),),
        (("len", 0, "2"),),
        (("dict_keys", 0, ["a"]),),
        (("same", 0, 99),),
        (("equal", 0, []),),
        (("array", 0, 0, float, 1, (3,), None, None),),
        (GOOD[:5] + ((3, 4), None, None),),
        (GOOD[:5] + ((3,), (1, 2), None),),
        (GOOD[:5] + ((-3,), None, None),),
        (GOOD[:5] + (("a",), None, None),),
        (GOOD[:5] + ([3], None, None),),
        (GOOD[:5] + ((3,), ("a",), None),),
        (GOOD[:4] + (9, (1,) * 9, None, None),),
        (GOOD[:2] + (1,) + GOOD[3:],),
        (GOOD[:3] + (np.dtype("O"),) + GOOD[4:],),
        (GOOD[:3] + (np.dtype(">f8"),) + GOOD[4:],),
        (GOOD[:3] + (np.dtype("i4,f8"),) + GOOD[4:],),
        (GOOD[:3] + ("nonsense",) + GOOD[4:],),
        (("scalar", 0, 0, str),),
        (("scalar", 0, 0, 5),),
        (("scalar", 0, 3, float),),
        (("dim", 0, 0, 0),),
        (GOOD, ("dim", 0, 0, 0)),
        (("relation", "!=", 1, 1, True),),
        (("relation", 5, 1, 1, True),),
        (("compares", 0, "<>", 1.0, True),),
        (("decides", struct.pack("I", 0), 1, True),),
        (("decides", struct.pack("I", 0), (), True),),
        (("decides", struct.pack("I", 0), (min, 0, (2,), 1), True),),
        (("decides", struct.pack("I", 0), (lambda x: x, 0), True),),
        (("decides", struct.pack("I", 0), ("a",), True),),
        (("compares", 0, "<", [], True),),
        (("relation", "==", "a", 1, True),),
        (("relation", "==", ("+",), 1, True),),
        (("relation", "==", (1, 2), 1, True),),
        (("relation", "==", (), 1, True),),
        (("relation", "==", (("s", 0),), 1, True),),
        (("relation", "==", (("t", 0),), 1, True),),
        (("relation", "==", 2**70, 1, True),),
        (("relation", "==", (1,) * 40 + ("+",) * 39, 1, True),),
        (("errstate", 1),),
        (("int", 0, 0),),
        (("int", 0, -1),),
        (("contents", 0, 99),),
        (("contents", 99, 0),),
        (("no_item", 0, []),),
        (("no_item", 99, "a"),),
        (("set_is", 0, {1}),),
        (("set_is", 0, frozenset({(1, 2)})),),
        (("set_is", 99, frozenset()),),
        (("token", len, 5),),
        (("token", lambda: 5, 5),),
        (("token", abc.get_cache_token, None),),
        (("is", "\udc80", 1),),
        (("\udc80", 1),),
        None,
        5,
    ],
)
def test_programs_that_are_refused(guards: Any) -> None:
    n_inputs = 1 if isinstance(guards, tuple) and any(isinstance(g, tuple) and g[:1] == ("array",) for g in guards) else 0
    if guards == (("array", 0, 0, float, 1, (3,), None, None),):
        entry(*guards, n_inputs=1)  # what np.dtype() takes is taken
        return
    with pytest.raises((ValueError, TypeError, OverflowError)):
        Entry(guards, 8, PythonPlan(len, n_inputs, CONSTANT, 0))


def test_every_input_and_symbol_must_be_bound() -> None:
    with pytest.raises(ValueError, match="nothing binds input 0"):
        entry(n_inputs=1)
    with pytest.raises(ValueError, match="nothing gives symbol 0"):
        entry(n_symbols=1)
    open_array = GOOD[:5] + ((None,), None, None)
    with pytest.raises(ValueError, match="reads sizes"):
        entry(open_array, ("relation", "<", (("s", 0),), 5, True), ("dim", 0, 0, 0), n_inputs=1, n_symbols=1)
    with pytest.raises(ValueError, match="axis 1"):
        entry(open_array, ("dim", 0, 0, 1), n_inputs=1, n_symbols=1)
    with pytest.raises(ValueError, match="axis 0"):
        entry(("scalar", 0, 0, float), ("dim", 0, 0, 0), n_inputs=1, n_symbols=1)


def test_registers_that_nothing_fills() -> None:
    e = entry(("is", 3, None))
    with pytest.raises(TypeError, match="read 4 parameters, got 2"):
        e.check((None, None))
    assert e.check((1, 2, 3, None)) is None
    with pytest.raises(TypeError):
        e.check([1, 2, 3, None])
    with pytest.raises(TypeError):
        e.check((1,) * 9)
    e = entry(result=("arg", 2))
    with pytest.raises(TypeError):
        e.run((1, 2))
    assert e.run((1, 2, 3)) == 3
    with pytest.raises(ValueError, match="beyond"):
        entry(result=("tuple", (("arg", 8),)))
    # filled by a load: no parameter is needed
    assert entry(("global", 5, {"x": 1}, "x"), ("equal", 5, 1), result=("arg", 5)).run(()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ((), -1, "plan"),
        ((), MAX_REGISTERS + 1, "plan"),
        ((), 1, None),
        ((), 1, len),
        ((), 1, "plan", 5),
        ((), 1, "plan", (5,)),
        ((), "a", "plan"),
    ],
)
def test_entries_that_are_refused(arguments: tuple) -> None:
    plan = PythonPlan(len, 0, CONSTANT, 0)
    with pytest.raises((ValueError, TypeError)):
        Entry(*(plan if a == "plan" else a for a in arguments))


guard_values = st.one_of(
    st.integers(-3, 12),
    st.sampled_from(
        [
            "a",
            "x",
            "s",
            "<",
            "==",
            "+",
            None,
            True,
            1.5,
            (),
            {},
            [],
            int,
            float,
            np.dtype(float),
            (3,),
            (None,),
            ("s", 0),
            types.CellType(1),
            {"x": 1},
            ("x",),
            2**80,
            frozenset({1, "x"}),
            abc.get_cache_token,
        ]
    ),
    st.tuples(st.integers(-1, 3)),
)
NAMES = [
    "global",
    "absent",
    "cell",
    "closure",
    "type",
    "type_version",
    "attr",
    "no_attr",
    "item",
    "dict_item",
    "len",
    "dict_keys",
    "is",
    "is_not",
    "same",
    "not_same",
    "distinct",
    "equal",
    "value",
    "array",
    "scalar",
    "dim",
    "relation",
    "errstate",
    "int",
    "contents",
    "no_item",
    "set_is",
    "token",
    "what",
]


@given(
    st.lists(
        st.builds(lambda name, rest: (name, *rest), st.sampled_from(NAMES), st.lists(guard_values, max_size=7)),
        max_size=4,
    ),
    st.integers(-1, 2),
    st.integers(-1, 2),
    st.lists(st.sampled_from([1, "x", (1, 2), {"x": 1}, 1.5, np.zeros(3), None]), max_size=3),
)
@settings(max_examples=examples(1500), deadline=None)
def test_random_programs_never_crash(guards: list, n_inputs: int, n_symbols: int, values: list) -> None:
    try:
        e = Entry(tuple(guards), 6, PythonPlan(lambda *inputs: inputs, n_inputs, CONSTANT, n_symbols))
    except (TypeError, ValueError, OverflowError):
        return
    try:
        failed = e.check(tuple(values))
    except TypeError:
        return
    if failed is None:
        assert e.run(tuple(values)) is None
    else:
        with pytest.raises(_dispatch.GuardError):
            e.run(tuple(values))


def test_guards_leak_nothing() -> None:
    thing, name = object(), "".join(["a", "b"])
    names = {name: thing}

    def make() -> Entry:
        return entry(
            ("global", 1, names, name),
            ("is", 1, thing),
            ("array", 0, 0, np.dtype(float), 1, (None,), None, True),
            ("dim", 0, 0, 0),
            ("relation", "<", (("s", 0), 2, "*"), 100, True),
            ("errstate",),
            n_inputs=1,
            n_symbols=1,
            result=("tuple", (("arg", 1), ("out", 0))),
        )

    array = np.zeros(3)
    make().run((array,))
    gc.collect()
    before = [sys.getrefcount(x) for x in (thing, name, names, array)]
    for _ in range(200):
        e = make()
        e.check((array,))
        e.run((array,))
        for bad in (("is", 99, thing), ("equal", 0, [thing])):
            with pytest.raises((ValueError, TypeError)):
                entry(("global", 1, names, name), bad)
    del e, bad
    gc.collect()
    assert [sys.getrefcount(x) for x in (thing, name, names, array)] == before


def test_versions_of_types_tell_of_changes_of_bases() -> None:
    class Base:
        x = 1

    class Derived(Base):
        pass

    before = _dispatch.type_version(Derived)
    assert before == _dispatch.type_version(Derived) != 0
    Base.x = 2
    assert _dispatch.type_version(Derived) not in (0, before)
    with pytest.raises(TypeError, match=r"^type_version: expected a class, got 3$"):
        _dispatch.type_version(3)  # type: ignore[arg-type]
