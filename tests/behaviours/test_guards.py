"""Guards: what changes between two calls is seen, and what no program read makes no new one."""

from __future__ import annotations

import abc
import builtins
import math
import operator
import os
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .harness import Outcome, RecordingBackend, assert_same, made, observe

HERE = sys.modules[__name__]
CHANGES: list[tuple[Callable, bool]] = []
UNREAD: list[Callable] = []


# -- the helpers ----------------------------------------------------------------------------------------------------------


def views_agree(expected: Any, got: Any) -> None:
    """The layouts of the views among the plain results, and whether results may be written."""
    if isinstance(expected, np.ndarray):
        assert got.flags.writeable == expected.flags.writeable
        if not expected.flags.owndata:
            assert (got.strides, got.flags.aligned) == (expected.strides, expected.flags.aligned)
    elif isinstance(expected, (list, tuple)):
        for e, g in zip(expected, got):
            views_agree(e, g)


def compared(function: Callable, compiled: Any, maker: Callable, who: str) -> Outcome:
    """One plain and one compiled call, which must agree; the plain one's outcome."""
    expected = observe(function, *made(maker), __file__)
    got = observe(compiled, *made(maker), __file__)
    assert_same(expected, got, who)
    views_agree(expected.result, got.result)
    return expected


def warm(function: Callable, maker: Callable, name: str, **options: Any) -> tuple[Any, Outcome]:
    """A compiled function after two calls, of which the second was a hit."""
    compiled = dg.compile(function, backend=RecordingBackend(), **options)
    compared(function, compiled, maker, f"{name}, first call")
    hits = compiled.stats.hits
    outcome = compared(function, compiled, maker, f"{name}, second call")
    assert compiled.stats.hits > hits, f"{name}: the second call was no hit\n" + "\n".join(compiled.stats.breaks)
    return compiled, outcome


def seen(before: Outcome, after: Outcome) -> bool:
    """Whether the plain results differ."""
    try:
        assert_same(Outcome(before.result, before.error), Outcome(after.result, after.error), "")
        views_agree(before.result, after.result)
    except AssertionError:
        return True
    return False


def recompiles(factory: Callable, eager: bool = False) -> None:
    """A change of the world is seen by the next call; unless `eager` is allowed then, the call after that is a hit again."""
    function, maker, change, undo = factory()
    name = factory.__name__
    with dg.config.override(strict=True):
        compiled, before = warm(function, maker, name)
        change()
        try:
            after = compared(function, compiled, maker, f"{name}, changed")
            assert seen(before, after), f"{name}: a change that no result shows tests nothing"
            hits = compiled.stats.hits
            compared(function, compiled, maker, f"{name}, changed, again")
            assert eager or compiled.stats.hits > hits, f"{name}: no hit any more\n" + "\n".join(compiled.stats.breaks)
        finally:
            undo()
        compared(function, compiled, maker, f"{name}, changed back")
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


def no_recompilation(factory: Callable) -> None:
    """After the change the program that was there serves the call."""
    function, maker, change, undo = factory()
    name = factory.__name__
    with dg.config.override(strict=True):
        compiled, _ = warm(function, maker, name)
        compiles, hits = compiled.stats.compiles, compiled.stats.hits
        change()
        try:
            compared(function, compiled, maker, f"{name}, changed")
        finally:
            undo()
    assert (compiled.stats.compiles, compiled.stats.hits) == (compiles, hits + 1), "\n".join([name, *compiled.stats.breaks])
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


def changes(factory: Callable) -> Callable:
    """A row: function, maker of arguments, change, undo; the change must be seen."""
    CHANGES.append((factory, False))
    return factory


def changes_perhaps_to_eager(factory: Callable) -> Callable:
    """The same, where calls in the changed world may run eagerly."""
    CHANGES.append((factory, True))
    return factory


def unread(factory: Callable) -> Callable:
    """A row whose change asks for no new program."""
    UNREAD.append(factory)
    return factory


def patched(owner: Any, name: Any, value: Any) -> tuple[Callable, Callable]:
    """The change that sets an attribute (of a dict: an item), and its undoing."""
    patch = pytest.MonkeyPatch()
    if isinstance(owner, dict):
        return (lambda: patch.setitem(owner, name, value)), patch.undo
    return (lambda: patch.setattr(owner, name, value, raising=False)), patch.undo


def nothing() -> None:
    """No change, or nothing to undo."""


def arange() -> tuple:
    return (np.arange(4.0),)


def holding(value: Any) -> tuple[types.SimpleNamespace, Callable]:
    """A second argument that can be exchanged, and the maker of both arguments."""
    held = types.SimpleNamespace(value=value)
    return held, lambda: (np.arange(4.0), held.value)


# -- globals and functions ------------------------------------------------------------------------------------------------

FACTOR = 3
NAN = math.nan
TABLE = {"used": 2}
FIRST = [1, 2]
CURRENT = FIRST


def doubled(v):
    return v * 2


def defaulting(default):
    """Functions of one code that differ in a default."""

    def helper(v, k=default):
        return v + k

    return helper


def keyword_defaulting(default):
    def helper(v, *, k=default):
        return v + k

    return helper


def closing_over(k):
    def helper(v):
        return v + k

    return helper


PLUS = defaulting(1)
KEYWORD_PLUS = keyword_defaulting(1)
CLOSED_PLUS = closing_over(1)


