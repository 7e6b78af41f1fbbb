"""What may run side by side, and what stands against it."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.ir.passes import fast_nests
from dynagraph.ir.passes.lane_kinds import Refused
from dynagraph.ir.passes.outer_lanes import Lanes


def adds_up(a: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(n):
        for k in range(n):
            c[0, j] += a[k, j]


def recurrence(a: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(1, n):
        for k in range(n):
            c[0, j] += c[0, j - 1] * a[k, j]


def total(a: np.ndarray, c: np.ndarray, n: int) -> float:
    s = a[0, 0]
    for j in range(n):
        for k in range(n):
            s += a[k, j]
    return s


def branches(a: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(n):
        for k in range(n):
            if a[k, j] > 0.0:
                c[0, j] += a[k, j]


def triangle(a: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(n):
        for k in range(j):
            c[0, j] += a[k, j]


def one_place(a: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(n):
        for k in range(n):
            c[0, 0] += a[k, j]


def copies(a: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(n):
        for k in range(n):
            c[j, k] = a[j, k]


def roots(a: np.ndarray, c: np.ndarray, n: int) -> None:
    for j in range(n):
        for k in range(n):
            c[0, j] += abs(a[k, j])


REASONS = [
    (adds_up, ""),
    (recurrence, "turns write to what others read or write"),
    (branches, ""),
    (triangle, ""),
    (one_place, "turns write to one place"),
    (copies, "its turns are no faster side by side"),
    (roots, ""),
]


def reasons_for(function: Callable) -> list[str]:
    """Of its outer loop, each time that it is looked at."""
    found = []

    class Seen(Lanes):
        def __init__(self, *of_a_loop):  # type: ignore[no-untyped-def]
            try:
                super().__init__(*of_a_loop)
            except Refused as refused:
                found.append(str(refused))
                raise
            found.append("")

    with mock.patch.object(fast_nests, "Lanes", Seen), dg.config.override(compile_budget=None):
        compiled = dg.compile(function)
        compiled(np.ones((40, 40)), np.zeros((40, 40)), 40)
    return [reason for reason in found if reason != "it has no loops within, or too many blocks"]


@pytest.mark.parametrize(("function", "reason"), REASONS)
def test_reasons(function: Callable, reason: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with dg.config.override(cache_dir=str(tmp_path)):
        found = reasons_for(function)
    assert found and all(any(r.startswith(part) for part in reason.split("|")) for r in found), found
    assert bool(reason) == all(found)


def test_a_sum_over_all_turns_stays_in_order(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with dg.config.override(cache_dir=str(tmp_path)):
        assert all(reasons_for(total))
