"""Guards, plans and recipes that are no good raise ValueError or TypeError, when made or when run: nothing crashes."""

from __future__ import annotations

import random
import types
from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import Entry, GuardError, Launcher, NativeLoop, NativePlan, PythonPlan
from tests import sampling

EXPECTED = ValueError, TypeError, OverflowError, RecursionError, GuardError
F8 = np.dtype("f8")
CELL = types.CellType(3)


class Slotted:
    __slots__ = ("a",)


class Plain:
    def __init__(self) -> None:
        self.a = 1


OBJECTS: dict[str, Any] = {"x": 1.5, "y": [1, 2]}
VALUES = (np.arange(6.0), 3, [1, (2, 3)], {"k": 1, "l": 2}, Plain(), types.MappingProxyType({}), {1, 2}, Slotted())
GUARDS: tuple[tuple, ...] = (
    ("array", 0, 0, F8, 1, (6,), None, None),
    ("array", 0, 0, F8, 1, (None,), (1,), True),
    ("dim", 0, 0, 0),
    ("int", 1, 1),
    ("scalar", 1, 1, int),
    ("relation", "<", (("s", 0), ("s", 1), "*", 7, "//"), (100, ("s", 1), "min"), True),
    ("disjoint", (0,)),
    ("type", 2, list),
    ("item", 8, 2, 1),
    ("len", 8, 2),
    ("item", 9, 8, 0),
    ("equal", 9, 2),
    ("dict_keys", 3, ("k", "l")),
    ("dict_item", 10, 3, "k"),
    ("no_item", 3, "z"),
    ("attr", 11, 4, "a"),
    ("no_attr", 4, "b"),
    ("type_version", 4, Plain),
    ("field", 12, 5, types.MappingProxyType, object.__basicsize__),
    ("set_is", 6, frozenset({1, 2})),
    ("no_slot", 7, Slotted.a),  # type: ignore[attr-defined]
    ("global", 13, OBJECTS, "x"),
    ("absent", OBJECTS, "z"),
    ("cell", 14, CELL),
    ("closure", 15, 0),
    ("is", 9, 2),
    ("value", 9, 2),
    ("errstate",),
)
VIEW = ("view", ("arg", 0), F8, (2, 3), (3, 1), 0, True)
RECIPES: tuple[tuple, ...] = (
    VIEW,
    ("view", ("out", 0), F8, ((("s", 0),),), (1,), 0, False),
    ("tuple", (("out", 0), ("arg", 1), ("const", 3), VIEW)),
    ("list", (("scalar_of", ("out", 0)), ("size", (("s", 0), 2, "*")))),
    ("dict", (("a", ("arg", 9)), ("b", ("memo", 0, ("list", (("arg", 0),)))))),
    ("do", (("call", list, (("arg", 8),)), ("memo", 1, VIEW)), ("call", max, (("const", 1), ("const", 2)))),
)
OUTPUTS: tuple[tuple, ...] = ((F8, (6,), False), (F8, ((("s", 0),),), False, -1, (0,)), (F8, (), True), (F8, (6,), False, 0))
LAUNCHES: tuple[tuple, ...] = (
    (1, 64, 32, 4, (("input", 0), ("output", 0), ("temp", 16), ("value", 1), ("size", 0))),
    (len, len, (0, 1), (("input", 0, 0), ("input", 0, 8), ("output", 0, 0), ("temp", 0, 0), None)),
)
PARAMETERS: tuple[tuple, ...] = (
    ("int", 0), ("float", 1), ("complex", 2), ("scalar", 4, F8), ("array", 5, F8, 2, True), ("object", 11), ("none", 0),
)  # fmt: skip
EXITS: tuple[tuple, ...] = (
    ("return", ("choose", 0, (("int", 0), ("tuple", (("scalar", 4, F8), ("owned", 11), ("none",)))))),
    ("tail", (("call", max, (("const", 1), ("parameter", 6))), ("list", (("complex", 2), ("object", 11))))),
)
LEAVES: tuple[Any, ...] = (
    0, 1, 2, 3, -1, 7, 8, 9, 16, 255, 256, 511, 512, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**60, 2**61, 2**62, 2**63 - 1, 2**63,
    2**64, -(2**31), -(2**63), 2**63 - 8, 1.5, float("nan"), True, None, "", "x", "s", "+", "view", "array", "\ud800", b"", (),
    (1,) * 8, (1,) * 9, (0,) * 33, (("s", 0),), (("s", 99),), ("s", -1), (2**62, 4, "*"), ("arg", 0), ("out", 0), ("out", 255), {},
    [],
    object, int, len, list, F8, np.dtype("O"), np.dtype("i1"), np.dtype("S0"), np.dtype("V8"), "f8", "O", np.arange(3), CELL,
    np.array([None]), ("const", np.array([None] * 9)), Slotted.a,  # type: ignore[attr-defined]
)  # fmt: skip


def mutated(value: Any, rng: random.Random) -> Any:
    """The nested tuple with one thing changed, somewhere."""
    if not isinstance(value, tuple) or not value or rng.random() < 0.1:
        return rng.choice(LEAVES)
    position = rng.randrange(len(value))
    before, item, after = value[:position], value[position], value[position + 1 :]
    choice = rng.random()
    if choice < 0.75:
        return (*before, mutated(item, rng), *after)
    if choice < 0.83:
        return before + after
    if choice < 0.9:
        return (*before, item, rng.choice((item, *LEAVES)), *after)
    return (*before, rng.choice(value), *after)