@changes
def global_int():
    return lambda x: x * FACTOR, arange, *patched(HERE, "FACTOR", 10)


@changes
def global_int_read_by_a_callee():
    def callee(v):
        return v + FACTOR

    return lambda x: callee(x) * 2, arange, *patched(HERE, "FACTOR", 10)


@changes
def global_int_becomes_a_float():
    return lambda x: x * FACTOR, lambda: (np.arange(4),), *patched(HERE, "FACTOR", 3.0)


@changes
def global_function():
    return lambda x: doubled(x) + 1, arange, *patched(HERE, "doubled", lambda v: v * 5)


@changes
def global_function_of_one_code_with_another_default():
    return lambda x: PLUS(x) * 2, arange, *patched(HERE, "PLUS", defaulting(7))


@changes
def global_function_of_one_code_with_another_keyword_default():
    return lambda x: KEYWORD_PLUS(x) * 2, arange, *patched(HERE, "KEYWORD_PLUS", keyword_defaulting(7))


@changes
def global_function_of_one_code_with_another_closure():
    return lambda x: CLOSED_PLUS(x) * 2, arange, *patched(HERE, "CLOSED_PLUS", closing_over(7))


@changes
def code_of_a_callee():
    def helper(v):
        return v + 1

    return lambda x: helper(x) * 2, arange, *patched(helper, "__code__", (lambda v: v - 5).__code__)


@changes
def code_of_a_callee_with_defaults():
    def helper(v, k=3):
        return v + k

    return lambda x: helper(x) * 2, arange, *patched(helper, "__code__", (lambda v, k=0: v * k).__code__)


@changes
def defaults_of_a_callee():
    helper = defaulting(1)
    return lambda x: helper(x) * 2, arange, *patched(helper, "__defaults__", (9,))


@changes
def defaults_of_a_callee_in_type_alone():
    helper = defaulting(1)
    return lambda x: helper(x) * 2, lambda: (np.arange(4),), *patched(helper, "__defaults__", (1.0,))


@changes
def keyword_defaults_of_a_callee():
    helper = keyword_defaulting(1)
    return lambda x: helper(x) * 2, arange, *patched(helper, "__kwdefaults__", {"k": 9})


@changes
def keyword_defaults_of_a_callee_in_place():
    helper = keyword_defaulting(1)
    return lambda x: helper(x) * 2, arange, *patched(helper.__kwdefaults__, "k", 9)


@changes
def callee_in_a_cell_of_one_code_with_another_default():
    helper = defaulting(1)

    def f(x):
        return helper(x) * 2

    def change():
        nonlocal helper
        helper = defaulting(7)

    return f, arange, change, nothing


@changes
def callee_given_of_one_code_with_another_default():
    held, maker = holding(defaulting(1))
    return lambda x, helper: helper(x) * 2, maker, *patched(held, "value", defaulting(7))


@changes
def callee_given_of_one_code_with_another_keyword_default():
    held, maker = holding(keyword_defaulting(1))
    return lambda x, helper: helper(x) * 2, maker, *patched(held, "value", keyword_defaulting(7))


@changes
def code_of_the_function_itself():
    def f(x):
        return x + 1

    return f, arange, *patched(f, "__code__", (lambda x: x - 1).__code__)


@changes
def length_of_a_list_that_becomes_an_array():
    values = [np.float64(2), np.float64(3)]
    return lambda x, items: (x * 2, np.array(items)), lambda: (np.arange(4.0), values), lambda: values.append(values[0]), values.pop


@changes
def code_of_the_function_itself_behind_a_break():
    def f(x):
        y = x + 1
        dg.graph_break()
        return y * 2

    def g(x):
        y = x + 1
        dg.graph_break()
        return y * 3

    return f, arange, *patched(f, "__code__", g.__code__)


@changes
def code_of_a_callee_of_a_broken_part():
    def helper(v):
        w = v + 1
        dg.graph_break()
        return w * 2

    def other(v):
        w = v + 1
        dg.graph_break()
        return w * 3

    def f(x):
        y = helper(x)
        return y * 2

    return f, arange, *patched(helper, "__code__", other.__code__)


@changes
def defaults_of_the_function_itself():
    f = defaulting(1)
    return f, arange, *patched(f, "__defaults__", (9,))


@changes
def keyword_defaults_of_the_function_itself():
    f = keyword_defaulting(1)
    return f, arange, *patched(f, "__kwdefaults__", {"k": 9})


@changes
def closure_cell():
    k = 2

    def f(x):
        return x * k

    def change():
        nonlocal k
        k = 5

    def undo():
        nonlocal k
        k = 2

    return f, arange, change, undo


@changes
def closure_cell_of_a_callee():
    k = 2

    def helper(v):
        return v * k

    def change():
        nonlocal k
        k = 5

    return lambda x: helper(x) + 1, arange, change, nothing


@changes
def closure_cell_becomes_an_array():
    k = 2

    def f(x):
        return x * k

    def change():
        nonlocal k
        k = np.array([1.0, 2.0, 3.0, 4.0])

    return f, arange, change, nothing


# -- modules and builtins -------------------------------------------------------------------------------------------------


@changes
def module_attribute():
    module = types.ModuleType("settings")
    module.scale = 2
    return lambda x: x * module.scale, arange, *patched(module, "scale", 5)


