"""Where parts of graphs run by the tables on paper, and what follows from it: copies, segments, programs, texts and refusals."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import numpy as numpy_backend
from dynagraph.backends.c import backend as c_backend
from dynagraph.backends.executable import Executable
from dynagraph.backends.multi_device import MoveStep, RunStep, compile_placed, schedule
from dynagraph.backends.native_call import native_call
from dynagraph.backends.reference import reference
from dynagraph.errors import BackendError, GraphError, PlacementError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.machine_model import A100, CPU, H200, NVLINK4, PCIE_GEN4, PCIE_GEN5, Device, Link, Machine, on_paper, rate_class
from dynagraph.ir.passes.estimate import seconds_on
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.passes.place import grouped, place
from dynagraph.ir.placement import Placement
from dynagraph.ir.shapes import Dim, ShapeEnv

from .placements import Fleet, call, device, structure
from .simulator import CannotRun, simulate

ONE_GPU, TWO_GPUS = on_paper(), on_paper(count=2)
SMALL, LARGE = 8, 4096


def matrix(graph: Graph, name: str, size: Dim, on: str = "cpu", dtype: dtypes.DType = dtypes.float32) -> Node:
    return graph.placeholder(name, Meta(dtype, (size, size), device=on))


def captured(function: Callable[..., Any], *args: Any) -> Graph:
    """The graph of a call, which is not run, as backends start from it."""
    program = dg.explain(function)(*args).program
    assert program is not None
    return run_passes(program.graph)


def devices_of(placement: Placement) -> set[str]:
    return {group.device for group in placement.groups}


# -- what runs where --------------------------------------------------------------------------------------------------------------
def test_large_products_run_where_their_operands_lie() -> None:
    graph = Graph()
    x, y = matrix(graph, "x", LARGE, "cuda:0"), matrix(graph, "y", LARGE, "cuda:0")
    product = call(graph, "matmul", x, y)
    graph.output([product])
    placement = place(graph, ONE_GPU)
    assert placement.device == {x: "cuda:0", y: "cuda:0", product: "cuda:0"}
    assert placement.delivered == ("cuda:0",) and not placement.copies
    other = place(graph, TWO_GPUS, {x: "cuda:1", y: "cuda:1"})
    assert other.device[product] == "cuda:1"


@pytest.mark.parametrize("size, expected", [(SMALL, "cpu"), (LARGE, "cuda:0")])
def test_only_large_products_are_worth_copies(size: int, expected: str) -> None:
    graph = Graph()
    x = matrix(graph, "x", size)
    product = call(graph, "matmul", x, x)
    graph.output([product])
    placement = place(graph, ONE_GPU, outputs=["cpu"])
    assert placement.device[product] == expected and placement.delivered == ("cpu",)
    copied = [(x, "cuda:0"), (product, "cpu")] if expected == "cuda:0" else []
    assert [(c.value, c.destination) for c in placement.copies] == copied


def test_one_addition_does_not_pay_for_copies() -> None:
    """Over a link that is slower than the memory of the CPU."""
    graph = Graph()
    x = matrix(graph, "x", LARGE)
    graph.output([call(graph, "add", x, x)])
    assert devices_of(place(graph, on_paper(A100, pcie=PCIE_GEN4), outputs=["cpu"])) == {"cpu"}


def test_everything_stays_where_it_is_behind_a_slow_link() -> None:
    graph = Graph()
    x = matrix(graph, "x", LARGE)
    graph.output([call(graph, "exp", call(graph, "matmul", call(graph, "tanh", x), x))])
    slow = on_paper(pcie=Link(bandwidth=1e6, latency=1e-3))
    assert devices_of(place(graph, slow, outputs=["cpu"])) == {"cpu"}
    assert devices_of(place(graph, slow, {x: "cuda:0"}, outputs=["cuda:0"])) == {"cuda:0"}
    assert devices_of(place(graph, ONE_GPU, outputs=["cpu"])) == {"cuda:0"}


def test_a_value_is_copied_once_for_all_that_use_it() -> None:
    graph = Graph()
    x = matrix(graph, "x", LARGE)
    products = [call(graph, "matmul", x, call(graph, name, x)) for name in ("exp", "tanh", "sin")]
    graph.output(products)
    placement = place(graph, ONE_GPU)
    assert devices_of(placement) == {"cuda:0"}
    assert [c.value for c in placement.copies] == [x]
    assert placement.copy_seconds == ONE_GPU.copy_seconds("cpu", "cuda:0", 4 * LARGE**2)


def test_two_gpus_share_what_neither_would_do_alone() -> None:
    """Each half lies on another device; only the small result crosses."""
    graph = Graph()
    x, y = matrix(graph, "x", LARGE, "cuda:0"), matrix(graph, "y", LARGE, "cuda:1")
    sums = [call(graph, "sum", call(graph, "matmul", m, m), axis=(0, 1), keepdims=False) for m in (x, y)]
    total = call(graph, "add", *sums)
    graph.output([total])
    placement = place(graph, TWO_GPUS, outputs=["cuda:1"])
    assert [placement.device[s] for s in sums] == ["cuda:0", "cuda:1"] and placement.exact
    assert [str(c) for c in placement.copies] == ["sum: cuda:0 -> cuda:1"]
    assert simulate(placement).makespan < 0.6 * placement.seconds  # they work at the same time


def test_explicit_placement_is_obeyed() -> None:
    graph = Graph()
    x = matrix(graph, "x", SMALL)
    product = call(graph, "matmul", x, x)
    result = call(graph, "exp", product)
    graph.output([result])
    placement = place(graph, TWO_GPUS, {product: "cuda:1", result: "cuda:0"}, outputs=["cpu"])
    assert (placement.device[product], placement.device[result]) == ("cuda:1", "cuda:0")
    assert [str(c) for c in placement.copies] == ["x: cpu -> cuda:1", "matmul: cuda:1 -> cuda:0", "exp: cuda:0 -> cpu"]
    assert [s.device for s in placement.segments()] == ["cuda:1", "cuda:0"]


def test_equal_devices_are_chosen_in_order() -> None:
    machine = Machine((device("cpu"), device("cuda:0"), device("cuda:1")), dict.fromkeys(
        [("cpu", "cuda:0"), ("cpu", "cuda:1"), ("cuda:0", "cuda:1")], Link(1e12, 0.0)))
    graph = Graph()
    graph.output([call(graph, "exp", call(graph, "full", shape=(1000,), value=1.0, dtype=dtypes.float32))])
    assert devices_of(place(graph, machine)) == {"cpu"}


# -- captured graphs --------------------------------------------------------------------------------------------------------------
def loss(params: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> Any:
    w1, b1, w2, b2 = params
    hidden = np.tanh(x @ w1 + b1)
    return np.mean((hidden @ w2 + b2 - y) ** 2)


def step(params: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> Any:
    value, gradients = dg.value_and_grad(loss)(params, x, y)
    return value, [p - 0.1 * g for p, g in zip(params, gradients)]


def step_arguments(batch: int, width: int, hidden: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(width, hidden), (hidden,), (hidden, 10), (10,)]
    params = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    return params, rng.standard_normal((batch, width)).astype(np.float32), rng.standard_normal((batch, 10)).astype(np.float32)


def test_a_training_step_with_a_large_batch_runs_on_the_gpu() -> None:
    graph = captured(step, *step_arguments(8192, 784, 512))
    placement = place(graph, ONE_GPU, outputs=["cpu"] * len(graph.outputs))
    products = [node for node in graph.nodes if node.is_op("matmul")]
    assert len(products) == 5 and {placement.device[node] for node in products} == {"cuda:0"}
    assert placement.exact and placement.seconds < 0.1 * all_on(placement, "cpu")
    assert simulate(placement).makespan <= placement.seconds


def test_a_training_step_on_little_data_stays_on_the_cpu() -> None:
    graph = captured(step, *step_arguments(4, 8, 16))
    placement = place(graph, ONE_GPU)
    assert devices_of(placement) == {"cpu"} and not placement.copies
    assert len(placement.segments()) == 1


def test_a_training_step_stays_on_the_gpu_that_holds_its_weights() -> None:
    graph = captured(step, *step_arguments(256, 784, 512))
    fixed = dict.fromkeys(graph.placeholders, "cuda:1")
    placement = place(graph, TWO_GPUS, fixed, outputs=["cuda:1"] * len(graph.outputs))
    assert devices_of(placement) == {"cuda:1"} and not placement.copies


def all_on(placement: Placement, name: str) -> float:
    return sum(group.seconds[name] for group in placement.groups)


def test_an_external_call_keeps_its_part_on_the_cpu() -> None:
    def solve_between(a: np.ndarray, b: np.ndarray) -> Any:
        return np.exp(np.linalg.solve(a @ a, b @ b))

    x = np.eye(2048, dtype=np.float32)
    graph = captured(solve_between, x, x)
    fixed = dict.fromkeys(graph.placeholders, "cuda:0")
    placement = place(graph, ONE_GPU, fixed, outputs=["cuda:0"] * len(graph.outputs))
    by_op = {node.op.name: name for node, name in placement.device.items() if node.kind == "call_function"}
    assert (by_op["matmul"], by_op["external_call"], by_op["exp"]) == ("cuda:0", "cpu", "cuda:0")
    assert [s.device for s in placement.segments()] == ["cuda:0", "cpu", "cuda:0"]


@pytest.mark.parametrize("backend", [reference, c_backend.compile_graph], ids=["reference", "c"])
def test_an_external_call_whose_results_nothing_uses_is_made(backend: Callable[[Graph], Executable]) -> None:
    """For what it raises."""

    def unused(a: np.ndarray) -> Any:
        np.linalg.inv(a)
        return a + 1

    graph = captured(unused, np.eye(4))
    fixed = {node: "cuda:0" for node in graph.nodes if node.is_op("add") or node.kind == "placeholder"}
    placement = place(graph, ONE_GPU, fixed)
    assert {s.device: len(s.outputs) for s in placement.segments()} == {"cuda:0": 1, "cpu": 0}
    program = compile_placed(placement, {"cpu": backend, "cuda:0": backend}, lambda a, source, to: a.copy())
    np.testing.assert_array_equal(program(np.eye(4))[0], np.eye(4) + 1)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        program(np.zeros((4, 4)))


def test_a_gpu_that_has_the_function_takes_the_external_call() -> None:
    x = np.eye(2048, dtype=np.float32)
    graph = captured(lambda a: np.exp(np.linalg.inv(a @ a)), x)
    able = ONE_GPU.measured({"cuda:0": {"functions": frozenset({"linalg.inv"})}})
    fixed = dict.fromkeys(graph.placeholders, "cuda:0")
    assert "cuda:0" in devices_of(place(graph, able, fixed)) and "cpu" in devices_of(place(graph, ONE_GPU, fixed))
    assert "cpu" not in devices_of(place(graph, able, fixed))


def test_results_of_one_call_stay_together() -> None:
    x = np.eye(64)
    graph = captured(lambda a: np.linalg.eigh(a), x)
    calls = [node for node in graph.nodes if node.is_op("external_call") and node.attrs["call"].function == "linalg.eigh"]
    assert len(calls) == 2
    assert [node for members in grouped(graph, {}) if calls[0] in members for node in members] == calls


def test_random_numbers_are_inputs_that_lie_on_the_host() -> None:
    def noisy(x: np.ndarray) -> Any:
        return x @ np.random.standard_normal(x.shape)

    graph = captured(noisy, np.zeros((1024, 1024)))
    assert len(graph.placeholders) == 2
    drawn = next(node for node in graph.placeholders if not node.name.startswith("x"))
    placement = place(graph, ONE_GPU, outputs=["cpu"])
    assert placement.homes[drawn] == "cpu"


@pytest.mark.parametrize("backend", [reference, numpy_backend.compile_graph], ids=["reference", "numpy"])
def test_a_placed_training_step_gives_what_one_device_gives(backend: Callable[[Graph], Executable]) -> None:
    params, x, y = step_arguments(32, 20, 16)
    graph = captured(step, params, x, y)
    fast = ONE_GPU.measured({"cpu": {"bandwidth": 1e8, "launch_seconds": 1e-5}, "cuda:0": {"launch_seconds": 1e-6}})
    products = [node for node in graph.nodes if node.is_op("matmul")]
    placement = place(graph, fast, dict.fromkeys(products[::2], "cuda:0") | dict.fromkeys(products[1::2], "cpu"))
    assert len(placement.segments()) > 2
    fleet = Fleet({"cpu": backend, "cuda:0": backend})
    inputs = [fleet.put(array, "cpu") for array in inputs_of(graph, [*params, x, y])]
    results = compile_placed(placement, fleet.backends, fleet.move)(*inputs)
    for got, expected in zip(results, reference(graph)(*inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert len(fleet.moves) == len({(c.value, c.destination) for c in placement.copies})


def test_parts_on_the_cpu_run_as_machine_code() -> None:
    params, x, y = step_arguments(32, 20, 16)
    graph = captured(step, params, x, y)
    products = [node for node in graph.nodes if node.is_op("matmul")]
    placement = place(graph, ONE_GPU, dict.fromkeys(products[::2], "cuda:0"))
    parts = []

    def native(part: Graph) -> Executable:
        parts.append(part)
        return replace(c_backend.compile_graph(part), call=never)

    def never(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        raise AssertionError("it was interpreted")

    program = compile_placed(placement, {"cpu": native, "cuda:0": native}, lambda array, source, to: array.copy())
    inputs = inputs_of(graph, [*params, x, y])
    for got, expected in zip(program(*inputs), reference(graph)(*inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert len(parts) == len(placement.segments()) > 2
    assert not any(np.may_share_memory(r, a) for r in program(*inputs) for a in inputs)


def test_calls_that_machine_code_cannot_serve_are_interpreted() -> None:
    graph = captured(lambda a: np.linalg.inv(a) + 1, np.eye(3))
    call_graph = native_call(graph, c_backend.compile_graph(graph))
    matrix_in_rows = np.array([[2.0, 1, 0], [0, 1, 3], [1, 0, 1]])
    for given in (matrix_in_rows, np.asfortranarray(matrix_in_rows)):
        np.testing.assert_allclose(call_graph(given)[0], np.linalg.inv(given) + 1)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        call_graph(np.zeros((3, 3)))


def inputs_of(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Arguments in the order of a graph's inputs, which capture sees in the order of their use."""
    by_shape = {array.shape: array for array in arrays}
    return [by_shape[tuple(map(int, node.shape))] for node in graph.placeholders]


