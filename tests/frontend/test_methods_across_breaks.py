"""Bound methods written in C that are alive where a function breaks: they are bound anew behind the break."""

from __future__ import annotations

import array
import collections
import io
import re
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

X = np.arange(3.0)
# an object, a method of it, and its arguments; those of patterns and arrays are among the methods that ask for the class
METHODS: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "a pattern's": (re.compile("a+"), "sub", ("c", "aab")),
    "a match's": (re.match("a+", "aab"), "end", ()),
    "an array's": (array.array("i", [1, 2]), "extend", ([3],)),
    "a list's": ([1, 2], "count", (1,)),
    "a dict's": ({1: 2}, "get", (1,)),
    "a text's": ("text", "upper", ()),
    "a deque's": (collections.deque([1, 2]), "index", (2,)),
    "a buffer's": (io.BytesIO(b"abc"), "getvalue", ()),
    "an array of numbers'": (np.arange(4), "tobytes", ()),
}


class Bag(list):
    pass


# a program for each would be made in each turn of a loop, were they known by their identity
FRESH: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "an array's": (lambda x, n, owner: x.clip(float(owner.min()), pause(5)), (np.arange(4.0),)),
    "a list subclass's": (lambda x, n, owner: x + (owner.append(pause(n)) or 1), (Bag(),)),
    "a pattern's": (lambda x, n, owner: x + len(owner.sub("c", pause("aab"))), (re.compile("a+"),)),
    "a buffer's": (lambda x, n, owner: x + owner.write(pause(b"abc")), (io.BytesIO(),)),
    "a text's": (lambda x, n, owner: x + len(owner.replace("t", pause("ab"))), ("text",)),
}


def pause(value: Any) -> Any:
    dg.graph_break()
    return value


@pytest.mark.parametrize("name", FRESH)
def test_a_method_that_waits_for_its_arguments_is_known_by_its_object(name: str) -> None:
    step, arguments = FRESH[name]

    def f(x: Any, n: int, *owners: Any) -> Any:
        for k in range(n):
            x = step(x, k % 2, *owners)
        return x

    compiled = dg.compile(f)
    np.testing.assert_array_equal(compiled(X, 40, *arguments), f(X, 40, *arguments))
    assert compiled.stats.compiles < 12 and compiled.stats.fallbacks == 0, compiled.stats.last_error


def test_a_method_that_a_class_says_again_is_the_one_that_was_read() -> None:
    class Doubling(list):
        def append(self, item: Any) -> None:
            super().append(item)
            super().append(item)

    def f(x: Any, bag: list) -> Any:
        list.append.__get__(bag)(pause(1))
        bag.append(pause(2))
        return x + len(bag)

    compiled = dg.compile(f)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(X, Doubling()), f(X, Doubling()))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_outlives_a_break(name: str) -> None:
    owner, method, arguments = METHODS[name]

    def f(x: Any, owner: Any) -> Any:
        bound = getattr(owner, method)
        dg.graph_break()
        return x + 1, bound(*arguments)

    compiled = dg.compile(f)
    for _ in range(3):
        want, got = f(X, owner), compiled(X, owner)
        np.testing.assert_array_equal(got[0], want[0])
        assert got[1] == want[1]
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
