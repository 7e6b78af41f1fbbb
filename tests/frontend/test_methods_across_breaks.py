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
