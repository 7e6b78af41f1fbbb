"""Programs that are deep or wide: chains as loops unroll them, nested containers, many results."""

from __future__ import annotations

import functools
import operator
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import pytree


def accumulated(n: int) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        total = 0.0
        for i in range(n):
            total = total + x[i]
        return total

    return f


def sliced(x: Any) -> Any:
    for _ in range(300):
        x = x[1:]
    return x.copy()


def chosen(x: Any) -> Any:
    y = x
    for i in range(100):
        y = np.where(x > i, y * 1.5, x + i)
    return y


def compared(x: Any) -> Any:
    y = x
    for _ in range(100):
        y = np.maximum(y, x - y)
    return y, y.max()


@pytest.mark.parametrize("function", [accumulated(300), sliced, chosen, compared], ids=["sum", "slices", "where", "maximum"])
def test_chains_are_one_program(function: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(0).random(400)
    compiled = dg.compile(function, fullgraph=True)
    compiled(x)
    for got, expected in zip(pytree.leaves(compiled(x)), pytree.leaves(function(x)), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert compiled.stats.hits == 1 and not compiled.stats.breaks
    assert str(compiled.last_graph)


def test_a_chain_needs_no_stack() -> None:
    x, f = np.arange(1000.0), accumulated(1000)
    compiled = dg.compile(f, fullgraph=True)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        assert compiled(x) == f(x)
    finally:
        sys.setrecursionlimit(before)


def test_a_chain_is_explained_and_differentiated() -> None:
    x, f = np.arange(300.0), accumulated(300)
    assert "300" in str(dg.explain(f)(x)) or "add" in str(dg.explain(f)(x))
    np.testing.assert_array_equal(dg.grad(f)(x), np.ones(300))
    np.testing.assert_array_equal(dg.compile(dg.grad(f))(x), np.ones(300))


def test_deep_trees() -> None:
    tree: Any = np.ones(3)
    for _ in range(3000):
        tree = (tree,)
    assert len(pytree.leaves(tree)) == 1
    [(name, _)] = pytree.named_leaves(tree, "t")
    assert name == "t" + "[0]" * 3000
    (doubled,) = pytree.leaves(pytree.mapped(lambda leaf: 2 * leaf, tree))
    np.testing.assert_array_equal(doubled, 2 * np.ones(3))


def test_trees_keep_their_order_and_kinds() -> None:
    tree = {"a": (1, [2, None, {"b": 3}]), "c": [], "d": ()}
    assert pytree.leaves(tree) == [1, 2, 3]
    assert pytree.mapped(lambda leaf: leaf * 10, tree) == {"a": (10, [20, None, {"b": 30}]), "c": [], "d": ()}
    assert pickle.dumps(pytree.mapped(lambda leaf: leaf, tree)) == pickle.dumps(tree)


@pytest.mark.parametrize("n", [256, 257])
def test_more_results_than_a_program_gives(n: int) -> None:
    def f(x: Any) -> list[Any]:
        return [x + i for i in range(n)]

    compiled, x = dg.compile(f), np.ones(2)
    compiled(x)
    np.testing.assert_array_equal(compiled(x), f(x))
    assert compiled.stats.fallbacks == 0
    assert any(f"{n} arrays and numbers are given back; at most 256" in b for b in compiled.stats.breaks) == (n > 256)


def test_more_inputs_than_a_program_takes() -> None:
    def f(xs: list[Any]) -> Any:
        return functools.reduce(operator.add, xs, 0.0)

    compiled, xs = dg.compile(f), [np.full(2, float(k)) for k in range(300)]
    np.testing.assert_array_equal(compiled(xs), f(xs))
    assert compiled.stats.fallbacks == 0
    assert any("more than 200 arrays" in b for b in compiled.stats.breaks)
