"""What kernels take of real processors: they are compiled by NVRTC, and nothing is spilled from registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.cuda.backend import lower_graph
from dynagraph.backends.cuda.nvrtc import Resources, compile_cuda
from dynagraph.backends.cuda.printer import Variant, print_program
from dynagraph.backends.cuda.program import complete_source
from dynagraph.ir.graph import Graph
from dynagraph.ir.ops import Op
from dynagraph.ir.passes.pipeline import run as run_passes
from tests.backends.test_every_op import chosen, graph_of
from tests.ops.cases import ROWS

pytestmark = pytest.mark.sampled(12)

ARCHITECTURES = (80, 90)  # A100, H100 and H200
FEW = 4  # cases of an op


def resources(graph: Graph, architecture: int, variant: Variant) -> dict[str, Resources]:
    source = print_program(lower_graph(run_passes(graph)), variant)
    return dict(compile_cuda(complete_source(source), architecture).resources)


def spilled(found: dict[str, Resources]) -> list[str]:
    return [name for name, r in found.items() if r.spill_stores or r.spill_loads]


@pytest.mark.sampled(48)
@pytest.mark.parametrize("op", [op for op in ROWS if op.name != "external_call"], ids=lambda op: op.name)
def test_kernels_of_every_op_compile_and_spill_nothing(op: Op) -> None:
    cases = [case for case in chosen(op) if all(x.size for x in case.operands)]
    cases = cases[:: len(cases) // FEW + 1]
    graph, _ = graph_of(cases)
    for architecture in ARCHITECTURES:
        assert spilled(resources(graph, architecture, Variant())) == []


def chain(x: Any, y: Any) -> Any:
    return np.tanh(np.exp(-x * x) * np.sin(y) + np.sqrt(np.abs(x)))


def black_scholes(s: Any, k: Any, t: Any, r: float = 0.05, v: float = 0.2) -> Any:
    d1 = (np.log(s / k) + (r + 0.5 * v * v) * t) / (v * np.sqrt(t))
    d2 = d1 - v * np.sqrt(t)
    n1, n2 = 0.5 * (1 + np.tanh(0.8 * d1)), 0.5 * (1 + np.tanh(0.8 * d2))
    return s * n1 - k * np.exp(-r * t) * n2


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layernorm(x: Any, g: Any, b: Any) -> Any:
    m = x.mean(axis=1, keepdims=True)
    v = ((x - m) ** 2).mean(axis=1, keepdims=True)
    return (x - m) / np.sqrt(v + 1e-5) * g + b


def total(x: Any) -> Any:
    return x.sum()


def columns(x: Any) -> Any:
    return x.sum(axis=0), x.max(axis=0)


def transposed(x: Any, y: Any) -> Any:
    return x.T + y


def running(x: Any) -> Any:
    return np.cumsum(x, axis=1)


def normalized(x: Any) -> Any:
    return (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def rows(*shape: int) -> np.ndarray:
    """Ones that take no memory: they live as long as the worker does."""
    return np.broadcast_to(np.float32(1), shape)


STANDARD: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], int]] = {  # the kernels' registers at most
    "chain": (chain, (rows(1000, 1000), rows(1000, 1000)), 40),
    "black_scholes": (black_scholes, (rows(10**6), rows(10**6), rows(10**6)), 64),
    "softmax": (softmax, (rows(512, 4096),), 64),
    "softmax of long rows": (softmax, (rows(64, 50000),), 64),
    "softmax of short rows": (softmax, (rows(4096, 10),), 64),
    "layernorm": (layernorm, (rows(512, 4096), rows(4096), rows(4096)), 96),
    "sum": (total, (rows(10**7),), 64),
    "columns": (columns, (rows(10000, 512),), 64),
    "transposed": (transposed, (rows(512, 512), rows(512, 512)), 64),
    "cumsum": (running, (rows(512, 4096),), 64),
    "gelu": (gelu, (rows(1000, 1000),), 48),
}


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_standard_kernels_are_small(name: str, architecture: int) -> None:
    function, arrays, most = STANDARD[name]
    for dtype in (np.float32, np.float64, np.float16):
        compiled = dg.compile(function)
        compiled(*(a.astype(dtype) for a in arrays))
        for variant in (Variant(), Variant(wide=True), Variant(packs=False)):
            found = resources(compiled.last_graph, architecture, variant)
            widest = 2 if dtype is np.float64 or variant.wide else 1
            assert max(r.registers for r in found.values()) <= most * widest, found
            if variant.wide:  # ptxas gives up a few registers for more threads at a time
                assert sum(r.spill_stores for r in found.values()) <= 64, found
            else:
                assert spilled(found) == []


OF_ANY_LENGTH: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "softmax": (softmax, (rows(512, 4096),)),
    "softmax of short rows": (softmax, (rows(4096, 10),)),
    "softmax of long rows": (softmax, (rows(512, 50000),)),
    "layernorm": (layernorm, (rows(512, 1000), rows(1000), rows(1000))),
    "normalized": (normalized, (rows(512, 4096),)),
    "sums": (lambda x: x.sum(axis=1), (rows(512, 4096),)),
    "positions": (lambda x: (x.argmax(axis=1), x.max(axis=1)), (rows(512, 4096),)),
    "position": (lambda x: x.argmax(), (rows(10**6),)),
}


@pytest.mark.parametrize("name", OF_ANY_LENGTH)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_for_rows_of_any_length_are_small(name: str, architecture: int) -> None:
    function, arrays = OF_ANY_LENGTH[name]
    for dtype in (np.float32, np.float64, np.float16):
        compiled = dg.compile(function, dynamic=True)
        compiled(*(a.astype(dtype) for a in arrays))
        for variant in (Variant(), Variant(packs=False)):
            found = resources(compiled.last_graph, architecture, variant)
            assert max(r.registers for r in found.values()) <= 64, found
            assert spilled(found) == []


def test_what_does_not_fit_into_registers_is_read_again() -> None:
    for n, dtype in ((65536, np.float32), (16384, np.float64)):
        compiled = dg.compile(softmax)
        compiled(np.ones((512, n), dtype))
        (found,) = resources(compiled.last_graph, 90, Variant()).values()
        assert found.spill_stores <= 16, found  # of hundreds, for more threads at a time
