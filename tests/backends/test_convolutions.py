"""Convolutions in programs: what finishes them runs on parts of their results, with the bits that it has elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph._core import _dispatch
from dynagraph.backends.reference import reference
from dynagraph.ir.loops import Kernel, LibraryCall, loaded_buffers

from .native import run_native
from .test_c_backend import build, f32, steps

GEOMETRY = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
IMAGES, FILTERS = (3, 4, 17, 19), (6, 4, 3, 3)


def reference_of(graph: Any, *arrays: np.ndarray) -> Any:
    return reference(graph)(*arrays)


def check(program: Any, *arrays: np.ndarray, finished: bool = True) -> None:
    """That it computes what NumPy does, bit for bit; `finished`: as the one step of a convolution."""
    graph = build(program, *arrays)
    for got, want in zip(run_native(graph, *arrays), reference_of(graph, *arrays)):
        np.testing.assert_array_equal(got, want)
    made = steps(graph)
    calls = [s for s in made if isinstance(s, LibraryCall)]
    assert [s.then is not None for s in calls] == [finished]
    readers = [s for s in made if isinstance(s, Kernel) and calls[0].out.buffer in loaded_buffers(s.body)]
    assert bool(readers) != finished


def channels(b: Any, x: Any) -> Any:
    return b.reshape(x, shape=(x.shape[0], 1, 1))


def normalised(b: Any, y: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> Any:
    mean, variance, weight, bias = (channels(b, x) for x in (mean, variance, weight, bias))
    scaled = b.divide(b.subtract(y, mean), b.sqrt(b.add(variance, b.scalar(1e-5))))
    return b.add(b.multiply(scaled, weight), bias)


def numbers(n: int) -> list[np.ndarray]:
    return [f32(n), abs(f32(n, seed=1)), f32(n, seed=2), f32(n, seed=3)]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_normalisation_an_activation_and_a_sum(groups: int, stride: int) -> None:
    geometry = {**GEOMETRY, "stride": (stride, stride), "groups": groups}
    filters = (8 if groups < 4 else 4, 4 // groups, 3, 3)
    result = (3, filters[0], -(-17 // stride), -(-19 // stride))

    def program(b: Any, x: Any, w: Any, other: Any, *about: Any) -> Any:
        y = normalised(b, b.conv(x, w, **geometry), *about)
        return b.maximum(b.add(y, other), b.scalar(0.0))

    check(program, f32(*IMAGES), f32(*filters), f32(*result), *numbers(filters[0]))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("images", [(2, 40, 2, 2), (1, 40, 3, 16)])
def test_few_places_of_many_channels(threads: int, images: tuple[int, ...]) -> None:
    """Threads divide the channels, and each finishes its own."""

    def program(b: Any, x: Any, w: Any, other: Any, *about: Any) -> Any:
        return b.add(normalised(b, b.conv(x, w, **GEOMETRY), *about), other)

    before = _dispatch.get_threads()
    _dispatch.set_threads(threads)
    try:
        check(program, f32(*images), f32(200, 40, 3, 3), f32(images[0], 200, *images[2:]), *numbers(200))
    finally:
        _dispatch.set_threads(before)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_transposed_convolution(stride: int) -> None:
    geometry = {**GEOMETRY, "stride": (stride, stride), "shape": (stride * 17, stride * 19)}

    def program(b: Any, g: Any, w: Any, bias: Any) -> Any:
        return b.tanh(b.add(b.conv_input(g, w, **geometry), channels(b, bias)))

    graph = build(program, f32(3, 6, 17, 19), f32(*FILTERS), f32(4))
    (got,) = run_native(graph, f32(3, 6, 17, 19), f32(*FILTERS), f32(4))
    np.testing.assert_allclose(got, reference_of(graph, f32(3, 6, 17, 19), f32(*FILTERS), f32(4))[0], rtol=1e-5)
    assert [s.then is not None for s in steps(graph)] == [True]


def test_several_results_of_one_convolution() -> None:
    """The last one lies where the convolution did; what the others read of it is read before."""

    def program(b: Any, x: Any, w: Any, bias: Any) -> Any:
        y = b.add(b.conv(x, w, **GEOMETRY), channels(b, bias))
        return [b.maximum(y, b.scalar(0.0)), b.greater(y, b.scalar(0.0)), b.multiply(y, y)]

    check(program, f32(*IMAGES), f32(*FILTERS), f32(6))


def test_one_image_one_channel_one_place() -> None:
    def program(b: Any, x: Any, w: Any) -> Any:
        return b.negative(b.conv(x, w, **GEOMETRY))

    check(program, f32(1, 4, 5, 6), f32(*FILTERS))
    check(program, f32(2, 4, 5, 6), f32(1, 4, 3, 3))
    check(program, f32(2, 4, 1, 1), f32(*FILTERS))
    check(program, f32(2, 4, 7, 1).astype(np.float64), f32(*FILTERS).astype(np.float64))
    check(program, f32(0, 4, 5, 6), f32(*FILTERS))


def test_what_reads_other_places_is_a_kernel_of_its_own() -> None:
    def turned(b: Any, x: Any, w: Any) -> Any:
        y = b.conv(x, w, **GEOMETRY)
        return b.add(y, b.transpose(y, axes=(0, 1, 3, 2)))

    def kept(b: Any, x: Any, w: Any) -> Any:
        y = b.conv(x, w, **GEOMETRY)
        return [y, b.negative(y)]

    check(turned, f32(3, 4, 9, 9), f32(*FILTERS), finished=False)
    check(kept, f32(3, 4, 9, 9), f32(*FILTERS), finished=False)


def test_operands_that_do_not_lie_in_order() -> None:
    def program(b: Any, x: Any, w: Any) -> Any:
        part = b.slice(w, starts=(0, 1, 0, 0), steps=(1, 1, 1, 1), shape=FILTERS)
        return b.conv(b.transpose(x, axes=(0, 3, 1, 2)), part, **GEOMETRY)

    graph = build(program, f32(3, 17, 19, 4), f32(6, 5, 3, 3))
    (got,) = run_native(graph, f32(3, 17, 19, 4), f32(6, 5, 3, 3))
    np.testing.assert_array_equal(got, reference_of(graph, f32(3, 17, 19, 4), f32(6, 5, 3, 3))[0])


def test_a_sum_that_is_written_over_its_operand() -> None:
    """Where the kernel stores is what it reads, so the convolution is stored elsewhere."""
    def step(x: Any, w: Any, total: Any) -> Any:
        total += torch.nn.functional.conv2d(x, w, padding=1)
        return total

    x, w, total = (torch.from_numpy(f32(*s)) for s in (IMAGES, FILTERS, (3, 6, 17, 19)))
    wanted = step(x, w, total.clone())
    compiled = dg.compile(step, fullgraph=True, mode="max")
    assert (compiled(x, w, total) == wanted).all() and (total == wanted).all()