@changes
def module_function():
    module = types.ModuleType("settings")
    module.scale = lambda v: v * 2
    return lambda x: module.scale(x) + 1, arange, *patched(module, "scale", lambda v: v - 2)


@changes
def patched_math_pi():
    return lambda x: x * math.pi, arange, *patched(math, "pi", 3)


@changes_perhaps_to_eager  # while a builtin is replaced nothing is compiled
def patched_builtins_abs():
    plain = abs

    def patch(v):  # other callers must not notice
        return 7 if type(v) is int and v == -12345 else plain(v)

    return lambda x: x * abs(-12345), arange, *patched(builtins, "abs", patch)


@changes
def patched_np_sin():
    return lambda x: np.sin(x) + 1, arange, *patched(np, "sin", np.cos)


@changes
def builtin_shadowed_in_module_globals():
    return lambda x: x * abs(-2), arange, *patched(HERE.__dict__, "abs", lambda v: 7)


@changes
def builtin_shadowed_in_the_globals_of_a_callee():
    def callee(v):
        return v * max(2, 3)

    return lambda x: callee(x) + 1, arange, *patched(HERE.__dict__, "max", min)


# -- callables of objects ---------------------------------------------------------------------------------------------------


@changes
def staticmethod_replaced():
    class Box:
        @staticmethod
        def go(v):
            return v + 1

    return lambda x: Box.go(x) * 2, arange, *patched(Box, "go", staticmethod(lambda v: v - 1))


@changes
def staticmethod_replaced_called_on_an_instance():
    class Box:
        @staticmethod
        def go(v):
            return v + 1

    box = Box()
    return lambda x: box.go(x) * 2, arange, *patched(Box, "go", staticmethod(lambda v: v - 1))


@changes
def dunder_call_replaced():
    class Box:
        def __call__(self, v):
            return v + 1

    box = Box()
    return lambda x: box(x) * 2, arange, *patched(Box, "__call__", lambda self, v: v - 1)


@changes
def function_in_an_input_dict():
    table = {"go": doubled}
    return lambda x, d: d["go"](x) + 1, lambda: (np.arange(4.0), table), *patched(table, "go", lambda v: v - 1)


@changes
def function_in_an_input_dict_of_one_code_with_another_default():
    table = {"go": defaulting(1)}
    return lambda x, d: d["go"](x) * 2, lambda: (np.arange(4.0), table), *patched(table, "go", defaulting(7))


@changes
def function_in_an_input_dict_of_one_code_with_another_closure():
    table = {"go": closing_over(1)}
    return lambda x, d: d["go"](x) * 2, lambda: (np.arange(4.0), table), *patched(table, "go", closing_over(7))


# -- objects and classes --------------------------------------------------------------------------------------------------


class Plain:
    def __init__(self, k: Any = 2) -> None:
        self.k = k


@changes
def object_attribute():
    box, maker = holding(Plain())
    return lambda x, b: x * b.k, maker, *patched(box.value, "k", 5)


@changes
def object_attribute_through_a_closure():
    box = Plain()
    return lambda x: x * box.k, arange, *patched(box, "k", 5)


@changes
def object_attribute_of_an_attribute():
    box = Plain(Plain(2))
    return lambda x: x * box.k.k, arange, *patched(box.k, "k", 5)


@changes
def attribute_becoming_an_array():
    box, maker = holding(Plain())
    return lambda x, b: x * b.k, maker, *patched(box.value, "k", np.array([1.0, 2.0, 3.0, 4.0]))


@changes
def attribute_gained_where_a_default_was_taken():
    box = Plain()
    return lambda x: x * getattr(box, "other", 3), arange, lambda: setattr(box, "other", 5), lambda: delattr(box, "other")


@changes
def class_attribute_set_in_place():
    class Box:
        k = 2

    return lambda x: x * Box.k, arange, *patched(Box, "k", 5)


@changes
def class_attribute_set_in_place_read_from_an_instance():
    class Box:
        k = 2

    _, maker = holding(Box())
    return lambda x, b: x * b.k, maker, *patched(Box, "k", 5)


@changes
def method_replaced_on_a_class():
    class Box:
        def go(self, v):
            return v + 1

    _, maker = holding(Box())
    return lambda x, b: b.go(x) * 2, maker, *patched(Box, "go", lambda self, v: v - 1)


@changes
def method_replaced_by_one_code_with_another_default():
    def going(default):
        def go(self, v, k=default):
            return v + k

        return go

    class Box:
        go = going(1)

    _, maker = holding(Box())
    return lambda x, b: b.go(x) * 2, maker, *patched(Box, "go", going(7))


@changes
def method_replaced_on_a_base_class():
    class Base:
        def go(self, v):
            return v + 1

    class Middle(Base):
        pass

    class Box(Middle):
        pass

    _, maker = holding(Box())
    return lambda x, b: b.go(x) * 2, maker, *patched(Base, "go", lambda self, v: v - 1)


@changes
def method_replaced_on_a_base_class_reached_by_super():
    class Base:
        def go(self, v):
            return v + 1

    class Box(Base):
        def go(self, v):
            return super().go(v) * 2

    _, maker = holding(Box())
    return lambda x, b: b.go(x), maker, *patched(Base, "go", lambda self, v: v - 1)


