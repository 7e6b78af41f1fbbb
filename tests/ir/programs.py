"""Graphs to test on: instances of rewrite patterns, random programs, and inputs full of special values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dynagraph.errors import DynagraphError
from dynagraph.ir import dtypes, optable
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.simplify import EXACT
from dynagraph.ir.rewrite import Apply, Attribute, Literal, Number, Pattern, Rule, Variable, convert, subpatterns

assert optable.__all__  # importing the package fills OPS

Shape = tuple[int, ...]

FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-310, 1e-40, 3.4e38, 1e300, 7.0, -7.0]
INTEGERS = [0, 1, -1, 2, -2, 3, 7, 255, 128, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**53 + 1, 100]


def special_values(dtype: DType, shape: Shape, seed: int) -> np.ndarray:
    """An array that mixes ordinary and special values of the dtype, a different mix for each seed."""
    rng = np.random.default_rng(seed)
    size = math.prod(shape)
    with np.errstate(all="ignore"):
        if dtype.is_float:
            pool = np.array(FLOATS).astype(dtype.numpy)
        elif dtype.is_bool:
            pool = np.array([False, True])
        else:
            pool = np.array(INTEGERS).astype(dtype.numpy)
    return np.resize(rng.permutation(pool), size).reshape(shape)


def values(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """The graph's results on special values, by NumPy."""
    inputs = [special_values(p.dtype, p.shape, seed + k) for k, p in enumerate(graph.placeholders)]
    with np.errstate(all="ignore"):
        return list(interpret(graph, inputs))


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal dtype, shape and bits; one NaN is as good as another."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if expected.dtype.kind == "f":
        assert np.array_equal(np.isnan(got), np.isnan(expected))
        got, expected = np.nan_to_num(got, posinf=math.inf, neginf=-math.inf), np.nan_to_num(
            expected, posinf=math.inf, neginf=-math.inf)
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()


# -- instances of patterns ---------------------------------------------------------------------------------------------
SHAPES: list[Shape] = [(3, 4), (3, 1)]
DTYPES = list(dtypes.ALL)

# attributes to try, for each op that rules mention, given the operand
SAMPLES: dict[str, Callable[[Node], list[dict[str, Any]]]] = {
    "cast": lambda x: [{"dtype": d} for d in DTYPES],
    "reshape": lambda x: [{"shape": x.shape}, {"shape": (math.prod(x.shape),)}, {"shape": (*x.shape, 1)}],
    "transpose": lambda x: [{"axes": tuple(range(x.ndim))}, {"axes": tuple(reversed(range(x.ndim)))}],
    "broadcast_to": lambda x: [{"shape": x.shape}, {"shape": (2, *x.shape)}],
    "slice": lambda x: [
        {"starts": (0,) * x.ndim, "steps": (1,) * x.ndim, "shape": x.shape},
        {"starts": (1,) * x.ndim, "steps": (1,) * x.ndim, "shape": tuple(d - 1 for d in x.shape)},
        {"starts": tuple(d - 1 for d in x.shape), "steps": (-1,) * x.ndim, "shape": x.shape},
        {"starts": (0,) * x.ndim, "steps": (2,) * x.ndim, "shape": tuple((d + 1) // 2 for d in x.shape)},
    ],
    "concatenate": lambda x: [{"axis": 0}],
    "pad": lambda x: [{"widths": ((0, 0),) * x.ndim, "value": 0}, {"widths": ((1, 0),) * x.ndim, "value": 1}],
    "roll": lambda x: [{"shift": 0, "axis": 0}, {"shift": 1, "axis": 0}],
    "repeat": lambda x: [{"repeats": 1, "axis": 0}, {"repeats": 2, "axis": 0}],
    "tile": lambda x: [{"reps": (1,) * x.ndim}, {"reps": (2,) * x.ndim}],
}
LITERALS = [2.0, -0.5, 1, 3.0, True]


def instances(rule: Rule) -> Iterator[Graph]:
    """Graphs whose output is made of an instance of the rule's pattern, for every choice of dtypes and attributes."""
    names = sorted({p.name for p in subpatterns(rule.pattern) if isinstance(p, Variable)})
    shapes = SHAPES if len(names) < 2 else SHAPES[:1]
    for kinds in itertools.product(DTYPES, repeat=len(names)):
        for shape in shapes:
            yield from _instances(rule.pattern, dict(zip(names, kinds)), shape)


def _instances(pattern: Pattern, kinds: dict[str, DType], shape: Shape) -> Iterator[Graph]:
    for choices in _choices(pattern):
        graph = Graph()
        made: dict[str, Node] = {name: graph.placeholder(name, Meta(d, shape)) for name, d in kinds.items()}
        try:
            node = _build(graph, pattern, made, iter(choices), DTYPES[-1])
        except (DynagraphError, OverflowError, IndexError):
            continue  # the pattern has no instance of these dtypes and attributes
        graph.output([graph.call(OPS["tile"], node, reps=(2,) * node.ndim)])  # used inside the graph: copies may go
        yield graph


def _choices(pattern: Pattern) -> Iterator[Sequence[int]]:
    """Which sample to take at each place of the pattern that leaves something open."""
    counts = [_open_choices(p) for p in subpatterns(pattern)]
    return itertools.product(*(range(n) for n in counts))


def _open_choices(pattern: Pattern) -> int:
    if isinstance(pattern, Literal):
        return len(LITERALS)
    if isinstance(pattern, Apply) and pattern.op in SAMPLES:
        return len(DTYPES) if pattern.op == "cast" else 4
    return 1


def _build(graph: Graph, pattern: Pattern, made: dict[str, Node], choices: Iterator[int], beside: DType) -> Node:
    choice = next(choices)
    if isinstance(pattern, Variable):
        return made[pattern.name]
    if isinstance(pattern, Number):
        return _constant(graph, pattern.value, beside)
    if isinstance(pattern, Literal):
        value = _constant(graph, LITERALS[choice], beside)
        return graph.call(OPS["full"], shape=SHAPES[0], value=value.attrs["value"], dtype=beside)
    assert isinstance(pattern, Apply)
    known = [made[a.name].dtype for a in pattern.args if isinstance(a, Variable)]
    operand_dtype = known[-1] if known else beside
    beside_first = dtypes.bool_ if pattern.op == "where" else operand_dtype
    args = [
        _build(graph, a, made, choices, beside_first if k == 0 else operand_dtype) for k, a in enumerate(pattern.args)
    ]
    attrs = SAMPLES[pattern.op](args[0])[choice] if pattern.op in SAMPLES else {}
    fixed = {k: v for k, v in pattern.attrs.items() if not isinstance(v, Attribute)}
    return graph.call(OPS[pattern.op], *args, **{**attrs, **fixed})


def _constant(graph: Graph, value: bool | int | float, dtype: DType) -> Node:
    if isinstance(value, bool) != dtype.is_bool:
        raise DynagraphError("bools are apart")
    return graph.call(OPS["constant"], value=convert(value, dtype), dtype=dtype)


# -- random programs ---------------------------------------------------------------------------------------------------
_LEFT_OUT = {"block_reduce", "power_int"}  # made by the compiler only; raises for negative powers
_SUMS = {"sum", "prod"}  # exact for integers
_RANDOM_OPS = sorted(name for name, row in OPS.items() if (row.exact or name in _SUMS) and name not in _LEFT_OUT)


_OPS_OF_RULES = sorted({p.op for r in EXACT for p in subpatterns(r.pattern) if isinstance(p, Apply)} & set(_RANDOM_OPS))


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """A small random graph of ops whose arithmetic is exact: floating-point sums are left out, integer ones are not."""
    graph = Graph()
    nodes: list[Node] = []
    for k in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.sampled_from([(), (1,), (4,), (3, 4), (3, 1), (1, 4), (2, 3, 4), (0, 4)]))
        nodes.append(graph.placeholder(f"x{k}", Meta(dtype, shape)))
    for _ in range(draw(st.integers(1, 12))):
        new = _random_node(draw, graph, nodes)
        if new is not None:
            nodes.append(new)
    graph.output(draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3)))
    return graph


