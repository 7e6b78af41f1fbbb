"""Functions made at random: on the emulated device they give what they give plainly, whatever they are called with."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph import config
from dynagraph.backends.cuda import driver
from dynagraph.backends.cuda import program as device_program
from dynagraph.errors import DynagraphError
from dynagraph.ir.graph import Graph
from dynagraph.ir.interpreter import interpret
from tests import sampling
from tests.cuda import emulator
from tests.cuda.device import EmulatedDevice, QueuedDevice, emulated
from tests.cuda.random_programs import Program, program
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed
from tests.cupy_arrays.harness import Run, places, run
from tests.ir.programs import assert_same_bits, programs, special_values, values

pytestmark = pytest.mark.sampled(10)

WAYS = ("usual", "races", "checked", "replayed", "dynamic", "device", "auto", "sizes then races", "wide", "few blocks")
BOUNDS = {2: 2e-2, 4: 2e-4, 8: 1e-9}  # of a few operations, in units of the largest value


def check(made: Program, way: str, order: str) -> dict[str, Any]:
    """Compare plain and compiled calls; gives what is to be known about the compiled function."""
    with installed(stand_in.module()) as module:
        device = QueuedDevice(module) if way in ("replayed", "device", "auto") else EmulatedDevice(module, "races" in way)
        driver.install(module, device)
        try:
            switches = config.override(cuda_check=way == "checked", stay_eager=False)
            with emulator.order(order), switches, pytest.MonkeyPatch.context() as patch:
                if way in ("wide", "few blocks"):  # all indices have 64 bits; blocks take turns
                    patch.setattr(device_program, "INT32_REACH" if way == "wide" else "MOST_BLOCKS", 1)
                return _check_calls(made, way, module)
        except AssertionError as error:
            raise AssertionError(f"{way}, {order}: {error}\n{made.describe()}") from error
        finally:
            gc.collect()  # what programs have recorded is theirs
            driver.install(module, None)


def _check_calls(made: Program, way: str, module: Any) -> dict[str, Any]:
    on_host = way in ("device", "auto")
    function = made.function(np if on_host else module)
    options: dict[str, Any] = {"dynamic": True} if way in ("dynamic", "sizes then races", "wide") else {}
    options |= {"mode": "reduce-overhead"} if way == "replayed" else {}
    options |= {"device": {"device": "cuda:1", "auto": "auto"}[way]} if on_host else {}
    compiled, raised = dg.compile(function, **options), False
    for sizes in (*made.sizes, made.sizes[0]):
        for call in range(3):
            given = [put(made.make(sizes, seed=call // 2), on_host) for _ in range(2)]
            with np.errstate(all="ignore"):
                plain, ours = run(function, tuple(given[0])), run(compiled, tuple(given[1]))
            compare(ours, plain, module)
            raised |= plain.error is not None
    stats = compiled.stats
    assert stats.fallbacks == 0, stats.last_error
    assert stats.refusals == 0 or raised, stats
    return {"breaks": dict(stats.breaks), "compiles": stats.compiles, "refusals": stats.refusals, "hits": stats.hits}


def check_graph(made: Program, mode: str, order: str) -> bool:
    """The graph of a call on the host by kernels, without what would have it refuse (bad indices); whether there is one."""
    made = replace(made, arguments=tuple(replace(a, alias=None) for a in made.arguments))
    sizes, function = made.sizes[0], made.function(np)
    compiled = dg.compile(function)
    with np.errstate(all="ignore"):
        run(compiled, tuple(made.make(sizes, 0)))
    graph = compiled.last_graph
    if graph is None or compiled.stats.breaks:
        return False
    graph = graph.copy()
    into, scalars = graph.into[: len(graph.outputs) - graph.n_checks], graph.scalars
    if all(scalars[: len(into)]):
        return False
    graph.output_node.set_args(graph.outputs[: len(into)])
    graph.output_node.attrs = {"into": into, "scalars": scalars[: len(into)]}
    graph.eliminate_dead_code()
    named = dict(zip(function.__code__.co_varnames, made.make(sizes, 1)))
    given = [a if isinstance(a := named[p.target], np.ndarray) else p.dtype.numpy.type(a) for p in graph.placeholders]
    with np.errstate(all="ignore"):
        want = interpret(graph, given)
    try:
        with emulator.order(order):
            for mine, theirs in zip(emulated(graph, races=True, mode=mode)(*given), want):
                assert_close(np.asarray(mine), np.asarray(theirs))
    except (AssertionError, DynagraphError) as error:
        raise AssertionError(f"graph, {mode}, {order}: {error}\n{made.describe()}") from error
    return True


def put(arrays: Sequence[Any], on_host: bool) -> list[Any]:
    """Arrays of the device, which share memory where these do."""
    owners: dict[int, Any] = {}
    return list(arrays) if on_host else [_put(a, owners) if isinstance(a, np.ndarray) else a for a in arrays]


def _put(array: np.ndarray, owners: dict[int, Any]) -> Any:
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    if id(whole) not in owners:
        owners[id(whole)] = stand_in.fresh(whole)
    owner = owners[id(whole)]
    offset = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    if array is whole:
        return owner
    if array.size == 0:
        return stand_in.view(owner, np.empty(array.shape, array.dtype))
    memory = stand_in.held(owner).reshape(-1).view(np.uint8)
    return stand_in.view(owner, np.ndarray(array.shape, array.dtype, memory, offset, array.strides))


def compare(ours: Run, plain: Run, module: Any) -> None:
    assert type(ours.error) is type(plain.error), (ours.error, plain.error)
    assert str(ours.error) == str(plain.error)
    pairs = [*zip(ours.arguments, plain.arguments), *zip(ours.result or (), plain.result or ())]
    for mine, theirs in pairs:
        assert type(mine) is type(theirs), (type(mine), type(theirs))
        if hasattr(theirs, "dtype"):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert_close(*(a.get() if isinstance(a, module.ndarray) else np.asarray(a) for a in (mine, theirs)))
    assert places(module, ours) == places(module, plain)


def assert_close(mine: np.ndarray, theirs: np.ndarray) -> None:
    if theirs.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine, theirs)
        return
    finite = abs(theirs[np.isfinite(theirs)]).astype(np.float64)
    bound = BOUNDS[theirs.real.dtype.itemsize]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(mine, theirs, rtol=bound, atol=bound * max(1.0, finite.max(initial=0)))


def drawn(draw: st.DrawFn) -> Program:
    return program(lambda choices: draw(st.sampled_from(choices)))


PROGRAMS = st.composite(drawn)()
ORDERS = st.sampled_from(emulator.ORDERS)
QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
LONG = settings(QUICK, max_examples=sampling.programs, derandomize=False)
SHARED = settings(LONG, max_examples=max(1, sampling.programs // len(WAYS)))  # the ways share the programs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@QUICK
@given(PROGRAMS, ORDERS)
def test_calls_give_what_plain_calls_give(way: str, made: Program, order: str) -> None:
    check(made, way, order)


@pytest.mark.filterwarnings("ignore")
@QUICK
@given(PROGRAMS, ORDERS)
def test_graphs_give_what_the_interpreter_gives(made: Program, order: str) -> None:
    check_graph(made, "default", order)


@settings(QUICK, max_examples=30)
@given(programs(), ORDERS)
def test_graphs_of_exact_ops_give_the_same_bits(graph: Graph, order: str) -> None:
    check_exact(graph, order)


def check_exact(graph: Graph, order: str) -> None:
    with emulator.order(order):
        results = emulated(graph, races=True)(*(special_values(p.dtype, p.shape, k) for k, p in enumerate(graph.placeholders)))
    for got, expected in zip(results, values(graph)):
        assert_same_bits(got, np.asarray(expected))


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@SHARED
@given(PROGRAMS, ORDERS)
def test_many_calls_give_what_plain_calls_give(way: str, made: Program, order: str) -> None:
    check(made, way, order)


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@LONG
@given(PROGRAMS, ORDERS)
def test_many_graphs_give_what_the_interpreter_gives(made: Program, order: str) -> None:
    check_graph(made, "default", order)


@pytest.mark.fuzz
@LONG
@given(programs(), ORDERS)
def test_many_graphs_of_exact_ops_give_the_same_bits(graph: Graph, order: str) -> None:
    check_exact(graph, order)