@changes
def subclass_gaining_a_shadowing_attribute():
    class Base:
        k = 2

    class Box(Base):
        pass

    _, maker = holding(Box())
    return lambda x, b: x * b.k, maker, *patched(Box, "k", 5)


@changes
def subclass_gaining_a_shadowing_method():
    class Base:
        def go(self, v):
            return v + 1

    class Middle(Base):
        pass

    class Box(Middle):
        pass

    _, maker = holding(Box())
    return lambda x, b: b.go(x) * 2, maker, *patched(Middle, "go", lambda self, v: v - 1)


@changes
def class_gaining_a_property_that_shadows_an_instance_attribute():
    class Box:
        def __init__(self):
            self.k = 2

    _, maker = holding(Box())
    return lambda x, b: x * b.k, maker, *patched(Box, "k", property(lambda self: 5))


@changes
def instance_overridden_method():
    class Box:
        def go(self, v):
            return v + 1

    box = Box()
    return lambda x: box.go(x) * 2, arange, lambda: setattr(box, "go", lambda v: v - 1), lambda: delattr(box, "go")


@changes
def property_replaced():
    class Box:
        @property
        def k(self):
            return 2

    _, maker = holding(Box())
    return lambda x, b: x * b.k, maker, *patched(Box, "k", property(lambda self: 5))


@changes
def code_of_the_getter_of_a_property():
    def getter(self):
        return 2

    class Box:
        k = property(getter)

    _, maker = holding(Box())
    return lambda x, b: x * b.k, maker, *patched(getter, "__code__", (lambda self: 5).__code__)


@changes
def dunder_len_replaced():
    class Box:
        def __len__(self):
            return 2

    _, maker = holding(Box())
    return lambda x, b: x * len(b), maker, *patched(Box, "__len__", lambda self: 5)


@changes
def dunder_len_replaced_where_truth_was_asked():
    class Box:
        def __len__(self):
            return 2

    _, maker = holding(Box())
    return lambda x, b: x * 2 if b else x - 1, maker, *patched(Box, "__len__", lambda self: 0)


@changes
def dunder_getattr_replaced():
    class Box:
        def __getattr__(self, name):
            if name == "k":
                return 2
            raise AttributeError(name)

    box = Box()

    def replacement(self, name):
        if name == "k":
            return 5
        raise AttributeError(name)

    return lambda x: x * box.k, arange, *patched(Box, "__getattr__", replacement)


@changes
def dunder_get_of_a_descriptor_replaced():
    class Descriptor:
        def __get__(self, instance, owner):
            return 2

    class Box:
        k = Descriptor()

    _, maker = holding(Box())
    return lambda x, b: x * b.k, maker, *patched(Descriptor, "__get__", lambda self, instance, owner: 5)


@changes
def dunder_class_reassigned():
    class First:
        def go(self, v):
            return v + 1

    class Second:
        def go(self, v):
            return v - 1

    box = First()
    return lambda x: box.go(x) * 2, arange, lambda: setattr(box, "__class__", Second), lambda: setattr(box, "__class__", First)


@changes
def dunder_class_of_an_argument_reassigned():
    class First:
        k = 2

    class Second:
        k = 5

    box, maker = holding(First())
    return lambda x, b: x * b.k, maker, lambda: setattr(box.value, "__class__", Second), nothing


@changes
def subclass_instance_with_another_method():
    class Base:
        def go(self, v):
            return v + 1

    class Box(Base):
        def go(self, v):
            return v - 1

    held, maker = holding(Base())
    return lambda x, b: b.go(x) * 2, maker, *patched(held, "value", Box())


@changes
def subclass_instance_where_the_type_was_asked():
    class Base:
        pass

    class Box(Base):
        pass

    held, maker = holding(Base())
    return lambda x, b: x * 2 if type(b) is Base else x - 1, maker, *patched(held, "value", Box())


@changes
def slot_value():
    class Box:
        __slots__ = ("k",)

        def __init__(self):
            self.k = 2

    held, maker = holding(Box())
    box = held.value
    return lambda x, b: x * b.k, maker, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2)


@changes
def slot_value_deleted():
    class Box:
        __slots__ = ("k",)

        def __init__(self):
            self.k = 2

    held, maker = holding(Box())
    box = held.value
    return lambda x, b: x * getattr(b, "k", 7), maker, lambda: delattr(box, "k"), lambda: setattr(box, "k", 2)


@changes
def abc_register_where_isinstance_was_asked():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Square:
        pass

    _, maker = holding(Square())
    return lambda x, s: x * 2 if isinstance(s, Shape) else x - 1, maker, lambda: Shape.register(Square), nothing


@changes
def abc_register_where_issubclass_was_asked():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Square:
        pass

    return lambda x: x * 2 if issubclass(Square, Shape) else x - 1, arange, lambda: Shape.register(Square), nothing


@changes
def abc_register_of_a_base_class():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Base:
        pass

    class Square(Base):
        pass

    _, maker = holding(Square())
    return lambda x, s: x * 2 if isinstance(s, Shape) else x - 1, maker, lambda: Shape.register(Base), nothing


# -- identity -------------------------------------------------------------------------------------------------------------


@changes
def branch_on_the_identity_of_a_global_list():
    return lambda x: x * 2 if CURRENT is FIRST else x - 1, arange, *patched(HERE, "CURRENT", [1, 2])


