"""`run_each`: calls of one function on the arrays of many rows; `step_rows` and `fill_numbers`: what optimizers read of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph._core._dispatch import fill_numbers, run_each, step_rows
from dynagraph.driver.unasked import compile_unasked


@pytest.fixture(scope="module")
def scaled() -> Any:
    """A function of two rows and a factor, with entries for rows of floats."""

    def add_scaled(*arrays: Any) -> None:
        x, y, factors = arrays
        x[...] = x + y * factors[0]

    made = compile_unasked(add_scaled, exact=False)
    made(np.zeros(4, np.float32), np.ones(4, np.float32), np.ones(1, np.float32))
    if not made.entries:
        pytest.skip("no C compiler")
    return made


def rows_of(*sizes: Any) -> list[tuple[Any, ...]]:
    return [(np.zeros(size, np.float32), np.full(size, k + 1, np.float32)) for k, size in enumerate(sizes)]


def test_rows_of_all_sizes(scaled: Any) -> None:
    rows = rows_of(2, 100_000, (3, 4), (2, 5, 7), 1 << 17)
    factors = np.array([0.5], np.float32)
    assert run_each(scaled.entries, rows, factors) == []
    for k, (x, y) in enumerate(rows):
        assert (x == (k + 1) / 2).all()
        assert (y == k + 1).all()


def test_arrays_in_another_order_of_memory(scaled: Any) -> None:
    x, y = np.zeros((4, 3), np.float32).T, np.arange(12, dtype=np.float32).reshape(4, 3).T
    assert run_each(scaled.entries, [(x, y)], np.ones(1, np.float32)) == []
    assert (x == y).all()


def test_what_entries_do_not_serve_is_left(scaled: Any) -> None:
    orders = np.zeros((3, 4), np.float32), np.ones((4, 3), np.float32).T
    gaps = np.zeros((3, 8), np.float32)[:, ::2], np.ones((3, 8), np.float32)[:, ::2]
    doubles = np.zeros(3), np.ones(3)
    good = rows_of(3)[0]
    left = run_each(scaled.entries, [orders, good, gaps, doubles], np.ones(1, np.float32))
    assert [id(row) for row in left] == [id(row) for row in (orders, gaps, doubles)]
    assert (good[0] == 1).all()
    assert all((row[0] == 0).all() for row in left)


def test_rows_that_write_to_memory_of_others_are_left(scaled: Any) -> None:
    memory = np.zeros(8, np.float32)
    rows = [(memory[:5], np.ones(5, np.float32)), (memory[3:], np.ones(5, np.float32))]
    assert len(run_each(scaled.entries, rows, np.ones(1, np.float32))) == 2
    assert (memory == 0).all()
    read = np.ones(5, np.float32)
    assert run_each(scaled.entries, [(memory[:4], read[:4]), (memory[4:], read[1:])], np.ones(1, np.float32)) == []


def test_malformed_rows(scaled: Any) -> None:
    assert len(run_each(scaled.entries, [(), (1, 2)], np.ones(1, np.float32))) == 2
    with pytest.raises(TypeError, match="a row is a tuple of arrays, got list"):
        run_each(scaled.entries, [[]], np.ones(1, np.float32))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expected a list of entries"):
        run_each([1], [], np.ones(1, np.float32))  # type: ignore[list-item]


def state(step: float, **arrays: Any) -> dict[str, Any]:
    return {"step": torch.tensor(step), **arrays}


def test_rows_of_steps() -> None:
    params = [torch.ones(2, requires_grad=True) for _ in range(5)]
    states = {p: state(float(k % 2), m=torch.zeros(2)) for k, p in enumerate(params)}
    for p in params[:4]:
        p.grad = torch.ones(2)
    del states[params[3]]
    groups, rest = step_rows(params, states, ("m",), ("step",))
    assert [(dtype, counted, len(rows)) for dtype, counted, _, rows in groups] == [
        (np.dtype("f"), (0.0,), 2), (np.dtype("f"), (1.0,), 1),
    ]  # fmt: skip
    assert groups[0][3][1][0] is params[2]._array
    assert rest == [params[3]]
    assert [p._version for p in params] == [1, 1, 1, 0, 0]
    assert states[params[0]]["m"]._version == states[params[0]]["step"]._version == 1


def test_what_is_not_plain_is_left_to_python() -> None:
    halves, pairs, mixed = torch.ones(2).half(), torch.ones(2).cfloat(), torch.ones(2)
    for p in (halves, pairs, mixed):
        p.requires_grad_()
        p.grad = torch.ones(2, dtype=p.dtype)
    states = {p: state(0.0, m=torch.zeros(2, dtype=torch.float64)) for p in (halves, pairs, mixed)}
    groups, rest = step_rows([halves, pairs, mixed], states, ("m",), ("step",))
    assert groups == []
    assert len(rest) == 3
    assert mixed._version == 0


def test_numbers_are_filled_in() -> None:
    rows = [(np.zeros((), np.float32), np.zeros(())) for _ in range(3)]
    fill_numbers(rows, (1.5, 2.5))
    assert [(a.item(), b.item()) for a, b in rows] == [(1.5, 2.5)] * 3
    with pytest.raises(TypeError, match="expected arrays of one float"):
        fill_numbers([(np.zeros(2),)], (1.0,))


def test_rows_that_lie_alike_are_served_as_the_first_is(scaled: Any) -> None:
    rows = [row for _ in range(30) for row in rows_of((3, 4), 7, (2, 3, 2), 7)]
    before = [entry.hits for entry in scaled.entries]
    assert run_each(scaled.entries, rows, np.ones(1, np.float32)) == []
    assert all((x == y).all() for x, y in rows)
    assert sum(entry.hits for entry in scaled.entries) - sum(before) == len(rows)


def test_rows_that_do_not_lie_alike_are_looked_at(scaled: Any) -> None:
    rows = rows_of(*((4, 6),) * 6)
    frozen, turned, swapped, gaps, doubles, objects = rows
    frozen[0].flags.writeable = False
    turned = rows[1] = (turned[0].reshape(6, 4).T, turned[1].reshape(6, 4).T)
    swapped = rows[2] = (swapped[0], swapped[1].astype(">f4"))
    gaps = rows[3] = (np.zeros((4, 12), np.float32)[:, ::2], gaps[1])
    doubles = rows[4] = (doubles[0], doubles[1].astype(float))
    objects = rows[5] = (objects[0], objects[1].tolist())
    good = rows_of((4, 6), (4, 6))
    left = run_each(scaled.entries, [good[0], *rows, good[1]], np.ones(1, np.float32))
    assert [id(row) for row in left] == [id(row) for row in (frozen, swapped, gaps, doubles, objects)]
    assert all((x == y).all() for x, y in (*good, turned))


@pytest.mark.parametrize("n_before", [1, 5, 40])
def test_memory_that_rows_share_is_seen_whatever_was_before(scaled: Any, n_before: int) -> None:
    good = rows_of(*((4, 6),) * n_before)
    memory, ones = np.zeros(40, np.float32), np.ones((4, 6), np.float32)
    shifted = memory[:24].reshape(4, 6), memory[1:25].reshape(4, 6)  # within one row
    zeros = np.zeros((4, 6), np.float32)
    for more in ([shifted], [(shifted[0], ones), (shifted[1], ones)], [(shifted[0], ones), (zeros, shifted[1])]):
        rows = [*good, *more]
        assert len(run_each(scaled.entries, rows, np.ones(1, np.float32))) == len(rows)
    same = zeros, zeros
    assert [row is same for row in run_each(scaled.entries, [*good, same], np.ones(1, np.float32))] == [True]
    reads = [(np.zeros((4, 6), np.float32), ones) for _ in range(3)]  # all of one array, which nothing writes to
    assert run_each(scaled.entries, [*good, *reads], np.ones(1, np.float32)) == []
