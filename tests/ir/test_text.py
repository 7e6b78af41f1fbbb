"""Printers: what they print is right (the Python runs, the JSON loads), and the layout is as documented."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from dynagraph.ir import dtypes, optable, text
from dynagraph.ir.graph import Graph, Location, Meta
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.rewrite import scalar
from dynagraph.ir.shapes import ShapeEnv
from tests.sampling import examples

from .programs import assert_same_bits, programs, special_values, values

assert optable.__all__


def model() -> Graph:
    graph = Graph("model")
    x = graph.placeholder("x", Meta(dtypes.float32, (2, 3)))
    graph.location = Location("somewhere/model.py", 4)
    one = scalar(graph, 1.0, dtypes.float32)
    total = graph.call(OPS["sum"], graph.call(OPS["add"], x, one), axis=(1,), keepdims=True)
    weights = graph.constant(np.arange(3, dtype=np.float32))
    result = graph.call(OPS["multiply"], total, weights)
    graph.location = None
    graph.output([result])
    return graph


def test_table_shows_a_row_for_every_node() -> None:
    rows = [line.split() for line in text.table(model()).splitlines()]
    assert [r[0] for r in rows] == ["name", "x", "constant", "add", "sum", "constant_1", "multiply", "output"]
    assert rows[3] == ["add", "add", "x,", "constant", "float32[2,", "3]", "model.py:4"]
    assert rows[5][:3] == ["constant_1", "get_attr", "constant_0"]


def test_python_code_reads_like_numpy() -> None:
    assert text.python_code(model()) == """\
import numpy as np
from numpy import inf, nan


def model(x):
    constant = np.float32(1.0)  # model.py:4
    add = np.add(x, constant)  # model.py:4
    sum_ = np.sum(add, axis=(1,), keepdims=True, dtype=np.float32)  # model.py:4
    constant_1 = np.array([0.0, 1.0, 2.0], dtype=np.float32).reshape((3,))
    multiply = np.multiply(sum_, constant_1)  # model.py:4
    return (multiply,)
