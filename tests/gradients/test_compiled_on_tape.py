"""Compiled functions that are called by code which cannot be captured: one program forward, and one backward."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.differentiation import _programs

X, W = np.array([1.0, 2.0]), np.random.default_rng(0).normal(size=(2, 3))


def make():
    def layer(x, params):
        return {"values": np.tanh(x @ params["w"]), "times": 3}

    compiled = dg.compile(layer)

    def breaks(x, params):
        while np.sum(x) < 10:
            x = x * 2
        result = compiled(x, params)
        return np.sum(result["values"] ** 2) * result["times"]

    return layer, compiled, breaks


def close(got, want):
    (by_x, by_params), (x, params) = got, want
    np.testing.assert_allclose(by_x, x, rtol=1e-12)
    np.testing.assert_allclose(by_params["w"], params["w"], rtol=1e-12)
    assert type(by_x) is type(by_params["w"]) is np.ndarray


def test_gradients_go_through_two_programs():
    layer, _, breaks = make()
    gradient = dg.grad(breaks, (0, 1))
    got = [gradient(X, {"w": W}) for _ in range(3)]
    with dg.disable():
        want = gradient(X, {"w": W})
    for each in got:
        close(each, want)
    (on_tape,) = (p for key, p in _programs[layer.__code__].items() if key[0] == "on a tape")
    assert on_tape.stats.compiles == 1 and on_tape.stats.hits >= 2 and not on_tape.stats.fallbacks


@pytest.mark.parametrize("take", [
    lambda f, args, way: dg.jvp(f, args, way)[1],
    lambda f, args, way: sum(np.sum(g) for g in (lambda a, b: (a, b["w"]))(*dg.hvp(f, args, way))),
], ids=["jvp", "hvp"])  # fmt: skip
def test_tangents_and_second_derivatives(take):
    _, _, breaks = make()
    args, way = (X, {"w": W}), (np.ones(2), {"w": np.ones((2, 3))})
    got = take(breaks, args, way)
    with dg.disable():
        want = take(breaks, args, way)
    np.testing.assert_allclose(got, want, rtol=1e-10)


def test_what_breaks_in_a_compiled_function_is_differentiated_too():
    @dg.compile
    def breaks(x):
        return np.sin(x) if x.sum() > 0 else x

    gradient = dg.grad(lambda x: (breaks(x) * x if x[0] > 0 else x).sum())
    for x in (X, 2 * X, -X):
        np.testing.assert_allclose(gradient(x), np.cos(x) * x + np.sin(x) if x[0] > 0 else np.ones(2))


def test_side_effects_happen_once():
    seen = []

    @dg.compile
    def notes(x):
        seen.append(1)
        return np.sin(x) if x.sum() > 0 else x

    dg.grad(lambda x: notes(x).sum() if x[0] > 0 else x.sum())(X)
    assert seen == [1]


def test_one_program_for_all_gradients_of_a_function():
    def square(x):
        return np.sum(x * x)

    for _ in range(3):
        dg.grad(square)(X)
    (program,) = _programs[square.__code__].values()
    assert program.stats.compiles == 1 and program.stats.hits == 2