# -- constants, scalars, symbols --------------------------------------------------------------------------------------------------
def test_constants_and_host_scalars_are_never_copied() -> None:
    graph = Graph()
    x = matrix(graph, "x", 64, "cuda:0")
    rate = graph.placeholder("rate", Meta(dtypes.float32, ()))
    weights = graph.constant(np.full((64, 64), 2.0, np.float32))
    ones = call(graph, "full", shape=(64, 64), value=1.0, dtype=dtypes.float32)
    on_gpu = call(graph, "add", call(graph, "multiply", x, rate), call(graph, "multiply", weights, ones))
    on_cpu = call(graph, "multiply", call(graph, "add", weights, ones), rate)
    graph.output([on_gpu, on_cpu])
    placement = place(graph, ONE_GPU, {on_cpu: "cpu"})
    assert placement.device[on_gpu] == "cuda:0" and not placement.copies
    assert placement.everywhere == {rate, weights, ones}
    part = next(placement.segment_graph(s) for s in placement.segments() if s.device == "cuda:0")
    assert {node.name: node.meta.device for node in part.placeholders} == {"x": "cuda:0", "rate": "cpu"}
    fleet = Fleet({"cpu": reference, "cuda:0": reference})
    value = fleet.put(np.ones((64, 64), np.float32), "cuda:0")
    got = compile_placed(placement, fleet.backends, fleet.move)(value, np.array(3.0, np.float32))
    assert [float(r[0, 0]) for r in got] == [5.0, 9.0] and not fleet.moves


