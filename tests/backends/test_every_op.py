"""Every row of the op table as machine code: dtypes x shapes x attributes, special values included, against its eager function."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.ops import OPS, Composite, Library, Op, Reduction, Scan
from tests import sampling
from tests.ops.cases import ROWS, Case, cases, cast_targets, multiplies_complex_numbers
from tests.ops.evaluate import assert_same

from .native import run_native

ULP = 5  # NumPy is off by one itself, our functions by at most four
SUMS = 64  # additions in another order
BATCH = 24  # cases that one C file computes
SOME = 4  # cases of an op in make test

# which zero of 0.0 and -0.0 comes out depends on NumPy's vector width
EITHER_ZERO = ("fmax", "fmin", "max", "min", "fmax_accumulate", "fmin_accumulate")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning"),
]


def tolerance(case: Case) -> int | None:
    if not case.op.exact and isinstance(case.op.lowering, (Reduction, Library, Composite, Scan)):
        return SUMS if case.operands and case.operands[0].dtype.kind in "fc" else ULP
    return None if case.op.exact and not multiplies_complex_numbers(case) else ULP


def graph_of(batch: list[Case]) -> tuple[Graph, list[np.ndarray]]:
    """One graph that computes every case, and its inputs."""
    graph, arrays, outputs = Graph(), [], []
    for case in batch:
        nodes = []
        for operand in case.operands:
            dtype = dtypes.from_numpy(operand.dtype)
            assert dtype is not None
            operand = np.ascontiguousarray(operand).reshape(operand.shape)
            nodes.append(graph.placeholder("x", Meta(dtype, operand.shape)))
            arrays.append(operand)
        outputs.append(graph.call(case.op, *nodes, **case.attrs))
    graph.output(outputs)
    return graph, arrays


def chosen(op: Op, most: int = BATCH) -> list[Case]:
    """With --all-cases every case of elementwise rows, of the others, whose cases are many, every third; else `most`.

    By the reference tests/ops/test_rows.py runs every case, always.
    """
    every, limit = list(cases(op)), 4 * BATCH if sampling.all_cases else most
    return every if len(every) <= limit else every[:: len(every) // limit + 1]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_casts_of_every_pair(source: DType) -> None:
    """Of `chosen` cases of casts not every pair of dtypes is one."""
    x = np.array([0, 1, 2, 100, 127], source.numpy)
    if source.is_integer:
        limits = np.iinfo(source.numpy)
        x = np.concatenate([x, np.array([limits.min, limits.min + 1, limits.max - 1, limits.max], source.numpy)])
    graph = Graph()
    node = graph.placeholder("x", Meta(source, x.shape))
    graph.output([graph.call(OPS["cast"], node, dtype=target) for target in cast_targets(source)])
    for target, got in zip(cast_targets(source), run_native(graph, x)):
        with np.errstate(over="ignore"):
            assert_same(got, x.astype(target.numpy))


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_machine_code_gives_what_eager_gives(op: Op) -> None:
    remaining = iter(chosen(op, SOME))
    while batch := list(itertools.islice(remaining, BATCH)):
        graph, arrays = graph_of(batch)
        for case, got in zip(batch, run_native(graph, *arrays)):
            with np.errstate(all="ignore"):
                want = np.asarray(op.eager(np, *case.operands, **op.bind_attrs(case.attrs)))
            if op.name in EITHER_ZERO and want.dtype.kind == "f":
                got, want = got + 0.0, want + 0.0
            try:
                assert_same(got, want, tolerance(case))
            except AssertionError as error:
                raise AssertionError(f"{case}: {error}") from None
