"""Loops that stay in Python with a compiled body: what turns hand on, how control leaves, what is known before the first turn."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.frontend.executor import watch
from dynagraph.frontend.loops import outline

X = np.linspace(-1.0, 1.0, 7)


@pytest.fixture(autouse=True)
def calls_are_not_worthwhile(monkeypatch):
    """Else the loops were native, with calls of np.sort and np.cumsum out of them."""
    monkeypatch.setattr("dynagraph.frontend.loops.calls_out.LOST", 10**9)


def relaxes(x, steps):
    for _ in range(steps):
        x = np.sort(x) * 0.9 + x.mean() * 0.5
    return x


def set_within(x, steps):
    for k in range(steps):
        y = np.sort(x) * k + x.sum()
        x = y / (1 + np.abs(y).max())
    return y, k


def set_within_or_before(x, steps):
    y = None
    for k in range(steps):
        y = np.sort(x) + k
        x = x + np.cumsum(y) / 100
    return x, y


def with_else(x, steps):
    for k in range(steps):
        x = np.sort(x)[::-1] * 0.9
        if k > 1000:
            break
    else:
        x = x + 1
    return x, k


def leaves(x, steps):
    for k in range(steps):
        x = np.sort(x) * 0.9 + k
        if k == 20:
            return x, k
        if x.max() > 1e9:
            break
    return x


def nested(x, steps):
    total = np.zeros_like(x)
    for i in range(steps):
        for j in range(i, steps):
            if j % 3 == 2:
                continue
            total = total + np.cumsum(x)[::-1] * (i - j)
    return total


def over_rows(x, steps):
    h = np.zeros(3)
    for row in np.outer(np.arange(steps), np.ones(3)):
        h = np.sort(np.cumsum(row) * 0.1 - h)
    return h


def conditionally_set(x, steps):
    for k in range(steps):
        x = np.sort(x) + 1
        if k == 5:
            seen = x  # native loops know no such variable that may be unbound
    return x, seen


def counts_down(x, steps):
    while steps > 0:
        x = np.sort(x)[::-1] + steps
        steps -= 1
    return x, steps


def counts_up(x, steps):
    k = 0
    while k < 90:
        if k == steps:
            break
        x = np.sort(x)[::-1] + k
        x = x * 0.5 + np.cumsum(x) / (1 + np.abs(x).max() + np.abs(x).min())
        k += 1
    return x, k


OUTLINED = (relaxes, set_within, set_within_or_before, with_else, leaves, over_rows, conditionally_set, counts_up)
PROGRAMS = (*OUTLINED, nested, counts_down)


def outcome(function, *args):
    try:
        return function(*args)
    except UnboundLocalError as error:
        return type(error), str(error)


def check_turns(program):
    compiled = dg.compile(program)
    for steps in (140, 0, 141, 1, 2, 300):
        wanted, got = outcome(program, X.copy(), steps), outcome(compiled, X.copy(), steps)
        assert type(got) is type(wanted)
        for a, b in zip(got, wanted) if isinstance(wanted, tuple) else [(got, wanted)]:
            assert type(a) is type(b)
            np.testing.assert_array_equal(a, b)
    assert not compiled.stats.fallbacks


@pytest.mark.sampled(5)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_turns(program):
    check_turns(program)


@pytest.fixture
def choosy():
    with dg.config.override(stay_eager=True, compile_budget=None):
        yield


@pytest.mark.sampled(8)
@pytest.mark.parametrize("program", OUTLINED, ids=lambda p: p.__name__)
@pytest.mark.parametrize("seed", (1, 2, 3))
def test_turns_that_go_now_this_way_and_now_that(program, seed, monkeypatch, choosy):
    draw = random.Random(seed)
    ways = []

    def choose(self, left):
        ways.append(draw.random() < 0.6)
        return ways[-1], draw.choice((1, 2, 5, None))

    monkeypatch.setattr(outline.Choice, "next", choose)
    monkeypatch.setattr(outline.Choice, "note", lambda *_: None)
    check_turns(program)
    assert {True, False} <= set(ways)


@pytest.mark.parametrize("plain_costs, plainly", ((0.01, True), (4.0, False)))
def test_the_faster_way_is_chosen(plain_costs, plainly):
    choice = outline.Choice(SimpleNamespace(entries=[SimpleNamespace(hits=0)]))
    turns = {True: 0, False: 0}
    for _ in range(50):
        way, n = choice.next(1000)
        if n is None:
            break
        turns[way] += n
        if not way:
            choice.body.entries[0].hits += n
        choice.note(way, n, n * (1e-3 * plain_costs if way else 1e-3))
    assert (way, n) == (plainly, None)
    assert turns[True] < 10  # turns that are each a millisecond

    for _ in range(16):  # it holds for some loops, and is then looked at again
        assert choice.next(1000) == (plainly, None) or choice.chosen is None
    assert choice.next(1000)[1] is not None


def test_bodies_that_are_compiled_at_each_turn_are_left_plain():
    choice = outline.Choice(SimpleNamespace(entries=[]))
    for _ in range(outline.MOST_IN_VAIN):
        way, n = choice.next(1000)
        assert (way, n) == (False, 1)
        choice.note(way, n, 0.1)
    assert choice.next(1000) == (True, None)


def test_a_loop_that_nothing_is_gained_by_goes_plainly(choosy):
    def draws(rng, n):
        total = 0.0
        for _ in range(n):
            total += rng.normal() if total < 3 else -total
        return total

    compiled = dg.compile(draws)
    for _ in range(3):
        assert compiled(np.random.default_rng(3), 5000) == draws(np.random.default_rng(3), 5000)
    assert not compiled.stats.fallbacks


def test_an_error_in_a_plain_turn_is_raised_at_its_line(monkeypatch, choosy):
    monkeypatch.setattr(outline.Choice, "next", lambda self, left: (True, None))

    def fails(x, steps):
        for k in range(steps):
            x = np.sort(x) + 1
            x = x.reshape(7 if k < 30 else 5)
        return x

    with pytest.raises(ValueError, match="reshape") as caught:
        dg.compile(fails)(X, 40)
    assert caught.traceback[-1].lineno + 1 == fails.__code__.co_firstlineno + 3


def test_a_body_is_compiled_once():
    compiled = dg.compile(relaxes)
    compiled(X, 50)
    compiled(X, 500)
    assert compiled.stats.compiles <= 4
    assert any("[loop-in-python]" in line for line in compiled.stats.breaks)


def test_an_error_in_the_body_is_raised_at_its_line():
    def fails(x, steps):
        for k in range(steps):
            x = np.sort(x) + 1
            x = x.reshape(7 if k < 30 else 5)
        return x

    compiled = dg.compile(fails)
    with pytest.raises(ValueError, match="reshape") as caught:
        compiled(X, 40)
    assert caught.traceback[-1].lineno + 1 == fails.__code__.co_firstlineno + 3


def test_what_goes_on_behind_a_loop_is_made_unwatched(monkeypatch) -> None:
    """The compiler's own calls are no frames of the broken part in which the loop runs."""
    offered = set()

    def may_be_captured(function, code):
        offered.add(function.__module__)
        return watch.may_be_captured(function, code)

    monkeypatch.setattr("dynagraph.driver.compiler.may_be_captured", may_be_captured)

    def callee(x):
        return leaves(x, 150)[0] * 2

    def plain(xs):
        doubled = []
        re.sub("a", lambda found: doubled.append(callee(xs[len(doubled)])) or "", "a" * len(xs))
        return doubled

    compiled = dg.compile(plain, mode="max")
    for _ in range(3):
        for got, expected in zip(compiled([X, X + 1]), plain([X, X + 1]), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert __name__ in offered and "bytecode.concrete" not in offered and "dynagraph.frontend.bytecode.resume" not in offered