def test_what_is_given_back_unchanged_is_an_array_of_its_own() -> None:
    graph = Graph()
    x, y = matrix(graph, "x", 4), matrix(graph, "y", 4, "cuda:0")
    total = call(graph, "add", x, x)
    held = graph.constant(np.eye(4, dtype=np.float32))
    graph.output([x, x, y, y, total, total, held, total])
    placement = place(graph, ONE_GPU, {total: "cpu"}, outputs=["cpu", "cuda:0", "cuda:0", "cpu", None, "cuda:0", None, "cuda:0"])
    fleet = Fleet({"cpu": reference, "cuda:0": reference})
    a, b = fleet.put(np.ones((4, 4), np.float32), "cpu"), fleet.put(np.full((4, 4), 7.0, np.float32), "cuda:0")
    results = compile_placed(placement, fleet.backends, fleet.move)(a, b)
    assert [fleet.where(r) for r in results] == ["cpu", "cuda:0", "cuda:0", "cpu", "cpu", "cuda:0", "cpu", "cuda:0"]
    assert [float(r[0, 0]) for r in results] == [1, 1, 7, 7, 2, 2, 1, 2]
    assert len({id(r) for r in (*results, a, b)}) == 10
    simulate(placement)


def test_a_graph_that_computes_nothing_is_placed() -> None:
    graph = Graph()
    x = matrix(graph, "x", 4, "cuda:0")
    graph.output([x])
    placement = place(graph, ONE_GPU)
    fleet = Fleet({"cuda:0": reference})
    a = fleet.put(np.ones((4, 4), np.float32), "cuda:0")
    (result,) = compile_placed(placement, fleet.backends, fleet.move)(a)
    assert np.array_equal(result, a) and result is not a
    assert placement.seconds == 0 and [len(s.nodes) for s in placement.segments()] == [0]


