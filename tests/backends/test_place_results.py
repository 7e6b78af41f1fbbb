"""Results of external calls that are put where they would be copied to: structure, values, random programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph import torch
from dynagraph._core import _dispatch
from dynagraph.backends.c import backend
from dynagraph.backends.c.backend import lower_graph
from dynagraph.backends.reference import reference
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.loops import ExternalCall, Kernel, LoopProgram
from dynagraph.ir.passes.pipeline import run as run_passes

from .native import run_native
from .test_c_backend import build

ROWS, COLUMNS = 64, 128  # shorter loops are not cut at the joints


def parts_of(x: Any, factors: Sequence[float], out: Any = None) -> tuple[Any, ...]:
    """Multiples of an array, each in memory of the caller's, if it gives some."""
    given: Any = [None] * len(factors) if out is None else [*out, *[None] * (len(factors) - len(out))]
    return tuple(np.multiply(x, f, out=room) for f, room in zip(factors, given))


def called(b: Any, x: Node, factors: tuple[float, ...], takes_out: bool = True) -> list[Node]:
    call = FunctionCall(parts_of, (Slot(0), factors), takes_out=takes_out)
    return [b.external_call(x, call=call, result=k, dtype=x.dtype, shape=x.shape) for k in range(len(factors))]


def steps(graph: Graph) -> list[Any]:
    return list(lower_graph(run_passes(graph)).steps)


def kinds(graph: Graph) -> list[type]:
    return [type(step) for step in steps(graph)]


def agree(graph: Graph, *arrays: np.ndarray) -> None:
    for ours, theirs in zip(run_native(graph, *arrays), reference(graph)(*arrays)):
        np.testing.assert_array_equal(ours, theirs)
        assert np.array_equal(np.signbit(ours), np.signbit(theirs))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_of_one_array_are_written_in_place(axis: int, turned: bool) -> None:
    """Beside one another, below one another, and with axes in another order."""

    def program(b: Any, x: Node) -> Node:
        parts = called(b, x, (2.0, -3.0, 0.5))
        return b.concatenate(*([b.transpose(p, axes=(1, 0, 2)) for p in parts] if turned else parts), axis=axis)

    x = normal(ROWS, ROWS, COLUMNS)
    graph = build(program, x)
    (call,) = steps(graph)
    assert len({out.buffer for out in call.outs}) == 1
    assert len({out.offset for out in call.outs}) == 3
    agree(graph, x)


def test_an_output_takes_results() -> None:
    x = normal(ROWS, COLUMNS)
    graph = build(lambda b, x: b.concatenate(*called(b, x, (2.0, 3.0)), axis=1), x)
    assert kinds(graph) == [ExternalCall]
    agree(graph, x)


