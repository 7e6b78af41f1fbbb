"""Rows of the op table that are computed by other means than NumPy's, where arithmetic is exact: bit for bit with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.legalize import CORES, legalize
from tests.backends.test_constant_operands import bits

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

ROWS: dict[str, list[str]] = {
    "np.reciprocal(x)": INTEGERS,
    "np.power(x, abs(y) % 70)": ["int8", "int32", "int64", "uint64"],
    "np.gcd(x, y), np.lcm(x, y)": ["int8", "int64", "uint32", "uint64"],
    "np.frexp(x)": ["float32", "float64"],
    "np.nextafter(x, y)": ["float32", "float64"],
}


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def values(dtype: str, size: int, seed: int) -> np.ndarray:
    """The ends of the range and what stands around zero, among random ones."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        special = [0, 1, 2, 3, limits.max, limits.max - 1, limits.min, limits.min + 1] + [-1, -2] * (kind.kind == "i")
        made = rng.integers(limits.min, limits.max, size, dtype=kind, endpoint=True) >> rng.integers(
            0, 8 * kind.itemsize, size
        ).astype(kind)
    elif kind.kind == "b":
        special, made = [], rng.integers(0, 2, size).astype(bool)
    else:
        limits_ = np.finfo(kind)
        special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            math.inf,
            -math.inf,
            math.nan,
            limits_.tiny,
            limits_.smallest_subnormal,
            limits_.max,
            -limits_.max,
        ]
        made = np.ldexp(rng.uniform(-1, 1, size).astype(kind), rng.integers(limits_.minexp - 20, limits_.maxexp, size))
    count = min(size, len(special))
    made[rng.permutation(size)[:count]] = np.array(special, kind)[rng.permutation(len(special))[:count]]
    return made


def function(text: str) -> Callable:
    names = {"np": np}
    exec(f"def f(x, y):\n    return {text}\n", names)
    return names["f"]


def assert_same(got: object, want: object) -> None:
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert_same(g, w)
        return
    assert type(got) is type(want) and got.dtype == want.dtype and got.shape == want.shape
    got, want = np.asarray(got), np.asarray(want)
    same = got.tobytes() == want.tobytes() if want.dtype.kind in "biu" else bits(got) == bits(want)
    assert same, (got, want)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text, dtype", [(text, dtype) for text, names in ROWS.items() for dtype in names])
def test_rows_have_numpys_bits(text: str, dtype: str) -> None:
    f = function(text)
    x, y = values(dtype, 1003, 1), values(dtype, 1003, 2)
    assert_same(dg.compile(f)(x, y), f(x, y))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["any", "all", "max", "min"])
def test_bools_that_decide_early_or_late(name: str) -> None:
    f = function(f"np.{name}(x), np.{name}(x, axis=0), np.{name}(x, axis=1)")
    compiled = dg.compile(f)
    for background in (False, True):
        for place in (None, 0, 511, 512, 4095, 5000, 70_000 - 1):
            x = np.full((7, 10_000), background)
            if place is not None:
                x.ravel()[place] ^= True
            assert_same(compiled(x, None), f(x, None))


def test_long_reductions_have_few_parts() -> None:
    """More parts only cost: what decides early begins anew in each."""
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.bool_, (4_000_000,)))
    graph.output((graph.call(OPS["any"], x, axis=(0,), keepdims=False),))
    (parts,) = (n for n in legalize(graph).nodes if n.is_op("block_reduce"))
    assert CORES.blocks is not None and parts.shape[0] <= CORES.blocks