def test_sizes_that_no_input_of_a_segment_says_are_given_to_it() -> None:
    env = ShapeEnv()
    n = env.symbol(6)
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (n,)))
    twice = call(graph, "concatenate", x, x, axis=0)
    half = call(graph, "slice", call(graph, "exp", twice), starts=(0,), steps=(1,), shape=(n,))
    graph.output([half])
    known = len(env.relations)
    placement = place(graph, ONE_GPU, {twice: "cpu", half: "cuda:0", half.args[0]: "cuda:0"}, outputs=["cpu"])
    assert [s.symbols for s in placement.segments()] == [(), ("s0",)]
    fleet = Fleet({"cpu": numpy_backend.compile_graph, "cuda:0": reference})
    program = compile_placed(placement, fleet.backends, fleet.move)
    for size in (6, 9):  # one program for all sizes
        a = fleet.put(np.arange(float(size)), "cpu")
        np.testing.assert_array_equal(program(a)[0], np.exp(a))
    assert len(env.relations) == known
    simulate(placement)


def test_moved_arrays_are_expected_in_c_order() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (3, 4), strides=(1, 3)))
    result = call(graph, "exp", x)
    graph.output([result, call(graph, "sin", x)])
    placement = place(graph, ONE_GPU, {result: "cuda:0", graph.outputs[1]: "cpu"})
    metas = {s.device: placement.segment_graph(s).placeholders[0].meta for s in placement.segments()}
    assert metas["cpu"].strides == (1, 3) and metas["cuda:0"].strides is None
    assert (metas["cpu"].device, metas["cuda:0"].device) == ("cpu", "cuda:0")
    assert [placement.segment_graph(s).library for s in placement.segments()] == ["numpy", "cupy"]