"""


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(programs())
def test_printed_python_computes_the_graph(program: Graph) -> None:
    inputs = [special_values(p.dtype, p.shape, k) for k, p in enumerate(program.placeholders)]
    with np.errstate(all="ignore"):
        got = text.python_function(program)(*inputs)
    for result, expected in zip(got, values(program), strict=True):
        assert_same_bits(np.asarray(result), expected)


@pytest.mark.parametrize("name", sorted(n for n, row in OPS.items() if row.arity == 1 and not row.attrs))
def test_printed_python_of_every_unary_row(name: str) -> None:
    row = OPS[name]
    special = {"logical_not": dtypes.bool_, "invert": dtypes.int32, "bitwise_count": dtypes.int32}
    special |= dict.fromkeys(("conjugate", "real", "imag"), dtypes.complex128)
    dtype = special.get(name, dtypes.float64)
    graph = Graph()
    graph.output([graph.call(row, graph.placeholder("x", Meta(dtype, (5, 5))))])
    array = np.linspace(*row.domain, 25).reshape(5, 5).astype(dtype.numpy)
    with np.errstate(divide="ignore"):
        assert_same_bits(np.asarray(text.python_function(graph)(array)[0]), interpret(graph, [array])[0])


@pytest.mark.parametrize("name, attrs", [
    ("var", {"axis": (0,), "keepdims": False, "ddof": 1}), ("std", {"axis": (0, 1), "keepdims": True}),
    ("mean", {"axis": (1,), "keepdims": False}), ("cumsum", {"axis": 1}), ("argmax", {"axis": (1,), "keepdims": True}),
    ("pad", {"widths": ((1, 0), (2, 3)), "value": math.nan}), ("roll", {"shift": -1, "axis": 1}),
    ("slice", {"starts": (2, 3), "steps": (-1, -2), "shape": (3, 2)}),
    ("slice", {"starts": (0, 0), "steps": (1, 1), "shape": (0, 2)}), ("erf", {}),
])  # fmt: skip
def test_printed_python_of_rows_with_attributes(name: str, attrs: dict[str, Any]) -> None:
    graph = Graph()
    graph.output([graph.call(OPS[name], graph.placeholder("x", Meta(dtypes.float64, (3, 4))), **attrs)])
    array = np.random.default_rng(0).normal(size=(3, 4))
    assert_same_bits(np.asarray(text.python_function(graph)(array)[0]), interpret(graph, [array])[0])


@pytest.mark.parametrize("name, attrs", [
    ("iota", {"shape": (4,), "start": 0.5, "step": 0.1, "dtype": dtypes.float32}),
    ("eye", {"shape": (3, 4), "k": 1, "dtype": dtypes.bool_}),
    ("full", {"shape": (2,), "value": -math.inf, "dtype": dtypes.float64}),
    ("linspace", {"shape": (5,), "start": 0.0, "stop": 1.0, "endpoint": False, "dtype": dtypes.float64}),
])  # fmt: skip
def test_printed_python_of_creation_rows(name: str, attrs: dict[str, Any]) -> None:
    graph = Graph()
    graph.output([graph.call(OPS[name], **attrs)])
    assert_same_bits(np.asarray(text.python_function(graph)()[0]), interpret(graph, [])[0])


@pytest.mark.parametrize("size", [4, 7])
def test_printed_python_serves_every_size(size: int) -> None:
    graph = Graph()
    n = ShapeEnv().symbol(5)
    x = graph.placeholder("x", Meta(dtypes.float64, (n, 3)))
    flat = graph.call(OPS["reshape"], x, shape=(n * 3,))
    back = graph.call(OPS["slice"], flat, starts=(n * 3 - 1,), steps=(-1,), shape=(n * 3,))
    graph.output([back, graph.call(OPS["full"], shape=(n, n // 2), value=n, dtype=dtypes.int64)])
    array = np.random.default_rng(0).normal(size=(size, 3))
    for got, expected in zip(text.python_function(graph)(array), interpret(graph, [array]), strict=True):
        assert_same_bits(np.asarray(got), expected)


def test_printed_names_clash_with_nothing() -> None:
    graph = Graph("lambda")
    args = [graph.placeholder(name, Meta(dtypes.float64, (2,))) for name in ("np", "nan", "class", "max", "OPS")]
    total = args[0]
    for arg in args[1:]:
        total = graph.call(OPS["add"], total, arg)
    graph.output([graph.call(OPS["erf"], total)])
    arrays = [np.array([float(k), 1.0]) for k in range(5)]
    assert_same_bits(np.asarray(text.python_function(graph)(*arrays)[0]), interpret(graph, arrays)[0])
    assert "def lambda_(np_, nan_, class_, max_, OPS_):" in text.python_code(graph)


def test_large_constants_are_held_beside_the_code() -> None:
    graph = Graph()
    graph.output([graph.call(OPS["exp"], graph.constant(np.linspace(0, 1, 100)))])
    assert "constants['constant_0']" in text.python_code(graph)
    assert_same_bits(text.python_function(graph)()[0], np.exp(np.linspace(0, 1, 100)))


def test_json_holds_the_whole_graph() -> None:
    loaded = json.loads(text.to_json(model()))
    assert loaded["name"] == "model"
    assert loaded["constants"] == {"constant_0": {"dtype": "float32", "shape": [3]}}
    total = loaded["nodes"][3]
    assert total == {
        "name": "sum", "kind": "call_function", "target": "sum", "args": ["add"],
        "attrs": {"axis": [1], "keepdims": True}, "dtype": "float32", "shape": [2, 1], "strides": None, "device": "cpu",
        "source": {"file": "somewhere/model.py", "line": 4},
    }  # fmt: skip
    assert loaded["nodes"][-1]["args"] == ["multiply"]


def test_json_writes_symbols_and_nan_as_text() -> None:
    graph = Graph()
    n = ShapeEnv().symbol(5)
    graph.output([graph.call(OPS["full"], shape=(n, 2), value=math.nan, dtype=dtypes.float64)])
    full = json.loads(text.to_json(graph))["nodes"][0]
    assert full["shape"] == ["s0", 2]
    assert full["attrs"]["value"] == "nan"


def test_dot_draws_every_node_and_edge() -> None:
    graph = model()
    lines = text.dot(graph).splitlines()
    assert lines[0] == 'digraph "model" {'
    assert lines[-1] == "}"
    assert sum("label=" in line for line in lines) == len(graph)
    assert sum("->" in line for line in lines) == sum(len(n.args) for n in graph.nodes)
    assert '  "add" -> "sum";' in lines


def test_dot_escapes_quotes() -> None:
    graph = Graph('a "name"')
    graph.output([graph.placeholder("x", Meta(dtypes.float64, ()))])
    assert text.dot(graph).startswith('digraph "a \\"name\\"" {')
