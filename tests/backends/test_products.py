"""Products in programs: what finishes them runs on parts of their results, with the bits that it has elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import get_threads, set_threads
from dynagraph.ir.loops import LibraryCall
from dynagraph.ir.passes.memory_plan import step_buffers

from .native import run_native
from .test_c_backend import build, f32, steps
from .test_convolutions import check, reference_of


def biased(b: Any, x: Any, w: Any, bias: Any) -> Any:
    return b.add(b.own_matmul(x, w), bias)


def finished(graph: Any) -> list[bool]:
    return [s.then is not None for s in steps(graph) if isinstance(s, LibraryCall)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "m, n, k", [(200, 700, 300), (1, 900, 40), (1500, 1, 300), (3, 5, 7), (0, 4, 5), (4, 6, 0), (60, 70, 2600)]
)
def test_a_bias_an_activation_and_a_sum(m: int, n: int, k: int, threads: int) -> None:
    def program(b: Any, x: Any, w: Any, bias: Any, other: Any) -> Any:
        y = biased(b, x, w, bias)
        return [b.maximum(y, b.scalar(0.0)), b.greater(y, b.scalar(0.0)), b.add(b.multiply(y, y), other)]

    before = get_threads()
    set_threads(threads)
    try:
        check(program, f32(m, k), f32(k, n), f32(n), f32(m, n))
    finally:
        set_threads(before)


def test_products_of_a_batch_and_of_doubles() -> None:
    check(biased, f32(3, 4, 70, 33), f32(4, 33, 50), f32(50))
    check(biased, *(x.astype(np.float64) for x in (f32(90, 33), f32(33, 50), f32(50))))


def test_a_result_that_is_read_again_stays() -> None:
    """As the product before an activation is, by the activation's gradient."""

    def program(b: Any, x: Any, w: Any, v: Any, bias: Any) -> Any:
        y = b.own_matmul(x, w)
        z = b.own_matmul(b.maximum(b.add(y, bias), b.scalar(0.0)), v)
        return b.multiply(z, b.add(y, bias))

    arrays = f32(60, 50), f32(50, 40), f32(40, 40), f32(40)
    graph = build(program, *arrays)
    np.testing.assert_array_equal(run_native(graph, *arrays)[0], reference_of(graph, *arrays)[0])
    assert finished(graph) == [True, True]


def test_rows_that_another_operand_has_in_another_order() -> None:
    def program(b: Any, x: Any, w: Any, other: Any) -> Any:
        y = b.reshape(b.own_matmul(x, w), shape=(6, 8, 20))
        return b.add(y, b.transpose(other, axes=(1, 0, 2)))

    arrays = f32(48, 30), f32(30, 20), f32(8, 6, 20)
    graph = build(program, *arrays)
    np.testing.assert_array_equal(run_native(graph, *arrays)[0], reference_of(graph, *arrays)[0])
    assert finished(graph) == [False]


def trained(b: Any, x: Any, w: Any, v: Any, bias: Any, g: Any) -> Any:
    """A layer with an activation, x * exp(-x), a layer behind it, and the activation's gradient."""
    y = b.add(b.own_matmul(x, w), bias)
    e = b.exp(b.negative(y))
    z = b.own_matmul(b.multiply(y, e), v)
    slope = b.multiply(e, b.subtract(b.scalar(1.0), y))
    return [z, b.multiply(b.own_matmul(g, v), slope)]


def kept(graph: Any) -> list[int]:
    """How many arrays each product's finish reads, beside the product itself and what is small."""
    found = []
    for step in steps(graph):
        if isinstance(step, LibraryCall) and step.then is not None:
            made = {step.out.buffer} | step_buffers(step)[1]
            found.append(sum(name not in made and not name.startswith("in") for name in step_buffers(step.then)[0]))
    return found


def operands(rows: int) -> tuple[np.ndarray, ...]:
    return f32(rows, 40) / 8, f32(40, 256), f32(256, 256), f32(256), f32(rows, 256)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_slope_of_an_activation_is_kept_instead_of_what_it_is_made_of(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = operands(300)
    graph = build(trained, *arrays)
    assert finished(graph) == [True, False, True]
    assert kept(graph) == [0, 1]  # the slope alone
    before = get_threads()
    set_threads(threads)
    try:
        results = run_native(graph, *arrays)
    finally:
        set_threads(before)
    for ours, expected in zip(results, reference_of(graph, *arrays)):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr("dynagraph.ir.passes.fuse.LARGE", 1 << 40)
    assert kept(graph)[-1] == 2
    for ours, other in zip(results, run_native(graph, *arrays)):
        np.testing.assert_array_equal(ours, other)


def test_no_slope_is_kept_beside_what_is_read_later_anyway() -> None:
    def program(b: Any, x: Any, w: Any, v: Any, bias: Any, g: Any) -> Any:
        y = b.own_matmul(x, w)
        e = b.exp(b.negative(y))
        z, late = b.own_matmul(b.multiply(y, e), v), b.own_matmul(g, v)
        return [z, b.multiply(late, b.multiply(e, b.subtract(b.scalar(1.0), y))), b.add(late, y), b.multiply(late, e)]

    arrays = operands(300)
    graph = build(program, *arrays)
    assert kept(graph)[-1] == 2
    for ours, expected in zip(run_native(graph, *arrays), reference_of(graph, *arrays)):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_small_values_are_computed_where_they_are_used() -> None:
    assert kept(build(trained, *operands(30)))[-1] == 2