def test_outputs_go_where_the_graph_needs_them() -> None:
    """What is written into an input is where that lies; checks and scalars of NumPy's are on the host."""
    graph = Graph()
    x = matrix(graph, "x", LARGE, "cuda:0")
    graph.output(
        [call(graph, "exp", x), call(graph, "sum", x, axis=(0, 1), keepdims=False),
         call(graph, "any", call(graph, "isnan", x), axis=(0, 1), keepdims=False)],
        into=(0, None, None), n_checks=1, scalars=(False, True, False),
    )  # fmt: skip
    placement = place(graph, ONE_GPU, outputs=["cpu", "cuda:0", "cuda:0"])
    assert placement.delivered == ("cuda:0", "cpu", "cpu")
    assert devices_of(placement) == {"cuda:0"}
    fleet = Fleet({"cuda:0": reference})
    results = compile_placed(placement, fleet.backends, fleet.move)(fleet.put(np.zeros((LARGE, LARGE), np.float32), "cuda:0"))
    assert type(results[1]) is np.float32 and not results[2]


# -- groups -----------------------------------------------------------------------------------------------------------------------
def test_chains_that_fuse_are_one_group() -> None:
    graph = Graph()
    x = matrix(graph, "x", 64)
    shifted = call(graph, "subtract", x, call(graph, "max", x, axis=(1,), keepdims=True))
    powers = call(graph, "exp", shifted)
    result = call(graph, "divide", powers, call(graph, "sum", powers, axis=(1,), keepdims=True))
    graph.output([result])
    names = [[node.name for node in members] for members in grouped(graph, {})]
    assert names == [["max"], ["subtract", "exp"], ["sum"], ["divide"]]


def test_a_group_ends_where_a_cut_would_save_much() -> None:
    """A part of a large array, and bytes of which floats are made, are what a link should carry."""
    graph = Graph()
    x, y = matrix(graph, "x", LARGE), matrix(graph, "y", LARGE)
    total = call(graph, "add", x, y)
    graph.output([call(graph, "exp", total), call(graph, "exp", call(graph, "tanh", x))])
    names = [[node.name for node in members] for members in grouped(graph, {})]
    assert names == [["add"], ["exp"], ["tanh", "exp_1"]]


