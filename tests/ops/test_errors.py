"""What rows refuse: every message says who, what was given and the rule."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dynagraph.errors import DTypeError, GraphError, ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.ops import OPS, define_op

f32, f64, i64, u8, b1 = dtypes.float32, dtypes.float64, dtypes.int64, dtypes.uint8, dtypes.bool_


def call(name: str, *operands: tuple[DType, tuple[int, ...]], **attrs: Any) -> None:
    graph = Graph()
    graph.call(OPS[name], *(graph.placeholder(f"x{k}", Meta(d, s)) for k, (d, s) in enumerate(operands)), **attrs)


DTYPES = [
    (
        "add",
        [(f32, (2,)), (f64, (2,))],
        {},
        "add: operands must have one dtype, got float32, float64; the graph holds casts",
    ),
    ("divide", [(i64, ()), (i64, ())], {}, "divide: takes floating point or complex numbers, got int64; cast the operand first"),
    ("exp", [(b1, ())], {}, "exp: takes floating point or complex numbers, got bool"),
    ("power_int", [(f64, ()), (f64, ())], {}, "power_int: takes integers, got float64"),
    ("left_shift", [(b1, ()), (b1, ())], {}, "left_shift: takes integers, got bool"),
    ("subtract", [(b1, ()), (b1, ())], {}, "subtract: takes numbers, got bool"),
    ("bitwise_and", [(f64, ()), (f64, ())], {}, "bitwise_and: takes integers or bool, got float64"),
    ("logical_and", [(i64, ()), (i64, ())], {}, "logical_and: takes bool, got int64"),
    ("logical_not", [(f32, ())], {}, "logical_not: takes bool, got float32"),
    (
        "where",
        [(i64, ()), (f32, ()), (f32, ())],
        {},
        "where: the condition must be bool, got int64; compare it with 0 first",
    ),
    ("where", [(b1, ()), (f32, ()), (f64, ())], {}, "where: operands must have one dtype, got float32, float64"),
    (
        "cast",
        [(f32, ())],
        {"dtype": "float64"},
        "cast: dtype must be one of the IR's (bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, "
        "float32, float64, complex64, complex128, bfloat16), got 'float64'",
    ),
    ("sum", [(b1, (2,))], {"axis": (0,)}, "sum: takes numbers, got bool"),
    ("any", [(i64, (2,))], {"axis": (0,)}, "any: takes bool, got int64; compare the operand with 0 first"),
    ("mean", [(i64, (2,))], {"axis": (0,)}, "mean: takes floating point or complex numbers, got int64"),
    ("cumsum", [(b1, (2,))], {"axis": 0}, "cumsum: takes numbers, got bool"),
    ("matmul", [(f32, (2, 2)), (f64, (2, 2))], {}, "matmul: operands must have one dtype, got float32, float64"),
    ("concatenate", [(f32, (2,)), (f64, (2,))], {"axis": 0}, "concatenate: operands must have one dtype"),
    ("full", [], {"shape": (), "value": 0, "dtype": float}, "full: dtype must be one of the IR's bool, int8"),
    (
        "iota",
        [],
        {"shape": (2,), "dtype": b1},
        "iota: dtype must be one of the IR's int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, "
        "float64, bfloat16, got bool",
    ),
]

X = [(f64, (2, 3))]
SHAPES = [
    (
        "add",
        [(f32, (3, 4)), (f32, (5,))],
        {},
        "add: shapes (3, 4) and (5,) do not broadcast; from the right, sizes must be equal or 1",
    ),
    ("where", [(b1, (2,)), (f32, ()), (f32, (3,))], {}, "where: shapes (2,) and () and (3,) do not broadcast"),
    (
        "sum",
        X,
        {"axis": 1},
        "sum: axis must be a sorted tuple of different axes from 0 to 1, got 1; normalise it with normalize_axis",
    ),
    ("sum", X, {"axis": (1, 0)}, "sum: axis must be a sorted tuple of different axes from 0 to 1, got (1, 0)"),
    ("sum", X, {"axis": (-1,)}, "sum: axis must be a sorted tuple of different axes from 0 to 1, got (-1,)"),
    (
        "max",
        [(f64, (0, 3))],
        {"axis": (0,)},
        "max: the array of shape (0, 3) has no elements along axis (0,), and there is no identity",
    ),
    (
        "argmax",
        X,
        {"axis": (0, 1)},
        "argmax: takes exactly one axis, got (0, 1); reshape to 1-d to search all elements",
    ),
    ("argmin", [(f64, (0, 0))], {"axis": (0,)}, "argmin: the array of shape (0, 0) has no elements along axis (0,)"),
    ("cumsum", X, {"axis": 2}, "cumsum: axis must be from 0 to 1, got 2; normalise it with normalize_axis"),
    ("reshape", X, {"shape": (4,)}, "reshape: an array of shape (2, 3) has 6 elements, shape (4,) takes 4"),
    ("reshape", X, {"shape": (-1, 2)}, "reshape: shape must be a tuple of sizes of at least 0, got (-1, 2)"),
    ("reshape", X, {"shape": 6}, "reshape: shape must be a tuple of sizes of at least 0, got 6"),
    ("diagonal", X, {}, "diagonal: the last two dimensions must be equal, got (2, 3)"),
    ("transpose", X, {"axes": (0, 0)}, "transpose: axes must be a permutation of (0, 1), got (0, 0)"),
    ("broadcast_to", X, {"shape": (3,)}, "broadcast_to: an array of shape (2, 3) does not broadcast to (3,)"),
    ("broadcast_to", X, {"shape": (1, 3)}, "broadcast_to: an array of shape (2, 3) does not broadcast to (1, 3)"),
    ("broadcast_to", X, {"shape": (4, 3)}, "broadcast_to: an array of shape (2, 3) does not broadcast to (4, 3)"),
    (
        "slice",
        X,
        {"starts": (0,), "steps": (1,), "shape": (1,)},
        "slice: starts, steps and shape must have one entry for each of 2 axes",
    ),
    ("slice", X, {"starts": (0, 0), "steps": (1, 0), "shape": (1, 1)}, "slice: the step of axis 1 is 0"),
    (
        "slice",
        X,
        {"starts": (1, 0), "steps": (1, 1), "shape": (2, 1)},
        "slice: axis 0 of size 2 has no elements 1 + 1*i for i < 2",
    ),
    (
        "slice",
        X,
        {"starts": (0, 0), "steps": (1, -1), "shape": (1, 2)},
        "slice: axis 1 of size 3 has no elements 0 + -1*i for i < 2",
    ),
    ("windows", X, {"sizes": (4,), "axes": (1,)}, "windows: 4 elements do not fit into axis 1 of size 3"),
    ("windows", X, {"sizes": (1,), "axes": (2,)}, "windows: axes must be one from 0 to 1 for each of the sizes (1,), got (2,)"),
    (
        "concatenate",
        [(f64, (2, 3)), (f64, (2, 4))],
        {"axis": 0},
        "concatenate: shapes (2, 3) and (2, 4) must be equal apart from axis 0",
    ),
    (
        "concatenate",
        [(f64, (2, 3)), (f64, (2,))],
        {"axis": 0},
        "concatenate: shapes (2, 3) and (2,) must be equal apart from axis 0",
    ),
    ("concatenate", X, {"axis": -1}, "concatenate: axis must be from 0 to 1, got -1"),
    (
        "update_slice",
        [(f64, (2, 3)), (f64, (2, 2))],
        {"starts": (0, 2), "steps": (1, 1)},
        "slice: axis 1 of size 3 has no elements 2 + 1*i for i < 2",
    ),
    (
        "pad",
        X,
        {"widths": ((1, 1),)},
        "pad: widths must be a pair of sizes of at least 0 for each of 2 axes, got ((1, 1),)",
    ),
    ("pad", X, {"widths": ((1, -1), (0, 0))}, "pad: widths must be a pair of sizes of at least 0 for each of 2 axes"),
    ("roll", X, {"shift": 1, "axis": 2}, "roll: axis must be from 0 to 1, got 2"),
    ("repeat", X, {"repeats": -1, "axis": 0}, "repeat: repeats must be at least 0, got -1"),
    ("tile", X, {"reps": (2,)}, "tile: reps must be a tuple of 2 counts of at least 0, got (2,)"),
    (
        "matmul",
        [(f64, (3,)), (f64, (3, 2))],
        {},
        "matmul: operands must have 2 dimensions or more, got shapes (3,) and (3, 2); reshape",
    ),
    (
        "matmul",
        [(f64, (2, 3)), (f64, (2, 3))],
        {},
        "matmul: shapes (2, 3) and (2, 3) do not fit; the last size of the first must equal "
        "the second last of the second, 3 is not 2",
    ),
    ("matmul", [(f64, (2, 2, 3)), (f64, (3, 3, 3))], {}, "matmul: shapes (2,) and (3,) do not broadcast"),
    (
        "full",
        [],
        {"shape": (-1,), "value": 0, "dtype": f64},
        "full: shape must be a tuple of sizes of at least 0, got (-1,)",
    ),
    ("eye", [], {"shape": (3,), "dtype": f64}, "eye: shape must be a tuple of 2 sizes of at least 0, got (3,)"),
    ("iota", [], {"shape": 3, "dtype": f64}, "iota: shape must be a tuple of 1 size of at least 0, got 3"),
    (
        "linspace",
        [],
        {"shape": (3,), "start": 0, "stop": float("inf"), "dtype": f64},
        "linspace: stop must be a finite number, got inf",
    ),
]

GRAPH = [
    ("add", X, {}, "add: takes 2 operands, got 1"),
    ("sum", X, {}, "sum: needs the attribute axis"),
    ("exp", X, {"axis": 1}, "exp: has no attribute axis; it has none"),
    ("roll", X, {"shift": 1, "axis": 1, "by": 3}, "roll: has no attribute by; it has shift, axis"),
    ("concatenate", [], {"axis": 0}, "concatenate: takes one operand or more, got none"),
    ("var", X, {"axis": (0,), "ddof": "one"}, "var: ddof must be a number, got 'one'"),
]


@pytest.mark.parametrize(("name", "operands", "attrs", "message"), DTYPES)
def test_dtypes_are_refused_by_name(name: str, operands: Any, attrs: Any, message: str) -> None:
    with pytest.raises(DTypeError, match="^" + re.escape(message)):
        call(name, *operands, **attrs)


@pytest.mark.parametrize(("name", "operands", "attrs", "message"), SHAPES)
def test_shapes_are_refused_by_name(name: str, operands: Any, attrs: Any, message: str) -> None:
    with pytest.raises(ShapeError, match="^" + re.escape(message)):
        call(name, *operands, **attrs)


@pytest.mark.parametrize(("name", "operands", "attrs", "message"), GRAPH)
def test_malformed_calls_are_refused_by_name(name: str, operands: Any, attrs: Any, message: str) -> None:
    with pytest.raises(GraphError, match="^" + re.escape(message)):
        call(name, *operands, **attrs)


def test_an_op_is_defined_once() -> None:
    row = OPS["exp"]
    with pytest.raises(GraphError, match=r"^op 'exp' is defined twice$"):
        define_op("exp", arity=1, dtype=row.dtype, shape=row.shape, eager=row.eager, lowering=row.lowering)
    assert OPS["exp"] is row
