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
from dynagraph.frontend.executor import wrapping


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


# -- many arrays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [200, 201, 600])
def test_many_results(n: int) -> None:
    def f(x: Any) -> list[Any]:
        return [x + i for i in range(n)]

    compiled, x = dg.compile(f, fullgraph=True, backend="numpy"), np.ones(2)
    compiled(x)
    np.testing.assert_array_equal(compiled(x), f(x))
    assert compiled.stats.fallbacks == 0 and not compiled.stats.breaks and len(compiled.entries) == 1


@pytest.mark.parametrize("n", [200, 201, 600])
def test_many_inputs(n: int) -> None:
    def f(xs: list[Any]) -> Any:
        return functools.reduce(operator.add, xs, 0.0)

    compiled, xs = dg.compile(f, fullgraph=True, backend="numpy"), [np.full(2, float(k)) for k in range(n)]
    compiled(xs)
    np.testing.assert_array_equal(compiled(xs), f(xs))
    xs[n - 1] = np.ones(3)  # which the last guard of the arrays finds
    with pytest.raises(ValueError, match="broadcast"):
        compiled(xs)


def test_more_arrays_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrapping._dispatch, "MAX_ARRAYS", 20)
    xs = [np.full(2, float(k)) for k in range(30)]
    compiled = dg.compile(lambda xs: functools.reduce(operator.add, xs, 0.0))
    np.testing.assert_array_equal(compiled(xs), sum(xs))
    assert any("more than 20 arrays" in b for b in compiled.stats.breaks)


def updated(params: dict[str, Any], grads: dict[str, Any], moments: dict[str, list[Any]], rate: float) -> None:
    for key in params:
        first, second = moments[key]
        first += 0.1 * (grads[key] - first)
        second += 0.001 * (grads[key] ** 2 - second)
        params[key] -= rate * first / (np.sqrt(second) + 1e-8)


def test_a_step_over_dicts_of_arrays() -> None:
    """520 arrays and more objects are one program, also where the loop over them is long."""

    def made() -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        params = {f"p{k}": rng.random((2, 1 + k % 3)) for k in range(130)}
        grads = {key: rng.random(p.shape) for key, p in params.items()}
        return params, grads, {key: [np.zeros(p.shape), np.zeros(p.shape)] for key, p in params.items()}, 0.1

    compiled, given, expected = dg.compile(updated), made(), made()
    with dg.config.override(compile_budget=None, stay_eager=False):
        for _ in range(3):
            compiled(*given)
            updated(*expected)
    assert compiled.stats.hits == 2 and not compiled.stats.breaks
    for got, want in zip(pytree.leaves(given), pytree.leaves(expected), strict=True):
        np.testing.assert_array_equal(got, want)
    given[0]["p7"] = given[1]["p10"]  # memory that is written and read
    compiled(*given)
    assert compiled.stats.hits == 2


@pytest.mark.parametrize("n", [33, 300])
def test_many_parts_are_joined(n: int) -> None:
    """The search for an element's part is no chain: neither Python's stack nor each element's time grows with the parts."""
    parts = [np.arange(float(1 + k % 3)) + k for k in range(n)]
    compiled = dg.compile(lambda parts: (np.concatenate(parts) * 2, np.stack([p[:1] for p in parts], axis=1)), fullgraph=True)
    with dg.config.override(compile_budget=None):
        compiled(parts)
        joined, stacked = compiled(parts)
    np.testing.assert_array_equal(joined, np.concatenate(parts) * 2)
    np.testing.assert_array_equal(stacked, np.stack([p[:1] for p in parts], axis=1))