@changes
def branch_on_the_identity_of_a_list_argument():
    mode = [1, 2]
    held, maker = holding(mode)
    return lambda x, given: x * 2 if given is mode else x - 1, maker, *patched(held, "value", [1, 2])


@changes
def branch_on_the_identity_of_two_arguments():
    one, other = {"a": 1}, {"a": 1}
    held = types.SimpleNamespace(value=other)
    function = lambda x, a, b: x * 2 if a is b else x - 1  # noqa: E731
    return function, lambda: (np.arange(4.0), one, held.value), *patched(held, "value", one)


@changes
def branch_on_the_identity_of_an_object_attribute():
    one, other = Plain(2), Plain(2)
    box = Plain(one)
    return lambda x: x * 2 if box.k is one else x - 1, arange, *patched(box, "k", other)


# -- containers and Python values -----------------------------------------------------------------------------------------


@changes
def list_element():
    values = [1.0, 2.0]

    def change():
        values[0] = 3.0

    def undo():
        values[0] = 1.0

    return lambda x, v: x * v[0], lambda: (np.arange(4.0), values), change, undo


@changes
def list_element_read_from_the_end():
    values = [1.0, 2.0]
    return lambda x, v: x * v[-1], lambda: (np.arange(4.0), values), lambda: values.append(5.0), values.pop


@changes
def list_element_of_a_closure_list():
    values = [1.0, [2.0]]

    def change():
        values[1][0] = 3.0

    return lambda x: x * values[1][0], arange, change, nothing


@changes
def list_length():
    values = [1.0, 2.0]
    return lambda x, v: x * len(v), lambda: (np.arange(4.0), values), lambda: values.append(5.0), values.pop


@changes
def list_length_of_an_iterated_list():
    values = [1.0, 2.0]

    def f(x):
        for v in values:
            x = x * 2 + v
        return x

    return f, arange, lambda: values.append(5.0), values.pop


@changes
def list_becoming_empty_where_truth_was_asked():
    values = [1.0]
    return lambda x, v: x * 2 if v else x - 1, lambda: (np.arange(4.0), values), values.clear, lambda: values.append(1.0)


@changes
def dict_value():
    table = {"used": 2}
    return lambda x, t: x * t["used"], lambda: (np.arange(4.0), table), *patched(table, "used", 5)


@changes
def dict_key_added_where_its_absence_was_used():
    table = {"used": 2}
    function = lambda x, t: x * t.get("other", 3)  # noqa: E731
    return function, lambda: (np.arange(4.0), table), *patched(table, "other", 5)


@changes
def dict_order_where_it_was_used():
    table = {"a": 1, "b": 2, "c": 3}

    def f(x, t):
        for v in t.values():
            x = x * 2 + v
        return x

    def change():
        table["a"] = table.pop("a")

    return f, lambda: (np.arange(4.0), table), change, nothing


@changes
def dict_order_where_the_first_key_was_used():
    table = {"a": 1, "b": 2}

    def change():
        table["a"] = table.pop("a")

    return lambda x: x * table[next(iter(table))], arange, change, nothing


@changes
def true_is_not_one():
    held = types.SimpleNamespace(value=1)
    return lambda x, k: x + k, lambda: (np.array([True, False]), held.value), *patched(held, "value", True)


@changes
def one_is_not_true():
    held = types.SimpleNamespace(value=True)
    return lambda x, k: x + k, lambda: (np.array([True, False]), held.value), *patched(held, "value", 1)


@changes
def true_is_not_one_where_identity_was_asked():
    held, maker = holding(1)
    return lambda x, k: x * 2 if k is True else x - 1, maker, *patched(held, "value", True)


@changes
def true_is_not_one_in_a_list():
    held, maker = holding([1, 2])
    return lambda x, v: (x * 2, f"{v[0]}"), maker, *patched(held, "value", [True, 2])


@changes
def true_is_not_one_in_an_attribute():
    box = Plain(1)
    return lambda x: (x * 2, isinstance(box.k, bool)), arange, *patched(box, "k", True)


@changes
def string_argument():
    held, maker = holding("double")
    return lambda x, mode: x * 2 if mode == "double" else x - 1, maker, *patched(held, "value", "less")


@changes
def string_as_a_key():
    held, maker = holding("a")
    return lambda x, key: x * {"a": 2, "b": 5}[key], maker, *patched(held, "value", "b")


@changes
def environ_variable_set():
    patch = pytest.MonkeyPatch()
    change = lambda: patch.setenv("GUARDED_MODE", "less")  # noqa: E731
    return lambda x: x * 2 if os.environ.get("GUARDED_MODE") is None else x - 1, arange, change, patch.undo


@changes
def environ_variable_changed():
    patch = pytest.MonkeyPatch()
    change = lambda: patch.setenv("PATH", os.environ["PATH"] + os.pathsep + "/guarded")  # noqa: E731
    return lambda x: x - 1 if os.environ["PATH"].endswith("/guarded") else x * 2, arange, change, patch.undo


@changes
def environ_variable_read_by_getenv():
    patch = pytest.MonkeyPatch()
    return lambda x: x * len(os.getenv("GUARDED_MODE", "ab")), arange, lambda: patch.setenv("GUARDED_MODE", "abcde"), patch.undo


