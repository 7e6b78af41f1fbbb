"""What is known of the values of integer nodes: never narrower than what they are."""

from __future__ import annotations

import numpy as np
import pytest

from dynagraph.ir import dtypes, optable  # noqa: F401  (optable: fills OPS)
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.ranges import known_range

BYTES = np.array([0, 3, 127, 128, 255], dtype=np.uint8)


def cast(graph: Graph, x: Node, dtype: dtypes.DType) -> Node:
    return graph.call(OPS["cast"], x, dtype=dtype)


def number(graph: Graph, value: int, dtype: dtypes.DType = dtypes.int64) -> Node:
    return graph.call(OPS["constant"], value=value, dtype=dtype)


CASES = {
    "as it is": (lambda g, x: x, (0, 255)),
    "wider": (lambda g, x: cast(g, x, dtypes.int64), (0, 255)),
    "narrower": (lambda g, x: cast(g, x, dtypes.int8), (-128, 127)),
    "clipped": (lambda g, x: g.call(OPS["minimum"], cast(g, x, dtypes.int64), number(g, 7)), (0, 7)),
    "clipped from below": (lambda g, x: g.call(OPS["maximum"], cast(g, x, dtypes.int64), number(g, 7)), (7, 255)),
    "wrapped": (lambda g, x: g.call(OPS["add"], x, x), (0, 255)),
    "added": (lambda g, x: g.call(OPS["add"], cast(g, x, dtypes.int64), number(g, -5)), (-5, 250)),
    "multiplied": (lambda g, x: g.call(OPS["multiply"], cast(g, x, dtypes.int64), number(g, -2)), (-510, 0)),
    "a remainder": (lambda g, x: g.call(OPS["remainder"], cast(g, x, dtypes.int64), number(g, 10)), (0, 9)),
    "masked": (lambda g, x: g.call(OPS["bitwise_and"], cast(g, x, dtypes.int64), number(g, 6)), (0, 6)),
    "negative": (lambda g, x: g.call(OPS["negative"], cast(g, x, dtypes.int64)), (-(2**63), 2**63 - 1)),
    "numbers in order": (lambda g, x: g.call(OPS["iota"], shape=(5,), start=7, step=-2, dtype=dtypes.int64), (-1, 7)),
    "moved": (lambda g, x: cast(g, g.call(OPS["slice"], x, starts=(0,), steps=(1,), shape=(3,)), dtypes.int64), (0, 255)),
    "a float": (lambda g, x: cast(g, cast(g, x, dtypes.float64), dtypes.int64), (-(2**63), 2**63 - 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_range(name: str) -> None:
    make, expected = CASES[name]
    graph = Graph()
    node = make(graph, graph.placeholder("x", Meta(dtypes.uint8, (5,))))
    assert known_range(node) == expected
    graph.output([node])
    (values,) = interpret(graph, [BYTES])
    assert expected[0] <= values.min() and values.max() <= expected[1]