def _random_node(draw: st.DrawFn, graph: Graph, nodes: list[Node]) -> Node | None:
    recent = draw(st.booleans())  # chains of ops are what rules match
    first = draw(st.sampled_from(nodes[-2:] if recent else nodes))
    if draw(st.integers(0, 4)) == 0:
        return _random_constant(draw, graph, first)
    row = OPS[draw(st.sampled_from(draw(st.sampled_from([_RANDOM_OPS, _OPS_OF_RULES]))))]
    if row.arity == 0 or (row.name in ("sum", "prod") and first.dtype.is_float):
        return None
    count = draw(st.integers(1, 3)) if row.arity is None else row.arity
    others = [n for n in nodes if n.dtype is first.dtype][-4:]
    args = [first, *(draw(st.sampled_from(others)) for _ in range(count - 1))]
    if row.name == "where":
        conditions = [n for n in nodes if n.dtype.is_bool]
        if not conditions:
            return None
        args[0] = draw(st.sampled_from(conditions))
    try:
        return graph.call(row, *args, **_random_attrs(draw, row.name, args[0]))
    except (DynagraphError, IndexError):
        return None


def _random_constant(draw: st.DrawFn, graph: Graph, like: Node) -> Node | None:
    choices = [False, True] if like.dtype.is_bool else [0, 1, 2, 3] + ([] if like.dtype.kind == "u" else [-1, -2])
    choices += [-0.0, 0.5, math.nan, math.inf] if like.dtype.is_float else []
    value = convert(draw(st.sampled_from(choices)), like.dtype)
    if draw(st.booleans()):
        return graph.call(OPS["full"], shape=like.shape, value=value, dtype=like.dtype)
    return graph.call(OPS["constant"], value=value, dtype=like.dtype)


def _random_attrs(draw: st.DrawFn, name: str, x: Node) -> dict[str, Any]:
    if name in SAMPLES:
        return draw(st.sampled_from(SAMPLES[name](x)))
    attrs: dict[str, Any] = {}
    for key in OPS[name].attrs:
        if key == "axis" and name in ("cumsum", "cumprod"):
            attrs[key] = draw(st.integers(0, max(0, x.ndim - 1)))
        elif key == "axis":
            some = draw(st.sets(st.integers(0, max(0, x.ndim - 1)), max_size=x.ndim))
            attrs[key] = tuple(sorted(some))
        elif key == "keepdims":
            attrs[key] = draw(st.booleans())
    return attrs


__all__ = ["DTYPES", "assert_same_bits", "instances", "programs", "special_values", "values"]
