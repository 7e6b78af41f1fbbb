"""bfloat16 in kernels: on the emulator, in every order of threads, and compiled for real devices by NVRTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dynagraph.backends.cuda.printer import Variant
from dynagraph.errors import DTypeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType, bfloat16, float32
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.ops import OPS, Elementwise, Op
from tests.cuda import emulator
from tests.cuda.device import emulated
from tests.cuda.test_resources import ARCHITECTURES, resources, spilled
from tests.ops.cases import ROWS
from tests.test_bfloat16 import EVERY, OTHER, as_bits

BF16 = np.dtype(ml_dtypes.bfloat16)
VARIANT = Variant()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 300)).astype(BF16)
EXACT = [
    op for op in ROWS
    if op.exact and op.arity in (1, 2) and isinstance(op.lowering, Elementwise) and hasattr(np, op.name)
    and op.name not in ("sign", "frexp", "cast", "spacing", "nextafter", "complex", "ldexp")
]  # fmt: skip

pytestmark = [pytest.mark.sampled(8), pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def graph_of(outputs: Callable[..., list[Node]], *arrays: np.ndarray) -> Graph:
    graph = Graph()
    inputs = [graph.placeholder("x", Meta(bfloat16, a.shape)) for a in arrays]
    graph.output(outputs(graph, *inputs))
    return graph


def takes(op: Op) -> bool:
    """Whether an op of as many operands takes them of bfloat16."""
    try:
        op.dtype((Meta(bfloat16, (2,)),) * (op.arity or 0), dict(op.attrs))
    except DTypeError:
        return False
    return True


def test_every_number_of_exact_functions() -> None:
    names = [op.name for op in EXACT if takes(op)]
    assert len(names) > 25
    graph = graph_of(lambda g, x, y: [g.call(OPS[n], *(x, y)[: OPS[n].arity]) for n in names], EVERY, OTHER)
    for name, got in zip(names, emulated(graph)(EVERY, OTHER)):
        want = getattr(np, name)(*(EVERY, OTHER)[: OPS[name].arity])
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(as_bits(got), as_bits(want), err_msg=name)


@pytest.mark.parametrize("target", [d for d in dtypes.KNOWN if not d.is_complex], ids=str)
def test_casts_of_every_number(target: DType) -> None:
    values = EVERY.astype(np.float64)
    fits = np.isfinite(values) & (values > -1) & (values < 128) if target.is_integer else np.ones(EVERY.size, bool)
    x = EVERY[fits]
    graph = graph_of(lambda g, x: [g.call(OPS["cast"], g.call(OPS["negative"], g.call(OPS["negative"], x)), dtype=target)], x)
    (got,) = emulated(graph)(x)
    np.testing.assert_array_equal(as_bits(got), as_bits(x.astype(target.numpy)))


@pytest.mark.parametrize("source", [dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint64], ids=str)
def test_casts_to_bfloat16(source: DType) -> None:
    bits = RNG.integers(0, 2**32, 30000, np.uint32)
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000  # halfway
    single = bits.view(np.float32)
    x = bits.astype(source.numpy) if source.is_integer else single.astype(source.numpy)
    graph = Graph()
    graph.output([graph.call(OPS["cast"], graph.placeholder("x", Meta(source, x.shape)), dtype=bfloat16)])
    (got,) = emulated(graph)(x)
    np.testing.assert_array_equal(as_bits(got), as_bits(x.astype(BF16)))


def program(g: Graph, x: Node) -> list[Node]:
    """Elementwise work, rows, columns, a scan and a product."""
    e = g.call(OPS["exp"], g.call(OPS["subtract"], x, g.call(OPS["max"], x, axis=(1,), keepdims=True)))
    softmax = g.call(OPS["divide"], e, g.call(OPS["sum"], e, axis=(1,), keepdims=True))
    columns = g.call(OPS["sum"], x, axis=(0,), keepdims=False)
    mean, running = g.call(OPS["mean"], x, axis=(0, 1)), g.call(OPS["cumsum"], x, axis=1)
    return [softmax, columns, mean, running, g.call(OPS["argmax"], x, axis=(1,))]


def expected(x: np.ndarray) -> list[Any]:
    wide = x.astype(np.float32)
    e = np.exp(wide - wide.max(1, keepdims=True))
    return [e / e.sum(1, keepdims=True), wide.sum(0), wide.mean(), np.cumsum(wide, 1), x.argmax(1)]


def assert_near(got: np.ndarray, want: Any) -> None:
    assert got.dtype == (BF16 if np.asarray(want).dtype.kind == "f" else np.int64)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=0.02, atol=0.02 * np.abs(want).max())


def test_sums_in_every_order_of_threads() -> None:
    run = emulated(graph_of(program, X))
    for order in emulator.ORDERS:
        with emulator.order(order):
            for got, want in zip(run(X), expected(X)):
                assert_near(got, want)


def test_kernels_have_no_races() -> None:
    for got, want in zip(emulated(graph_of(program, X), races=True)(X), expected(X)):
        assert_near(got, want)


def test_sums_are_taken_in_float32() -> None:
    """In bfloat16 they would stop at 256."""
    x = np.ones((3, 70000), BF16)
    graph = graph_of(lambda g, x: [g.call(OPS["sum"], x, axis=(1,)), g.call(OPS["sum"], x, axis=(0, 1))], x)
    rows, whole = emulated(graph)(x)
    assert rows.astype(np.float32).tolist() == [70144.0] * 3 and float(whole) == 210000 // 1024 * 1024


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_takes_them_and_nothing_is_spilled(architecture: int) -> None:
    rows = [op for op in ROWS if op.arity == 1 and op.name != "cast" and isinstance(op.lowering, Elementwise) and takes(op)]
    few = len(rows) // 3 + 1  # of a kernel: results are written at its end, and wait in registers

    def casts(g: Graph, x: Node) -> list[Node]:
        back = g.call(OPS["cast"], g.call(OPS["cast"], x, dtype=float32), dtype=bfloat16)
        return [*(g.call(OPS["cast"], x, dtype=d) for d in dtypes.ALL), back]

    functions: list[Callable[[Graph, Node], list[Node]]] = [program, casts]
    functions += [lambda g, x, k=k: [g.call(op, x) for op in rows[k : k + few]] for k in range(0, len(rows), few)]
    for function in functions:
        assert spilled(resources(graph_of(function, X), architecture, VARIANT)) == []