@changes
def environ_asked_for_membership():
    patch = pytest.MonkeyPatch()
    change = lambda: patch.setenv("GUARDED_MODE", "")  # noqa: E731
    return lambda x: x - 1 if "GUARDED_MODE" in os.environ else x * 2, arange, change, patch.undo


# -- arrays ---------------------------------------------------------------------------------------------------------------

GRID = np.arange(12.0).reshape(3, 4)


def exchanging(function: Callable, first: Any, second: Any) -> tuple:
    """A row in which one array takes the place of another."""
    held = types.SimpleNamespace(value=first)
    return function, lambda: (held.value,), *patched(held, "value", second)


def unaligned(array: np.ndarray) -> np.ndarray:
    moved = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@changes
def dtype_to_float32():
    return exchanging(lambda x: x * 2 + 1, GRID, GRID.astype(np.float32))


@changes
def dtype_to_int64():
    return exchanging(lambda x: x * 2 + 1, GRID, GRID.astype(np.int64))


@changes
def dtype_where_it_was_asked():
    return exchanging(lambda x: x * 2 if x.dtype == np.float64 else x - 1, GRID, GRID.astype(np.float32))


@changes
def rank():
    return exchanging(lambda x: x * 2 + 1, np.arange(4.0), np.arange(4.0).reshape(2, 2))


@changes
def rank_where_it_was_asked():
    return exchanging(lambda x: x.sum(axis=0) * x.ndim, np.arange(4.0), np.arange(4.0).reshape(2, 2))


@changes
def strides_pattern_transposed():
    return exchanging(lambda x: (x * 2, x[1:]), GRID[:, :3].copy(), GRID[:, :3].copy().T)


@changes
def strides_pattern_reversed():
    return exchanging(lambda x: (x * 2, x[1:]), GRID, GRID[::-1, ::-1])


@changes
def strides_pattern_with_steps():
    return exchanging(lambda x: (x * 2, x[1:]), np.arange(4.0), np.arange(8.0)[::2])


@changes
def strides_pattern_broadcast():
    return exchanging(lambda x: (x * 2, x[1:]), GRID, np.broadcast_to(GRID[1], (3, 4)))


@changes
def strides_pattern_where_a_reshape_becomes_a_copy():
    return exchanging(lambda x: (x.reshape(-1) * 2, x.ravel()), GRID[:, :3].copy(), GRID[:, :3].copy().T)


@changes_perhaps_to_eager
def alignment():
    return exchanging(lambda x: (x * 2, x[1:]), GRID, unaligned(GRID))


@changes
def writeability_of_a_view():
    return exchanging(lambda x: (x * 2, x[1:]), GRID, read_only(GRID))


@changes_perhaps_to_eager
def writeability_of_an_argument_that_is_written():
    held = types.SimpleNamespace(copied=np.copy)

    def f(x):
        x += 1
        return x * 2

    return f, lambda: (held.copied(GRID),), *patched(held, "copied", read_only)


@changes
def alias_created_between_arguments_asked_for_by_identity():
    held = types.SimpleNamespace(value=GRID.copy())
    return lambda a, b: a * 2 if a is b else a * 5 + b, lambda: (GRID, held.value), *patched(held, "value", GRID)


def written_then_read(a, b):
    a += 1
    return b * 2


@changes
def alias_created_between_arguments_of_which_one_is_written():
    held = types.SimpleNamespace(pair=lambda a: (a, a.copy()))
    return written_then_read, lambda: held.pair(GRID.copy()), *patched(held, "pair", lambda a: (a, a))


@changes_perhaps_to_eager
def alias_created_between_views_of_which_one_is_written():
    held = types.SimpleNamespace(pair=lambda a: (a[1:], a[:-1].copy()))
    return written_then_read, lambda: held.pair(GRID.copy()), *patched(held, "pair", lambda a: (a[1:], a[:-1]))


@changes
def alias_created_between_results_of_arguments():
    held = types.SimpleNamespace(value=GRID.copy())
    return lambda a, b: (a + b, [a, b]), lambda: (GRID, held.value), *patched(held, "value", GRID)


def raising(kind: str, function: Callable, good: np.ndarray, bad: np.ndarray) -> tuple:
    """A row in which an array that makes a floating-point error arrives while such errors are raised."""
    held, old = types.SimpleNamespace(value=good), np.geterr()

    def change():
        held.value = bad
        np.seterr(**{kind: "raise"})

    def undo():
        held.value = good
        np.seterr(**old)

    return function, lambda: (held.value,), change, undo


@changes_perhaps_to_eager
def errstate_divide():
    return raising("divide", lambda x: 1 / x, np.ones(3), np.zeros(3))


@changes_perhaps_to_eager
def errstate_over():
    return raising("over", lambda x: x * x, np.ones(3), np.full(3, 1e300))


@changes_perhaps_to_eager
def errstate_invalid():
    return raising("invalid", lambda x: np.sqrt(x) + 1, np.ones(3), -np.ones(3))


@pytest.mark.parametrize("factory, eager", CHANGES, ids=[factory.__name__ for factory, _ in CHANGES])
def test_changes_are_seen(factory, eager):
    recompiles(factory, eager)


# -- no recompilation -----------------------------------------------------------------------------------------------------


@unread
def unread_key_added_to_an_input_dict():
    table = {"used": 2}
    return lambda x, t: x * t["used"], lambda: (np.arange(4.0), table), *patched(table, "unread", 5)