def test_what_is_fixed_joins_only_what_is_fixed_there() -> None:
    graph = Graph()
    x = matrix(graph, "x", SMALL)
    a = call(graph, "exp", x)
    b = call(graph, "tanh", a)
    c = call(graph, "sin", b)
    graph.output([c])
    assert grouped(graph, {}) == [[a, b, c]]
    assert grouped(graph, {b: "cuda:0"}) == [[a], [b], [c]]
    assert grouped(graph, {b: "cuda:0", c: "cuda:0"}) == [[a], [b, c]]


# -- estimates --------------------------------------------------------------------------------------------------------------------
def estimate(name: str, on: Device, *metas: Meta, **attrs: Any) -> float:
    graph = Graph()
    node = call(graph, name, *(graph.placeholder("x", meta) for meta in metas), **attrs)
    graph.output([node])
    return seconds_on([node], on)


def test_estimates_are_of_bytes_and_of_arithmetic() -> None:
    million = Meta(dtypes.float32, (1_000_000,))
    plain = replace(device("cuda:0"), launch_seconds=1e-6, bandwidth=1e9)
    assert estimate("negative", plain, million) == pytest.approx(1e-6 + 8e6 / 1e9)  # read and written
    assert estimate("add", plain, million, million) == pytest.approx(1e-6 + 12e6 / 1e9)
    assert estimate("tanh", plain, million) == pytest.approx(1e-6 + 14e6 / 1e9)  # 14 additions each
    assert estimate("sum", plain, million, axis=(0,), keepdims=False) == pytest.approx(1e-6 + 4_000_004 / 1e9)
    square = Meta(dtypes.float32, (1000, 1000))
    assert estimate("matmul", plain, square, square) == pytest.approx(1e-6 + 2e9 / 1e9)
    complex_square = Meta(dtypes.complex64, (1000, 1000))
    assert estimate("matmul", plain, complex_square, complex_square) == pytest.approx(1e-6 + 8e9 / 1e9)
    assert estimate("transpose", plain, square, axes=(1, 0)) == 0.0  # a view
    assert estimate("slice", plain, million, starts=(0,), steps=(1,), shape=(10,)) == 0.0


def test_a_group_reads_and_writes_only_at_its_borders() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float32, (1_000_000,)))
    chain = [call(graph, "negative", x)]
    chain.append(call(graph, "add", chain[0], x))
    graph.output([chain[1]])
    assert seconds_on(chain, device("cpu")) == pytest.approx(8e6 / 1e9)


def test_what_a_device_cannot_hold_it_cannot_run() -> None:
    small = replace(device("cuda:0"), memory=11e6)
    million = Meta(dtypes.float32, (1_000_000,))
    assert math.isfinite(estimate("negative", small, million)) and math.isinf(estimate("add", small, million, million))


def test_gpus_have_products_and_no_functions_of_numpys() -> None:
    for gpu in (H200, A100):
        assert gpu.runs("matmul") and not gpu.runs("external_call") and not gpu.calls("linalg.solve")
    assert CPU.runs("matmul") and CPU.calls("linalg.solve")


def test_dtypes_have_classes_of_rates() -> None:
    assert [rate_class(d) for d in (dtypes.float16, dtypes.complex64, dtypes.complex128, dtypes.bool_, dtypes.uint8)] == [
        "float16", "float32", "float64", "integer", "integer"]  # fmt: skip


def test_measured_costs_take_the_place_of_estimates() -> None:
    graph = Graph()
    x = matrix(graph, "x", SMALL)
    graph.output([call(graph, "matmul", x, x)])
    times = {"cpu": 1.0, "cuda:0": 1e-6}
    placement = place(graph, ONE_GPU, seconds=lambda nodes, on: times[on.name])
    assert devices_of(placement) == {"cuda:0"}
    assert placement.busy == {"cpu": 0.0, "cuda:0": 1e-6}


# -- schedules, and the simulator that checks them --------------------------------------------------------------------------------
def two_products() -> tuple[Graph, Placement]:
    graph = Graph()
    x, y = matrix(graph, "x", LARGE), matrix(graph, "y", LARGE)
    a = call(graph, "matmul", x, x)
    b = call(graph, "matmul", y, y)
    c = call(graph, "matmul", a, b)
    graph.output([c])
    return graph, place(graph, TWO_GPUS, {a: "cuda:0", b: "cuda:1", c: "cpu"})


