"""Timing: medians and spreads, turns, and that nothing is left changed."""

from __future__ import annotations

import gc
import time

import pytest

from dynagraph.tools.measure import Samples, measure, seconds_of


def test_median_and_spread() -> None:
    samples = Samples((1.0, 2.0, 3.0, 4.0, 100.0))
    assert samples.median == 3.0
    assert samples.spread == pytest.approx(2.0 / 3.0)
    assert Samples((1.0,)).spread == 0.0


def test_contenders_take_turns_and_rounds_are_counted() -> None:
    order: list[str] = []
    rounds: list[int] = []

    def slow(name: str) -> None:
        order.append(name)
        time.sleep(0.002)

    found = measure({"a": lambda: slow("a"), "b": lambda: slow("b")}, 3, lambda: rounds.append(len(order)))
    assert order[-6:] == ["a", "b"] * 3
    assert len(rounds) == 3
    assert len(found["a"].seconds) == 3
    assert found["a"].median >= 0.002


def test_short_calls_are_repeated_within_a_sample() -> None:
    calls = [0]

    def short() -> None:
        calls[0] += 1

    measure({"short": short}, 2)
    assert calls[0] > 200


def test_garbage_is_collected_again_afterwards() -> None:
    states: list[bool] = []
    measure({"a": lambda: states.append(gc.isenabled())}, 2)
    assert states[-1] is False
    assert gc.isenabled()


def test_one_call_is_one_call() -> None:
    calls: list[int] = []
    assert seconds_of(lambda: calls.append(1)) > 0
    assert calls == [1]
