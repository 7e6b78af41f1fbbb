"""Products in programs: what finishes them runs on parts of their results, with the bits that it has elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import get_threads, set_threads
from dynagraph.ir.loops import LibraryCall

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