@unread
def unread_key_added_to_a_global_dict():
    return lambda x: x * TABLE["used"], arange, *patched(TABLE, "unread", 5)


@unread
def unread_key_added_to_the_module_globals():
    return lambda x: x * FACTOR, arange, *patched(HERE.__dict__, "UNREAD_GLOBAL", 5)


@unread
def second_instance_with_equal_values_given():
    held, maker = holding(Plain(2))
    return lambda x, b: x * b.k, maker, *patched(held, "value", Plain(2))


@unread
def second_instance_with_equal_values_at_each_call():
    return lambda x, b: x * b.k, lambda: (np.arange(4.0), Plain(2)), nothing, nothing


@unread
def second_instance_with_equal_values_in_a_closure():
    box = Plain(2)

    def f(x):
        return x * box.k

    def change():
        nonlocal box
        box = Plain(2)

    return f, arange, change, nothing


@unread
def second_instance_with_equal_values_and_a_method():
    @dataclass
    class Box:
        k: int
        w: np.ndarray

        def go(self, v):
            return v * self.k + self.w

    return lambda x, b: b.go(x), lambda: (np.arange(4.0), Box(2, np.ones(4))), nothing, nothing


@unread
def nan_twice():
    held, maker = holding(float("nan"))
    return lambda x, k: x * k, maker, *patched(held, "value", float("nan"))


@unread
def nan_twice_in_a_global():
    return lambda x: np.maximum(x, NAN) + 1, arange, *patched(HERE, "NAN", float("nan"))


@unread
def nan_twice_in_a_list():
    return lambda x, v: x * v[0], lambda: (np.arange(4.0), [float("nan")]), nothing, nothing


@unread
def unread_tail_of_an_input_list_grown():
    values = [1.0, 2.0]
    return lambda x, v: x * v[0], lambda: (np.arange(4.0), values), lambda: values.append(5.0), values.pop


@unread
def unread_tail_of_a_closure_list_grown():
    values = [1.0, 2.0]
    return lambda x: x * values[1], arange, lambda: values.extend([5.0, 6.0]), nothing


@unread
def same_lambda_recreated_each_call():
    return lambda x, go: go(x) + 1, lambda: (np.arange(4.0), lambda v: v * 2), nothing, nothing


@unread
def same_lambda_recreated_each_call_with_an_equal_closure():
    def maker():
        k = 2
        return np.arange(4.0), lambda v: v * k

    return lambda x, go: go(x) + 1, maker, nothing, nothing


@unread
def same_lambda_recreated_each_call_with_an_equal_default():
    return lambda x, go: go(x) + 1, lambda: (np.arange(4.0), lambda v, k=2: v * k), nothing, nothing


@unread
def same_lambda_recreated_in_the_function():
    def apply(go, v):
        return go(v)

    return lambda x: apply(lambda v: v * 2, x) + 1, arange, nothing, nothing


@pytest.mark.parametrize("factory", UNREAD, ids=lambda factory: factory.__name__)
def test_no_recompilation(factory):
    no_recompilation(factory)


def test_another_thread_takes_the_program():
    def f(x):
        return x * FACTOR

    results, array = [], np.arange(4.0)
    with dg.config.override(strict=True):
        compiled, outcome = warm(f, arange, "another thread")
        compiles, hits = compiled.stats.compiles, compiled.stats.hits
        thread = threading.Thread(target=lambda: results.append(compiled(array)))
        thread.start()
        thread.join()
    assert_same(outcome, Outcome(results[0], arguments=((array,), {})), "another thread")
    assert (compiled.stats.compiles, compiled.stats.hits) == (compiles, hits + 1)


def scaled_rows(x):
    return x * 2 + x.shape[0]


@pytest.mark.parametrize("options, first", [({}, (4, 5)), ({"dynamic": True}, (4,))], ids=["after two sizes", "dynamic"])
def test_new_sizes_of_a_symbolic_dimension_take_the_program(options, first):
    compiled = dg.compile(scaled_rows, backend=RecordingBackend(), **options)
    with dg.config.override(strict=True):
        for n in first:
            compared(scaled_rows, compiled, lambda: (np.ones((n, 3)),), f"size {n}")
        compiles, hits = compiled.stats.compiles, compiled.stats.hits
        assert compiles > 0
        for n in (6, 9, 100):
            compared(scaled_rows, compiled, lambda: (np.ones((n, 3)),), f"size {n}")
    assert (compiled.stats.compiles, compiled.stats.hits) == (compiles, hits + 3)


OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv, operator.pow, operator.and_,
    operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt, operator.le, operator.eq, operator.ne, divmod,
)  # fmt: skip
OPERANDS = {
    "itself": lambda x, n: n,
    "another size": lambda x, n: x.shape[0],
    "a product": lambda x, n: n * n,
    "a difference": lambda x, n: n - 5,
    "an int": lambda x, n: -2,
    "a large int": lambda x, n: (1 << 61) + 3,
    "a float": lambda x, n: 2.5,
    "a str": lambda x, n: "ab",
    "a list": lambda x, n: [1],
    "None": lambda x, n: None,
}