def test_devices_and_links_work_at_the_same_time() -> None:
    _, placement = two_products()
    timeline = simulate(placement)
    first, second = (e for e in timeline.events if isinstance(e.step, RunStep) and e.on != "cpu")
    assert first.start < second.end and second.start < first.end
    assert max(placement.busy.values()) <= timeline.makespan < placement.seconds
    for event in timeline.events:
        if event.on == "cpu":
            assert event.start == max(e.end for e in timeline.events if isinstance(e.step, MoveStep))


def test_arrays_are_let_go_of_when_nothing_needs_them() -> None:
    _, placement = two_products()
    plan = schedule(placement)
    assert sorted(k for s in plan.steps for k in s.dead) == sorted(set(range(plan.size)) - set(plan.outputs))
    assert simulate(placement).peak["cuda:0"] == 2 * 4 * LARGE**2  # the operand and the result


def test_a_running_program_holds_no_array_that_it_needs_no_more() -> None:
    graph = Graph()
    x = matrix(graph, "x", SMALL)
    nodes = [x]
    for _ in range(4):
        nodes.append(call(graph, "exp", nodes[-1]))
    graph.output(nodes[-1:])
    placement = place(graph, ONE_GPU, dict(zip(nodes[1:], ("cuda:0", "cpu") * 2)))
    made: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []

    def noted(array: np.ndarray) -> np.ndarray:
        made.append(weakref.ref(array))
        return array

    def backend(part: Graph) -> Executable:
        def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            alive.append(sum(ref() is not None for ref in made))
            return tuple(map(noted, reference(part)(*arrays)))

        return Executable(run)

    program = compile_placed(placement, {"cpu": backend, "cuda:0": backend}, lambda a, source, to: noted(a.copy()))
    (result,) = program(np.zeros((SMALL, SMALL), np.float32))
    assert alive == [1, 1, 1, 1]  # the operand alone
    assert [ref() for ref in made if ref() is not None] == [result]


def test_the_simulator_catches_steps_that_could_not_run() -> None:
    _, placement = two_products()
    plan = schedule(placement)
    with pytest.raises(CannotRun, match="was never made"):
        simulate(placement, replace(plan, steps=plan.steps[::-1]))
    with pytest.raises(CannotRun, match="was let go of"):
        simulate(placement, replace(plan, steps=(replace(plan.steps[0], dead=(0, plan.steps[0].result)), *plan.steps[1:])))
    inputs = {s.operand for s in plan.steps if isinstance(s, MoveStep)}
    direct = [replace(s, operands=(min(inputs),)) if isinstance(s, RunStep) else replace(s, dead=()) for s in plan.steps]
    with pytest.raises(CannotRun, match="lies on cpu"):
        simulate(placement, replace(plan, steps=tuple(direct)))


def test_the_simulator_catches_too_little_memory() -> None:
    graph = Graph()
    x = matrix(graph, "x", LARGE, "cuda:0")
    kept = [call(graph, "matmul", x, x) for _ in range(6)]
    graph.output(kept)
    tight = ONE_GPU.measured({"cuda:0": {"memory": 5 * 4 * LARGE**2}})
    with pytest.raises(CannotRun, match="cuda:0: 469762048 bytes at a time"):
        simulate(place(graph, tight))


# -- texts and refusals -----------------------------------------------------------------------------------------------------------
def test_a_placement_is_described() -> None:
    graph = Graph()
    x = matrix(graph, "x", LARGE)
    graph.output([call(graph, "matmul", x, x)])
    text = place(graph, ONE_GPU, outputs=["cpu"]).describe()
    assert text.splitlines() == [
        "placed on cpu, cuda:0 by costs on paper: computing 2.06 ms, 2 copies 2.7 ms, together 4.76 ms, overlapped 4.76 ms; "
        "no placement is cheaper by this model",
        "",
        "group  lines  device  on cpu  on cuda:0  nodes",
        "0             cuda:0  443 ms  2.06 ms    matmul",
        "",
        "copied  from    to      bytes     takes",
        "x       cpu     cuda:0  67108864  1.35 ms",
        "matmul  cuda:0  cpu     67108864  1.35 ms",
        "",
        "segment  device  nodes  takes  gives",
        "0        cuda:0  1      x      matmul",
    ]


def test_lines_of_the_program_are_named() -> None:
    placement = place(captured(step, *step_arguments(4, 8, 16)), ONE_GPU)
    assert "test_placement.py:" in placement.describe()
    assert structure(placement) == structure(place(placement.graph, ONE_GPU))