def attempt(make: Any, *args: Any) -> Any:
    try:
        return make(*args)
    except EXPECTED:
        return None


def run(entry: Entry | None) -> None:
    if entry is not None:
        attempt(entry.check, VALUES)
        attempt(entry.call, VALUES)


def one_of_each(rng: random.Random) -> None:
    def often(value: Any) -> Any:
        return mutated(value, rng) if rng.random() < 0.6 else value

    guards = tuple(often(row) if rng.random() < 0.15 else row for row in GUARDS)
    recipe = often(rng.choice(RECIPES))
    axes, into = often(((0,), ())), often((-1, -1))
    plan = attempt(lambda: PythonPlan(lambda *a: (a[0] * 2,), 2, recipe, 2, 1, (), True, into, 0, False, (), axes))
    step = often((("memo", 0, ("call", np.zeros, (("const", 6),))), 1, F8, (6,), False))
    drawn = attempt(lambda: PythonPlan(lambda *a: (a[0] * 2,), 2, recipe, 2, prologue=(step,)))
    nothing = attempt(NativePlan, 0, None, 2, (), often(64), recipe, False, 2)
    for made in (plan, drawn, nothing):
        if made is not None:
            run(attempt(Entry, guards, 16, made, (CELL,)))
    outputs = often(OUTPUTS)  # never run: the code trusts its outputs
    attempt(
        NativePlan, 8, None, 2, outputs, often((("s", 0), 8, "*")), recipe, True, 2, 0, None, (), often((8, (("s", 0), 8, "*")))
    )
    attempt(NativeLoop, 8, None, often(PARAMETERS), rng.choice((12, 12, -1, 2**20)), often(EXITS), len, None)  # never run
    results, launches, values = often(((F8, (6,), -1),)), often(LAUNCHES), often(((1, 8),))
    attempt(
        Launcher().prepare, 8, 2, 2, values, results, often(16), launches, often(((("s", 0),),)), 2**31, 1024, 0, np.ndarray,
        np.uint8, int, int, int, None, often((0, 1)),
    )  # fmt: skip


def test_what_is_mutated_is_good() -> None:
    plan = PythonPlan(lambda *a: (a[0] * 2,), 2, ("tuple", RECIPES), 2, 1, (), True, (-1,), 0, False, (), ())
    whole = tuple(g for g in GUARDS if g[0] not in ("is",)) + (("is", 9, 2),)
    entry = Entry(whole, 16, plan, (CELL,))
    assert entry.check(VALUES) is None
    assert len(entry.call(VALUES)) == len(RECIPES)
    assert NativeLoop(8, None, PARAMETERS, 12, EXITS, len, None).exits_taken == (0, 0)


def test_mutations_raise() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        one_of_each(rng)


@pytest.mark.fuzz
def test_more_mutations_raise() -> None:
    rng = random.Random()
    for _ in range(15 * sampling.programs):
        one_of_each(rng)


def test_views_of_eight_sizes_and_no_strides() -> None:
    for _ in range(100):
        with pytest.raises(ValueError, match="a view with 8 sizes and 0 strides"):
            PythonPlan(len, 1, ("view", ("arg", 0), "f8", (1,) * 8, (), 0, True))


@pytest.mark.parametrize("offset", [0, 8, 9, 24, 2**63 - 8, -16, 2**40])
def test_fields_lie_within_their_object(offset: int) -> None:
    plan = PythonPlan(len, 0, ("const", 0))
    with pytest.raises(ValueError, match="has no field at"):
        Entry((("field", 1, 0, types.MappingProxyType, offset),), 2, plan)


def test_numbers_that_wrap_to_good_ones() -> None:
    for number in (2**32, 2**64 - 1, -(2**32)):
        with pytest.raises((ValueError, OverflowError)):
            PythonPlan(len, 1, ("out", number), n_outputs=1)


def test_disjoint_reads_what_is_bound() -> None:
    plan = PythonPlan(len, 1, ("const", 0))
    array = ("array", 0, 0, F8, 1, (6,), None, None)
    with pytest.raises(ValueError, match="disjoint reads input 0, which no guard before it binds"):
        Entry((("disjoint", (0,)), array), 1, plan)


def test_views_of_objects() -> None:
    plan = PythonPlan(lambda *a: (), 0, ("view", ("arg", 0), F8, (1,), (1,), 0, True))
    entry = Entry((("type", 0, np.ndarray),), 1, plan)
    with pytest.raises((TypeError, ValueError)):
        entry.call((np.array([None, 1]),))


@pytest.mark.parametrize("sizes", [((2**62, 4), (0, 0)), ((3,), (2**61,)), ((2,), (2**60,))])
def test_views_that_reach_beyond_all_numbers(sizes: tuple) -> None:
    plan = PythonPlan(lambda *a: (), 0, ("view", ("arg", 0), F8, *sizes, 0, True))
    entry = Entry((("type", 0, np.ndarray),), 1, plan)
    with pytest.raises((ValueError, GuardError)):
        entry.call((np.arange(2.0),))


def test_recipes_that_nest_for_ever() -> None:
    recipe: tuple = ("const", 0)
    for _ in range(100_000):  # CPython 3.13 lets C code nest some 10 000 calls, whatever the limit of Python's
        recipe = ("tuple", (recipe,))
    with pytest.raises(RecursionError):
        PythonPlan(len, 0, recipe)