@pytest.mark.parametrize("operand", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("operation", OPERATORS, ids=lambda o: o.__name__)
def test_operators_on_ints_that_change(operation, operand):
    def f(x, n):
        found = []
        for swapped in (False, True):
            pair = (operand(x, n), n) if swapped else (n, operand(x, n))
            if operation in (operator.pow, operator.lshift) and max(map(abs, filter(of_int, pair)), default=0) > 50:
                continue
            try:
                found.append(operation(*pair))
            except Exception as error:
                found.append(repr(error))
        return x + 1, found

    compiled = dg.compile(f, backend=RecordingBackend())
    with dg.config.override(strict=True):
        for n in (3, 4, 5, 6, 1 << 40):
            compared(f, compiled, lambda: (np.ones(min(n, 9)), n), f"{n}")
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


def of_int(value: Any) -> bool:
    return isinstance(value, int)


# -- counts ---------------------------------------------------------------------------------------------------------------


def sized(n: int) -> tuple:
    return (np.arange(n * 3.0).reshape(n, 3),)


def layer(x):
    return np.maximum(x @ np.ones((3, 2)), 1) - x.mean(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "function, maker, values, compilations",
    [
        (operator.mul, None, (3, 4, 5), 2),
        (scaled_rows, sized, (4, 5, 6), 2),
        (scaled_rows, sized, (4, 1, 7), 3),
        (scaled_rows, sized, range(2, 22), 2),
        (layer, sized, range(2, 22), 2),
    ],
    ids=["int 3 4 5", "size 4 5 6", "size 4 1 7", "twenty batch sizes", "twenty batch sizes of a layer"],
)
def test_counts_of_compilations(function, maker, values, compilations):
    if maker is None:
        operation, function, maker = function, lambda x, k: operation(x, k) + k, lambda k: (np.arange(4.0), k)
    compiled = dg.compile(function, backend=RecordingBackend())
    with dg.config.override(strict=True):
        for value in values:
            compared(function, compiled, lambda: maker(value), f"{value}")
    assert compiled.stats.compiles == compilations
    assert compiled.stats.hits == len(values) - compilations
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


# -- many guards ----------------------------------------------------------------------------------------------------------

G0, G1, G2, G3, G4, G5, G6, G7, G8, G9 = range(10)
G10, G11, G12, G13, G14, G15, G16, G17, G18, G19 = range(10, 20)


class Lowest:
    a0, a1, a2 = 1, 2, 3


class Middle(Lowest):
    a3, a4, a5 = 4, 5, 6


class Highest(Middle):
    a6 = 7

    def __init__(self):
        self.a7, self.a8, self.a9 = 8, 9, 10


def reads_much(x, b):
    low = G0 + G1 + G2 + G3 + G4 + G5 + G6 + G7 + G8 + G9
    high = G10 + G11 + G12 + G13 + G14 + G15 + G16 + G17 + G18 + G19
    return x * low + high + (b.a0 + b.a1 + b.a2 + b.a3 + b.a4 + b.a5 + b.a6 + b.a7 + b.a8 + b.a9)


def test_twenty_globals_and_ten_attributes_through_three_classes():
    backend = RecordingBackend()
    compiled = dg.compile(reads_much, backend=backend)
    with dg.config.override(strict=True):
        for _ in range(3):
            compared(reads_much, compiled, lambda: (np.arange(4.0), Highest()), "twenty globals")
    assert len(backend.graphs) == 1 and not compiled.stats.breaks
    assert (compiled.stats.compiles, compiled.stats.hits) == (1, 2)


@pytest.mark.parametrize("kinds", (("l", "q"), ("q", "l"), ("L", "Q"), ("Q", "L")))
def test_equal_dtypes_of_other_scalars(kinds):
    """np.longlong and np.int64 are equal dtypes where a long has 64 bits, yet their scalars have types of their own."""
    compiled = dg.compile(lambda x: x[0] + x[1], backend="reference")
    for kind in kinds * 2:
        assert type(compiled(np.ones(2, kind))) is np.dtype(kind).type


def test_results_of_many_dimensions():
    """Programs give arrays of at most eight dimensions."""
    compiled = dg.compile(lambda x, n: np.zeros((1,) * n) + x, backend="reference")
    for n in (3, 8, 9, 10, 40):
        np.testing.assert_array_equal(compiled(np.ones(()), n), np.ones((1,) * n))
    assert compiled.stats.fallbacks == 0


def test_scalars_of_numbers_that_vary():
    """Nothing is computed, and yet there is a result that the program makes."""
    compiled = dg.compile(lambda f: np.float64(f).as_integer_ratio())
    for f in (0.5, 1.5, -0.875, 0.0, 11.5):
        assert compiled(f) == f.as_integer_ratio()
    assert compiled.stats.fallbacks == 0


class Unset(int):
    """Equal to nothing but itself, and so without a hash."""

    def __eq__(self, other):
        return self is other


UNSET = Unset()


def doubles_unless(x, k=UNSET, name=("a", UNSET)):
    return x if k == 0 else x * 2


def test_defaults_that_have_no_hash(monkeypatch):
    compiled = dg.compile(lambda x: doubles_unless(x) + 1, backend="reference")
    for _ in range(2):
        np.testing.assert_array_equal(compiled(np.ones(2)), [3.0, 3.0])
    monkeypatch.setattr(doubles_unless, "__defaults__", (0, "a"))
    np.testing.assert_array_equal(compiled(np.ones(2)), [2.0, 2.0])
    assert compiled.stats.fallbacks == 0
