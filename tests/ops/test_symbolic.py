"""Rows on symbolic sizes: one lowering serves every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.interpreter import bind_sizes, concrete_attrs, interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.shapes import ShapeEnv, SymInt

from .evaluate import assert_same, run_lowering

F64 = dtypes.float64

# op, shapes of the operands and attributes as functions of two sizes
CASES: dict[str, tuple[str, Callable[[Any, Any], Any], Callable[[Any, Any], dict[str, Any]]]] = {
    "merge": ("reshape", lambda n, m: [(n, m, 3)], lambda n, m: {"shape": (n * m, 3)}),
    "split": ("reshape", lambda n, m: [(n * m,)], lambda n, m: {"shape": (m, n)}),
    "swap": ("reshape", lambda n, m: [(n, m)], lambda n, m: {"shape": (m, n)}),
    "regroup": ("reshape", lambda n, m: [(n, m, 6)], lambda n, m: {"shape": (n, m * 2, 3, 1)}),
    "transpose": ("transpose", lambda n, m: [(n, m, 2)], lambda n, m: {"axes": (1, 2, 0)}),
    "diagonal": ("diagonal", lambda n, m: [(n, m, m)], lambda n, m: {}),
    "broadcast": ("broadcast_to", lambda n, m: [(n, 1)], lambda n, m: {"shape": (2, n, m)}),
    "drop ends": (
        "slice",
        lambda n, m: [(n, m)],
        lambda n, m: {"starts": (1, 0), "steps": (1, 1), "shape": (n - 2, m)},
    ),
    "flip": ("slice", lambda n, m: [(n, m)], lambda n, m: {"starts": (0, m - 1), "steps": (1, -1), "shape": (n, m)}),
    "windows": ("windows", lambda n, m: [(n, m)], lambda n, m: {"sizes": (2, m - 1), "axes": (0, 1)}),
    "update the middle": (
        "update_slice", lambda n, m: [(n, m), (n - 2, m)], lambda n, m: {"starts": (1, 0), "steps": (1, 1)},
    ),
    "update from behind": ("update_slice", lambda n, m: [(n, m), (n, 1)], lambda n, m: {"starts": (n - 1, 1), "steps": (-1, 1)}),
    "concatenate": ("concatenate", lambda n, m: [(n, 3), (m, 3), (2, 3)], lambda n, m: {"axis": 0}),
    "pad": ("pad", lambda n, m: [(n, m)], lambda n, m: {"widths": ((1, 0), (0, 2)), "value": 7.0}),
    "roll": ("roll", lambda n, m: [(n, m)], lambda n, m: {"shift": -4, "axis": 0}),
    "repeat": ("repeat", lambda n, m: [(n, m)], lambda n, m: {"repeats": 3, "axis": 1}),
    "tile": ("tile", lambda n, m: [(n, m)], lambda n, m: {"reps": (2, 3)}),
    "sum": ("sum", lambda n, m: [(n, m, 2)], lambda n, m: {"axis": (0, 2), "keepdims": True}),
    "argmax": ("argmax", lambda n, m: [(n, m)], lambda n, m: {"axis": (1,)}),
    "cumsum": ("cumsum", lambda n, m: [(n, m)], lambda n, m: {"axis": 1}),
    "mean": ("mean", lambda n, m: [(n, m)], lambda n, m: {"axis": (0, 1)}),
    "var": ("var", lambda n, m: [(n, m)], lambda n, m: {"axis": (1,), "ddof": 1}),
    "var with half a degree": ("var", lambda n, m: [(n, m)], lambda n, m: {"axis": (0, 1), "ddof": 1.5}),
    "var without freedom": ("var", lambda n, m: [(n, m)], lambda n, m: {"axis": (0, 1), "ddof": 100}),
    "matmul": ("matmul", lambda n, m: [(2, n, m), (m, n)], lambda n, m: {}),
    "add": ("add", lambda n, m: [(n, 1, m), (3, 1)], lambda n, m: {}),
    "size as a value": ("constant", lambda n, m: [], lambda n, m: {"value": n * m, "dtype": F64}),
    "full": ("full", lambda n, m: [], lambda n, m: {"shape": (n, m), "value": n, "dtype": dtypes.int32}),
    "eye": ("eye", lambda n, m: [], lambda n, m: {"shape": (n, m), "k": 1, "dtype": F64}),
    "arange": ("iota", lambda n, m: [], lambda n, m: {"shape": (n + m,), "dtype": dtypes.int64}),
    "arange of floats": (
        "iota",
        lambda n, m: [],
        lambda n, m: {"shape": (n,), "start": 0.1, "step": 0.3, "dtype": F64},
    ),
    "arange from a size": ("iota", lambda n, m: [], lambda n, m: {"shape": (m,), "start": n, "step": n, "dtype": F64}),
    "linspace": ("linspace", lambda n, m: [], lambda n, m: {"shape": (n,), "start": 0.1, "stop": 2.7, "dtype": F64}),
    "linspace of denormals": (
        "linspace",
        lambda n, m: [],
        lambda n, m: {"shape": (n,), "start": 0.0, "stop": 5e-324, "dtype": F64},
    ),
}


@pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(4, 3), (2, 2), (9, 5)], ids=str)
def test_symbolic_rows_serve_other_sizes(name: str, sizes: tuple[int, int]) -> None:
    op_name, shapes, attrs_of = CASES[name]
    op, env = OPS[op_name], ShapeEnv()
    n, m = env.symbol(4), env.symbol(3)
    operands = [np.random.default_rng(0).uniform(-3, 3, shape) for shape in shapes(*sizes)]
    metas = tuple(Meta(F64, shape) for shape in shapes(n, m))
    with np.errstate(all="ignore"):
        want = np.asarray(op.eager(np, *operands, **op.bind_attrs(attrs_of(*sizes))))
    symbols = dict(zip(("s0", "s1"), sizes))
    exact = op_name not in ("sum", "matmul")  # those have another order
    got = run_lowering(op, operands, {}, {"metas": metas, "attrs": attrs_of(n, m)}, symbols)
    assert_same(got, want, None if exact else 32)


@pytest.mark.parametrize("name", CASES)
def test_rows_decide_nothing_about_sizes_that_another_size_would_break(name: str) -> None:
    op_name, shapes, attrs_of = CASES[name]
    env = ShapeEnv()
    n, m = env.symbol(4), env.symbol(3)
    OPS[op_name].infer(tuple(Meta(F64, s) for s in shapes(n, m)), OPS[op_name].bind_attrs(attrs_of(n, m)))
    for relation in env.relations:
        for values in ({"s0": 2, "s1": 2}, {"s0": 9, "s1": 5}):
            difference = (relation.left - relation.right).evaluate(values)
            assert {"==": difference == 0, "<": difference < 0, "<=": difference <= 0}[relation.op] == relation.holds, (
                str(relation)
            )


def test_the_interpreter_binds_symbols_from_its_inputs() -> None:
    env = ShapeEnv()
    n = env.symbol(4)
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (n, 2)))
    flat = graph.call(OPS["reshape"], x, shape=(n * 2,))
    size = graph.call(OPS["constant"], value=n, dtype=F64)
    graph.output([flat, size])
    flattened, seen = interpret(graph, [np.ones((7, 2))])
    assert flattened.shape == (14,) and seen == 7.0 and seen.ndim == 0
    assert bind_sizes(graph, [np.ones((7, 2))]) == {"s0": 7}
    assert concrete_attrs(flat, {"s0": 7}) == {"shape": (14,)}
    assert isinstance(flat.attrs["shape"][0], SymInt)