def test_a_program_shows_its_placement_and_its_parts() -> None:
    _, placement = two_products()
    names = ("cpu", "cuda:0", "cuda:1")
    program = compile_placed(placement, dict.fromkeys(names, numpy_backend.compile_graph), lambda a, source, to: a.copy())
    assert program.artifacts["placement"] == placement.describe()
    assert [line for line in program.artifacts["plan"].splitlines() if line.startswith("segment")] == [
        "segment 0 on cuda:0:", "segment 1 on cuda:1:", "segment 2 on cpu:"]  # fmt: skip


def test_what_cannot_be_placed_is_refused() -> None:
    graph = captured(lambda a: np.linalg.inv(a), np.eye(4))
    solver = next(node for node in graph.nodes if node.is_op("external_call"))
    with pytest.raises(PlacementError, match=r"^place: cuda:0, to which it is fixed, cannot run external_call"):
        place(graph, ONE_GPU, {solver: "cuda:0"})
    with pytest.raises(PlacementError, match=r"^place: no device of cuda:0 can run external_call"):
        place(graph, Machine((H200,)), dict.fromkeys(graph.placeholders, "cuda:0"))
    with pytest.raises(PlacementError, match=r"input \w+ lies on 'cpu'; the machine has cuda:0: say by `fixed` where it lies"):
        place(graph, Machine((H200,)))
    with pytest.raises(PlacementError, match="there is no device 'cuda:7'; it has cpu, cuda:0"):
        place(graph, ONE_GPU, {solver: "cuda:7"})
    with pytest.raises(PlacementError, match="says 7 devices for the"):
        place(graph, ONE_GPU, outputs=["cpu"] * 7)
    with pytest.raises(PlacementError, match=f"{solver.name} is fixed to cpu, but is not a node of graph"):
        place(graph.copy(), ONE_GPU, {solver: "cpu"})


def test_a_device_without_a_backend_is_refused() -> None:
    _, placement = two_products()
    with pytest.raises(BackendError, match=r"^placed: there is no backend for 'cuda:0'; there are some for: cpu$"):
        compile_placed(placement, {"cpu": reference}, lambda a, source, to: a)


def test_wrong_machines_are_refused() -> None:
    with pytest.raises(PlacementError, match="there is no link between 'cpu' and 'cuda:0'; add one to `links`"):
        Machine((CPU, H200))
    with pytest.raises(PlacementError, match="each with a name of its own"):
        Machine((CPU, CPU))
    with pytest.raises(PlacementError, match="is not between two of its devices"):
        Machine((CPU,), {("cpu", "cuda:0"): PCIE_GEN4})
    with pytest.raises(PlacementError, match=r"there is no link from 'cpu' to 'cpu'"):
        ONE_GPU.link("cpu", "cpu")
    with pytest.raises(PlacementError, match="its kind is 'tpu'; it must be one of cpu, cuda"):
        replace(CPU, kind="tpu")
    with pytest.raises(PlacementError, match="bandwidth must be a number above 0, got 0"):
        replace(CPU, bandwidth=0)
    with pytest.raises(PlacementError, match="additions of integer must be a number above 0"):
        replace(CPU, additions={"float16": 1.0, "float32": 1.0, "float64": 1.0})
    with pytest.raises(PlacementError, match="launch_seconds must be a number of at least 0, got -1"):
        replace(CPU, launch_seconds=-1)
    with pytest.raises(PlacementError, match="bandwidth must be above 0 and latency at least 0"):
        Link(bandwidth=1.0, latency=math.nan)


def test_measurements_replace_numbers_on_paper() -> None:
    real = TWO_GPUS.measured({"cuda:1": {"bandwidth": 4e12}}, {("cuda:1", "cpu"): {"bandwidth": 4e10}})
    assert real.device("cuda:1").bandwidth == 4e12 and real.device("cuda:0") == TWO_GPUS.device("cuda:0")
    assert real.link("cuda:1", "cpu").bandwidth == 4e10 and real.link("cpu", "cuda:1") is PCIE_GEN5  # one direction was measured
    assert real.link("cuda:0", "cuda:1") is NVLINK4
    with pytest.raises(PlacementError, match="a Device has no speed; it has additions, bandwidth"):
        ONE_GPU.measured({"cuda:0": {"speed": 1.0}})


def test_a_graph_takes_no_constant_of_a_key_that_it_has() -> None:
    one, other = Graph("one"), Graph("other")
    one.constant(np.zeros(2))
    held = other.constant(np.ones(2))
    with pytest.raises(GraphError, match="graph 'one': it has another constant 'constant_0' than graph 'other'"):
        one.adopt(held, [])