def test_several_calls_and_what_is_computed() -> None:
    """What is computed stays a kernel, beside results of two calls."""

    def program(b: Any, x: Node) -> Node:
        (first,), (second,) = called(b, x, (2.0,)), called(b, b.exp(x), (3.0,))
        return b.concatenate(first, b.sin(x), second, axis=1)

    x = normal(ROWS, COLUMNS)
    graph = build(program, x)
    found = steps(graph)
    assert [type(step) for step in found] == [ExternalCall, Kernel, ExternalCall, Kernel]
    assert found[0].outs[0].buffer == found[2].outs[0].buffer == "out0"
    for ours, theirs in zip(run_native(graph, x), reference(graph)(x)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_calls_that_take_no_memory_of_others() -> None:
    x = normal(ROWS, COLUMNS)
    graph = build(lambda b, x: b.concatenate(*called(b, x, (2.0, 3.0), takes_out=False), axis=1), x)
    assert kinds(graph) == [ExternalCall, Kernel]
    agree(graph, x)


def test_results_that_others_read_are_copied() -> None:
    def program(b: Any, x: Node) -> list[Node]:
        first, second = called(b, x, (2.0, 3.0))
        return [b.concatenate(first, second, axis=1), b.cumsum(first, axis=0)]

    x = normal(ROWS, COLUMNS)
    graph = build(program, x)
    found = steps(graph)
    assert [out.buffer == "out0" for out in found[0].outs] == [False, True]
    agree(graph, x)


def test_what_is_copied_twice_or_in_part_stays() -> None:
    def program(b: Any, x: Node) -> list[Node]:
        first, second, third = called(b, x, (2.0, 3.0, 4.0))
        part = b.slice(third, starts=(0, 0), steps=(1, 1), shape=(ROWS, 64))
        return [b.concatenate(first, second, first, part, axis=1)]

    x = normal(ROWS, COLUMNS)
    graph = build(program, x)
    assert [out.buffer == "out0" for out in steps(graph)[0].outs] == [False, True, False]
    agree(graph, x)


def test_an_input_is_not_written_to_before_its_time() -> None:
    """Results for an argument's memory are copied there when all else is done."""

    def f(x: Any, y: Any) -> Any:
        total = y.sum(axis=0)
        y[...] = np.concatenate([np.sort(x, axis=1), np.sort(-x, axis=1)], axis=1)
        return total, y.sum(axis=0)

    x, y = normal(ROWS, COLUMNS), normal(ROWS, 2 * COLUMNS)
    given, expected = y.copy(), f(x, y)
    for ours, theirs in zip(dg.compile(f, backend="c", fullgraph=True)(x, given), expected):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(given, y)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    """Pieces of calls and of kernels, in any order, moved and joined along any axis, some read by others."""
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 8, 64, 96]), min_size=2, max_size=3)))
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    axis = data.draw(st.integers(0, len(shape) - 1))
    calls = data.draw(st.lists(st.lists(st.sampled_from([2.0, -1.0, 0.0]), min_size=1, max_size=3), min_size=1, max_size=2))
    order = data.draw(st.permutations(range(sum(map(len, calls)) + 1)))
    extra, again = data.draw(st.booleans()), data.draw(st.integers(0, 3))

    def program(b: Any, x: Node) -> list[Node]:
        parts = [part for factors in calls for part in called(b, x, tuple(factors))]
        pieces = [b.transpose(p, axes=axes) for p in [*parts, b.negative(x)]]
        joined = b.concatenate(*(pieces[k] for k in order), axis=axis)
        outputs = [joined if extra else b.multiply(joined, joined)]
        if again < len(parts):
            outputs.append(b.add(parts[again], x))
        return outputs

    x = normal(*shape)
    agree(build(program, x), x)


# -- the gradients of queries, keys and values -----------------------------------------------------------------------------------


def trained(width: int, heads: int, batch_first: bool) -> tuple[Any, Any]:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, batch_first=batch_first)

    def train(x: Any) -> Any:
        layer.zero_grad()
        loss = (layer(x) ** 2).sum()
        loss.backward()
        return loss.detach()

    return layer, train


@pytest.fixture
def number_of_threads() -> Iterator[Any]:
    before = _dispatch.get_threads()
    yield _dispatch.set_threads
    _dispatch.set_threads(before)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_projections_take_the_gradients_side_by_side(
    batch_first: bool, threads: int, number_of_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kernel joins them, for any batch and length; the bits are those of eager calls."""
    layer, train = trained(64, 4, batch_first)
    programs: list[LoopProgram] = []
    place = backend.place_results
    monkeypatch.setattr(backend, "place_results", lambda *given: programs.append(place(*given)) or programs[-1])
    number_of_threads(threads)
    compiled = dg.compile(train, mode="max", fullgraph=True)
    for shape in ((3, 20, 64), (4, 20, 64), (5, 31, 64)):
        x = torch.randn(*shape)
        expected = [train(x), *(p.grad.clone() for p in layer.parameters())]
        got = [compiled(x), *(p.grad for p in layer.parameters())]
        assert all(torch.equal(a, b) for a, b in zip(got, expected))
    gradients = [step for p in programs for step in p.steps if isinstance(step, ExternalCall) and len(step.outs) == 3]
    assert gradients
    for step in gradients:
        assert len({out.buffer for out in step.outs}) == 1


def test_zeros_of_the_gradients_of_attention_are_positive() -> None:
    """Of numbers that underflow, too: so nothing adds 0 to them."""
    tiny = torch.full((1, 2, 40, 8), -1e-30).requires_grad_()
    keys, values = (torch.full((1, 2, 40, 8), 1e-30).requires_grad_() for _ in range(2))
    torch.nn.functional.scaled_dot_product_attention(tiny, keys, values).backward(torch.full((1, 2, 40, 8), -1e-20))
    for t in (tiny, keys, values):
        zeros = t.grad.numpy() == 0
        assert not np.signbit(t.grad.numpy()[zeros]).any()
    assert (tiny.grad.numpy() == 0).any()
