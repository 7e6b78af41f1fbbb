"""The tables of `doors/cupy.py` against what CuPy 14 says of itself (names.json), and against the op table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynagraph.array_libraries import named
from dynagraph.backends.device import compile_graph
from dynagraph.doors import cupy as cupy_door
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import function_of
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.ops import OPS
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.harness import put
from tests.cupy_arrays.page import PAGE, page
from tests.cupy_arrays.stand_in import NAMES
from tests.ops.cases import cases

pytestmark = pytest.mark.sampled(16)


def parameters(source: str) -> list[str]:
    code = eval(f"lambda {source}: None", {"float": float, "int": int, "bool": bool}).__code__
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    return names if not code.co_flags & 4 else [code.co_varnames[len(names)], *names]


@pytest.mark.parametrize("name", sorted(set(cupy_door.FUNCTIONS) - {"matmul"}))
def test_a_functions_parameters_are_cupys(name: str) -> None:
    ours = [p.lstrip("-*") for p in cupy_door.FUNCTIONS[name].split()]
    assert ours == parameters(NAMES["functions"][name])


@pytest.mark.parametrize("name", sorted(cupy_door.METHODS))
def test_a_methods_parameters_are_cupys(name: str) -> None:
    ours = [p.lstrip("-*") for p in cupy_door.METHODS[name].split()]
    assert ours == parameters(NAMES["methods"][name])


def test_ufuncs_are_cupys() -> None:
    assert set(NAMES["ufuncs"]) >= cupy_door.UFUNCS
    for name in cupy_door.UFUNCS:
        ufunc = getattr(np, name)
        assert NAMES["ufuncs"][name][:2] == [ufunc.nin, ufunc.nout]


def test_attributes_and_operators_are_cupys() -> None:
    assert set(cupy_door.ATTRIBUTES) <= set(NAMES["attributes"])
    assert "__imatmul__" not in NAMES["special"]  # as operations.in_place has it


def test_every_name_of_the_tables_is_met(cp: Any) -> None:
    own = cupy_door.names()
    assert own is not None
    met = {function_of(cp, name) for _, name in own.by_id.values()}
    assert {function_of(cp, name) for name in (*cupy_door.UFUNCS, *cupy_door.FUNCTIONS, "get_array_module")} == met


def test_a_new_module_is_walked_anew(cp: Any) -> None:
    first = cupy_door.names()
    assert first is not None and first is cupy_door.names()
    assert first.library is named("cupy") and first.library.module is cp


@pytest.mark.sampled(32)
@pytest.mark.parametrize("name", sorted(cupy_door.OPS))
def test_an_op_runs_through_the_library_as_through_numpy(cp: Any, name: str) -> None:
    """The eager column with CuPy's functions, in graphs of one node."""
    every = [case for case in cases(OPS[name]) if all(x.dtype.kind != "c" or x.size for x in case.operands)]
    for case in every[:: len(every) // 40 + 1]:
        graph = Graph(library="cupy")
        nodes = []
        for operand in case.operands:
            dtype = dtypes.from_numpy(operand.dtype)
            assert dtype is not None
            nodes.append(graph.placeholder("x", Meta(dtype, operand.shape)))
        graph.output([graph.call(case.op, *nodes, **case.attrs)])
        (result,) = compile_graph(graph)(*(put(cp, np.ascontiguousarray(x).reshape(x.shape)) for x in case.operands))
        with stand_in.quietly():
            expected = np.asarray(case.op.eager(np, *case.operands, **case.attrs))
        assert type(result) is cp.ndarray and (result.dtype, result.shape) == (expected.dtype, expected.shape), str(case)
        if cp.ndarray is stand_in.ndarray:
            np.testing.assert_array_equal(result.get(), expected, err_msg=str(case))


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.cupy_arrays.page"
