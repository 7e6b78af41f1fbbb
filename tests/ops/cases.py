"""Operands and attributes for every row of the op table: dtypes x shapes x attributes, made from the row."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import dynagraph.ir.optable  # noqa: F401  (fills OPS)
from dynagraph.errors import DTypeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType, from_numpy
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Meta
from dynagraph.ir.ops import OPS, Composite, Creation, Elementwise, Gather, Library, Op, Reduction, Scan, Scatter
from dynagraph.ir.optable import pooling
from dynagraph.ir.optable.convolution import places_of

# made by the compiler alone, and lowered by name: tested with the passes
ROWS = [op for op in OPS.values() if op.name not in ("block_reduce", "effect_call")]  # calls with effects: tests/torch/distributed

SPECIAL = {
    "b": [True, False],
    "u": [0, 1, 2, 7, 8, 255],
    "i": [0, 1, -1, 2, -3, 31, 33, 64],
    "f": [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan],
}
_PARTS = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan]
SPECIAL["c"] = [complex(x, y) for x in _PARTS for y in _PARTS]


@dataclass
class Case:
    op: Op
    operands: list[np.ndarray]
    attrs: dict[str, Any]

    def __str__(self) -> str:
        operands = [f"{x.dtype}{list(x.shape)}" for x in self.operands]
        return f"{self.op.name}({', '.join(operands + [f'{k}={v}' for k, v in self.attrs.items()])})"


def sample(op: Op, dtype: DType, shape: tuple[int, ...], seed: int = 0, special: bool = False) -> np.ndarray:
    """Values in the row's domain; `special`: also the ones that go wrong."""
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {dtype} {shape} {seed}".encode()))
    low, high = op.domain
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if special:
        return rng.choice(special_values(op, dtype), shape)
    if dtype.is_integer:
        return rng.integers(0 if dtype.kind == "u" else int(low), int(high) + 1, shape).astype(dtype.numpy)
    if dtype.is_complex:
        return np.asarray(rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype.numpy)
    return rng.uniform(low, high, shape).astype(dtype.numpy)


def special_values(op: Op, dtype: DType) -> np.ndarray:
    values = list(SPECIAL[dtype.kind])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        values += [info.min, info.max]
    if dtype.kind == "f":
        info = np.finfo(dtype.numpy)
        values += [info.max, -info.max, info.tiny, info.smallest_subnormal]
    if op.name.startswith("power_int"):
        values = [v for v in values if v >= 0]  # NumPy refuses negative exponents
    return np.array(values, dtype.numpy)


def accepted_dtypes(op: Op) -> Iterator[tuple[DType, ...]]:
    """The dtypes of operands that the row takes."""
    for dtype in dtypes.ALL:
        operands = (
            (dtypes.bool_, dtype, dtype)
            if op.name == "where"
            else (dtype, dtypes.bool_, dtype)
            if op.name == "sum_where"
            else (dtype, dtypes.int64)
            if op.name == "ldexp"
            else (dtype,) * (2 if op.arity is None else op.arity or 0)
        )
        try:
            op.dtype(tuple(Meta(d, (2, 2)) for d in operands), dict(op.attrs))
        except DTypeError:
            continue
        yield operands


ELEMENTWISE_SHAPES = {
    1: [((),), ((0,),), ((1,),), ((7,),), ((2, 3),), ((2, 1, 3),)],
    2: [((), ()), ((0,), (1,)), ((1,), (4,)), ((5,), (5,)), ((3, 1), (4,)), ((2, 3), (2, 3)), ((2, 1, 3), (4, 1))],
    3: [((), (), ()), ((0,), (1,), ()), ((5,), (5,), (5,)), ((3, 1), (1, 4), (4,))],
}


def multiplies_complex_numbers(case: Case) -> bool:
    """NumPy's vector loops fuse the products of the parts with their sum, or do not: by the machine and the length."""
    names = ("multiply", "multiply_accumulate", "square", "divide", "reciprocal", "cumprod", "absolute", "sign")
    return case.op.name in names and any(x.dtype.kind == "c" for x in case.operands)


def cast_targets(source: DType) -> list[DType]:
    """What a dtype may be cast to: NumPy warns where an imaginary part is lost."""
    return [d for d in dtypes.ALL if d.is_complex or d.is_bool or not source.is_complex]


def elementwise_cases(op: Op) -> Iterator[Case]:
    for operands in accepted_dtypes(op) if op.name != "cast" else [(d,) for d in dtypes.ALL]:
        for attrs in [{"dtype": d} for d in cast_targets(operands[0])] if op.name == "cast" else [{}]:
            for shapes in ELEMENTWISE_SHAPES[len(operands)]:
                yield Case(op, [sample(op, d, s, k) for k, (d, s) in enumerate(zip(operands, shapes))], attrs)
            yield Case(op, _every_special_combination(op, operands, attrs), attrs)


def _every_special_combination(op: Op, operands: tuple[DType, ...], attrs: dict[str, Any]) -> list[np.ndarray]:
    values = [np.array([False, True]) if d.is_bool else special_values(op, d) for d in operands]
    if op.name == "cast" and operands[0].is_float and attrs["dtype"].is_integer:
        values = [
            v[np.isfinite(v) & (abs(v) < 128) & (v > -1)] for v in values
        ]  # what the rest gives is the machine's affair
    return [v.reshape([-1 if i == k else 1 for i in range(len(values))]) for k, v in enumerate(values)]


def axes_of(rank: int) -> list[tuple[int, ...]]:
    every = [(), (0,), (rank - 1,), (0, rank - 1), tuple(range(rank))]
    return sorted({a for a in every if all(0 <= k < rank for k in a) and len(set(a)) == len(a)})


def reduction_cases(op: Op) -> Iterator[Case]:
    extremes = op.name in ("max", "min", "argmax", "argmin")
    for dtype, *others in accepted_dtypes(op):
        for shape in [(), (0,), (1,), (9,), (2, 3), (0, 3), (3, 2, 4)]:
            for axes in axes_of(len(shape)):
                if op.name in ("argmax", "argmin") and len(axes) != 1:
                    continue
                if extremes and any(shape[k] == 0 for k in axes):
                    continue
                for keepdims in (False, True):
                    attrs = {"axis": axes, "keepdims": keepdims}
                    more = [sample(op, d, shape if d.is_bool else (), 1) for d in others]  # a mask, and what it begins with
                    yield Case(op, [sample(op, dtype, shape), *more], attrs)
                    yield Case(op, [sample(op, dtype, shape, special=op.exact), *more], attrs)


def scan_cases(op: Op) -> Iterator[Case]:
    for (dtype,) in accepted_dtypes(op):
        for shape in [(0,), (1,), (9,), (2, 3), (3, 0, 2), (3, 2, 4)]:
            for axis in range(len(shape)):
                for special in (False, True):
                    yield Case(op, [sample(op, dtype, shape, special=special)], {"axis": axis})


def composite_cases(op: Op) -> Iterator[Case]:
    for ddof in [0, 1, 1.5, 100] if "ddof" in op.attrs else [None]:
        for case in reduction_cases(op):
            if ddof is not None:
                case.attrs["ddof"] = ddof
            yield case


MOVEMENTS: dict[str, list[tuple[tuple[tuple[int, ...], ...], dict[str, Any]]]] = {
    "reshape": [
        (((6,),), {"shape": (2, 3)}),
        (((2, 3),), {"shape": (6,)}),
        (((2, 3),), {"shape": (3, 2)}),
        (((),), {"shape": (1, 1)}),
        (((1,),), {"shape": ()}),
        (((0, 3),), {"shape": (5, 0)}),
        (((2, 3, 4),), {"shape": (6, 4)}),
        (((2, 3, 4),), {"shape": (2, 2, 6)}),
        (((2, 3, 4),), {"shape": (4, 3, 2)}),
        (((2, 1, 3),), {"shape": (1, 2, 3, 1)}),
        (((12,),), {"shape": (2, 2, 3)}),
    ],
    "transpose": [
        (((),), {"axes": ()}),
        (((4,),), {"axes": (0,)}),
        (((2, 3),), {"axes": (1, 0)}),
        (((2, 3, 4),), {"axes": (2, 0, 1)}),
        (((2, 0, 3),), {"axes": (1, 2, 0)}),
    ],
    "broadcast_to": [
        (((),), {"shape": (2, 3)}),
        (((3,),), {"shape": (2, 3)}),
        (((2, 1),), {"shape": (4, 2, 3)}),
        (((1,),), {"shape": (0,)}),
        (((2, 3),), {"shape": (2, 3)}),
    ],
    "slice": [
        (((7,),), {"starts": (1,), "steps": (2,), "shape": (3,)}),
        (((7,),), {"starts": (6,), "steps": (-1,), "shape": (7,)}),
        (((7,),), {"starts": (5,), "steps": (-2,), "shape": (3,)}),
        (((7,),), {"starts": (7,), "steps": (1,), "shape": (0,)}),
        (((4, 5),), {"starts": (0, 4), "steps": (3, -4), "shape": (2, 2)}),
        (((),), {"starts": (), "steps": (), "shape": ()}),
    ],
    "windows": [
        (((7,),), {"sizes": (3,), "axes": (0,)}),
        (((7,),), {"sizes": (7,), "axes": (0,)}),
        (((4, 5),), {"sizes": (2, 3), "axes": (0, 1)}),
        (((4, 5),), {"sizes": (2,), "axes": (1,)}),
        (((2, 6),), {"sizes": (2, 3), "axes": (1, 1)}),
        (((2, 3),), {"sizes": (), "axes": ()}),
    ],
    "update_slice": [
        (((7,), (3,)), {"starts": (1,), "steps": (2,)}),
        (((7,), (7,)), {"starts": (0,), "steps": (1,)}),
        (((7,), (7,)), {"starts": (6,), "steps": (-1,)}),
        (((7,), (3,)), {"starts": (5,), "steps": (-2,)}),
        (((7,), (0,)), {"starts": (7,), "steps": (1,)}),
        (((4, 5), (2, 2)), {"starts": (0, 4), "steps": (3, -4)}),
        (((4, 5), (1, 5)), {"starts": (2, 0), "steps": (1, 1)}),
        (((), ()), {"starts": (), "steps": ()}),
        (((0, 2), (0, 1)), {"starts": (0, 1), "steps": (1, 1)}),
    ],
    "concatenate": [
        (((3,),), {"axis": 0}),
        (((3,), (0,), (2,)), {"axis": 0}),
        (((2, 3), (2, 1)), {"axis": 1}),
        (((1, 2, 2), (2, 2, 2), (3, 2, 2)), {"axis": 0}),
    ],
    "pad": [
        (((),), {"widths": (), "value": 1}),
        (((3,),), {"widths": ((1, 2),), "value": 1}),
        (((3,),), {"widths": ((0, 0),)}),
        (((2, 3),), {"widths": ((0, 1), (2, 0)), "value": 1}),
        (((0,),), {"widths": ((1, 1),), "value": 0}),
    ],
    "diagonal": [
        (((3, 3),), {}),
        (((2, 4, 4),), {}),
        (((0, 0),), {}),
        (((1, 1),), {}),
    ],
    "roll": [
        (((5,),), {"shift": 2, "axis": 0}),
        (((5,),), {"shift": -7, "axis": 0}),
        (((5,),), {"shift": 10, "axis": 0}),
        (((2, 3),), {"shift": 1, "axis": 1}),
        (((0,),), {"shift": 1, "axis": 0}),
    ],
    "repeat": [
        (((3,),), {"repeats": 2, "axis": 0}),
        (((2, 3),), {"repeats": 3, "axis": 1}),
        (((2, 3),), {"repeats": 0, "axis": 0}),
        (((1,),), {"repeats": 1, "axis": 0}),
    ],
    "tile": [
        (((),), {"reps": ()}),
        (((3,),), {"reps": (2,)}),
        (((2, 3),), {"reps": (2, 1)}),
        (((1, 3),), {"reps": (3, 2)}),
        (((0, 2),), {"reps": (2, 2)}),
        (((2,),), {"reps": (0,)}),
    ],
    "copy": [(((),), {}), (((0,),), {}), (((2, 3),), {})],
    "variable": [(((),), {}), (((0,),), {}), (((2, 3),), {})],
    "stop_gradient": [(((),), {}), (((0,),), {}), (((2, 3),), {})],
    "optimization_barrier": [(((),), {}), (((0,),), {}), (((2, 3),), {})],
}


def movement_cases(op: Op) -> Iterator[Case]:
    for dtype in dtypes.ALL:
        for shapes, attrs in MOVEMENTS[op.name]:
            yield Case(op, [sample(op, dtype, s, k) for k, s in enumerate(shapes)], attrs)


def creation_cases(op: Op) -> Iterator[Case]:
    for dtype in dtypes.ALL:
        for attrs in _creation_attrs(op.name, dtype):
            yield Case(op, [], {**attrs, "dtype": dtype})


def _creation_attrs(name: str, dtype: DType) -> list[dict[str, Any]]:
    values: list[Any] = list(SPECIAL[dtype.kind])
    if name == "constant":
        return [{"value": v} for v in values]
    if name == "full":
        return [{"shape": s, "value": values[-1]} for s in [(), (0,), (3,), (2, 3)]]
    if name == "eye":
        return [{"shape": s, "k": k} for s in [(3, 3), (2, 4), (0, 2), (1, 1)] for k in (-1, 0, 2)]
    if dtype.is_bool or dtype.is_complex:
        return []
    floats = [(0.1, 0.3), (-0.0, 1.5), (1.0, -0.7), (0.53, -1.2)] if dtype.is_float else []
    floats += [(1e8, 0.1)] if dtype.is_float and dtype is not dtypes.float16 else []
    if name == "iota":
        starts = [(0, 1), (3, 2), *floats] + ([(5, -2)] if dtype.kind != "u" else [])
        return [{"shape": (n,), "start": a, "step": s} for n in (0, 1, 2, 17) for a, s in starts]
    ranges = [(0.0, 1.0), (2, 9), (3.0, 3.0)] + ([(1.0, -0.3), (0.0, 5e-324)] if dtype.kind != "u" else [])
    return [
        {"shape": (n,), "start": a, "stop": b, "endpoint": e}
        for n in (0, 1, 2, 11)
        for a, b in ranges
        for e in (True, False)
    ]


def gather_cases(op: Op) -> Iterator[Case]:
    for dtype in dtypes.ALL:
        for shape, places, axes, at in [
            ((5,), (4,), (0,), 0), ((5,), (), (0,), 0), ((4, 3), (2, 3), (0,), 0), ((4, 3), (6,), (1,), 1), ((4, 3), (6,), (1,), 0),
            ((2, 3, 4), (5,), (0, 2), 1), ((2, 3, 4), (2, 2), (2, 0), 0), ((3,), (0,), (0,), 0), ((2, 0), (3,), (0,), 1),
        ]:
            rng = np.random.default_rng(len(shape))
            where = [rng.integers(-shape[a], shape[a], places) if shape[a] else np.zeros(places, int) for a in axes]
            yield Case(op, [sample(op, dtype, shape), *where], {"axes": axes, "at": at})


def scatter_cases(op: Op) -> Iterator[Case]:
    for case in gather_cases(op):
        x, *places = case.operands
        rest = tuple(d for k, d in enumerate(x.shape) if k not in case.attrs["axes"])
        at = case.attrs["at"]
        values = sample(op, from_numpy(x.dtype), rest[:at] + places[0].shape + rest[at:], 1)
        for combine in ("", "add", "maximum", "subtract") if x.dtype.kind != "b" else ("", "logical_or"):
            yield Case(op, [x, values, *places], {**case.attrs, "combine": combine})


CALLS: list[tuple[FunctionCall, tuple[int, ...], int | None, tuple[int, ...]]] = [
    (FunctionCall("sort", (Slot(0),), (("axis", 0),)), (4, 3), None, (4, 3)),
    (FunctionCall("sort", (Slot(0),)), (0,), None, (0,)),
    (FunctionCall("partition", (Slot(0), 2)), (5,), None, (5,)),
]


def external_call_cases(op: Op) -> Iterator[Case]:
    for dtype in dtypes.ALL:
        for call, shape, result, made in CALLS:
            yield Case(op, [sample(op, dtype, shape)], {"call": call, "result": result, "dtype": dtype, "shape": made})
    for result, made in enumerate([(4, 3), (3, 3)]):
        attrs = {"call": FunctionCall("linalg.qr", (Slot(0),)), "result": result, "dtype": dtypes.float64, "shape": made}
        yield Case(op, [sample(op, dtypes.float64, (4, 3))], attrs)


# images, filters, strides, padding, dilation, groups
CONVOLUTIONS: list[tuple[Any, ...]] = [
    ((2, 3, 7), (4, 3, 3), (1,), ((0, 0),), (1,), 1),
    ((2, 4, 6, 5), (6, 2, 3, 2), (2, 1), ((1, 0), (2, 1)), (1, 2), 2),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), (1, 2, 1), ((0, 1), (1, 1), (0, 0)), (2, 1, 1), 1),
    ((3, 3, 5, 6), (3, 1, 3, 3), (1, 2), ((1, 1), (1, 1)), (1, 1), 3),
    ((0, 2, 3), (1, 2, 2), (1,), ((0, 0),), (1,), 1),
    ((2, 5, 4, 4), (7, 5, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
]


def convolution_cases(op: Op) -> Iterator[Case]:
    for (dtype, _), (images, filters, *about) in itertools.product(accepted_dtypes(op), CONVOLUTIONS):
        attrs = dict(zip(("stride", "padding", "dilation", "groups"), about))
        places = tuple(map(places_of, images[2:], filters[2:], attrs["stride"], attrs["dilation"], attrs["padding"]))
        results = (images[0], filters[0], *places)
        shapes = {"conv": (images, filters), "conv_input": (results, filters), "conv_weight": (images, results)}[op.name]
        more = {"conv": {}, "conv_input": {"shape": images[2:]}, "conv_weight": {"kernel": filters[2:]}}[op.name]
        yield Case(op, [sample(op, dtype, s, k) for k, s in enumerate(shapes)], {**attrs, **more})


# shapes, and of windows: kernels, strides, padding, dilation, how many there are
POOLS: list[tuple[Any, ...]] = [
    ((2, 3, 7), (2,), (2,), (0,), (1,), (3,)),
    ((2, 3, 7), (2,), (2,), (1,), (1,), (4,)),
    ((3, 6, 7), (3, 2), (2, 1), (1, 0), (1, 2), (3, 5)),
    ((2, 5, 6, 7), (2, 3, 2), (1, 2, 3), (1, 1, 0), (2, 1, 1), (5, 3, 3)),  # the last ones reach beyond the array
    ((4, 4), (1, 1), (1, 1), (0, 0), (1, 1), (4, 4)),
    ((1, 2), (2,), (1,), (1,), (3,), (1,)),  # a window that is all border
    ((0, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1), (2, 2)),
]
ADAPTIVE: list[tuple[Any, ...]] = [
    ((2, 3, 7), (3,)),
    ((3, 5, 7), (3, 4)),
    ((2, 4, 5, 6), (3, 5, 2)),
    ((2, 5), (7,)),
    ((0, 5), (3,)),
]


def average_cases(op: Op, dtype: Any, special: bool, shape: Any, kernel: Any, stride: Any, padding: Any) -> Iterator[Case]:
    """Of windows that lie within the border, and of one more along each axis."""
    about = {"kernel": kernel, "stride": stride, "padding": padding}
    front, sizes = shape[: len(shape) - len(kernel)], shape[len(shape) - len(kernel) :]
    within = tuple((size + 2 * p - k) // s + 1 for size, k, s, p in zip(sizes, kernel, stride, padding))
    for more, (whole, divisor) in itertools.product((0, 1), ((True, None), (False, None), (True, 5))):
        places = tuple(count + more for count in within)
        if any((count - 1) * s >= size + p for count, s, size, p in zip(places, stride, sizes, padding)):
            continue
        given, last = (shape, {"places": places}) if op.name == "avg_pool" else ((*front, *places), {"sizes": sizes})
        yield Case(op, [sample(op, dtype, given, special=special)], {**about, **last, "whole": whole, "divisor": divisor})


def pool_cases(op: Op) -> Iterator[Case]:
    for dtype, special in itertools.product((dtypes.float32, dtypes.float64), (False, True)):
        by_windows = [(shape, len(about[0]), dict(zip(("kernel", "stride", "padding", "dilation", "places"), about)))
                      for shape, *about in POOLS]
        by_number = [(shape, len(counts), {"counts": counts}) for shape, counts in ADAPTIVE]
        if op.name in ("max_pool", "adaptive_max_pool"):
            for (shape, _, attrs), result in itertools.product(by_windows if op.name == "max_pool" else by_number, (0, 1)):
                yield Case(op, [sample(op, dtype, shape, special=special)], {**attrs, "result": result})
        elif op.name in pooling.AVERAGES:
            for shape, kernel, stride, padding, _, _ in POOLS:
                yield from average_cases(op, dtype, special, shape, kernel, stride, padding)
        elif op.name == "max_pool_back":
            for name, some in (("max_pool", by_windows), ("adaptive_max_pool", by_number)):
                for shape, n, attrs in some:
                    places = OPS[name].eager(np, sample(op, dtype, shape), **attrs, result=1)
                    yield Case(op, [sample(op, dtype, places.shape, special=special), places], {"sizes": shape[len(shape) - n :]})
        else:
            size = "count" if op.name == "adaptive_mean" else "size"
            for (shape, _, attrs), axis in itertools.product(by_number, (0, 1)):
                if shape[axis]:
                    yield Case(op, [sample(op, dtype, shape, special=special)], {"axis": axis, size: attrs["counts"][0]})


def library_cases(op: Op) -> Iterator[Case]:
    if op.name in ("external_call", "effect_call"):
        yield from external_call_cases(op)
        return
    if op.name.startswith("conv"):
        yield from convolution_cases(op)
        return
    if op.name in pooling.ROUTINES:
        yield from pool_cases(op)
        return
    for dtype in dtypes.ALL:
        for a, b in [
            ((2, 3), (3, 4)),
            ((1, 1), (1, 1)),
            ((2, 0), (0, 3)),
            ((2, 2, 3), (3, 2)),
            ((2, 1, 2, 3), (3, 3, 2)),
        ]:
            yield Case(op, [sample(op, dtype, a), sample(op, dtype, b, 1)], {})


def cases(op: Op) -> list[Case]:
    """Every case of a row."""
    families = {Elementwise: elementwise_cases, Reduction: reduction_cases, Scan: scan_cases, Creation: creation_cases,
                Composite: composite_cases, Library: library_cases, Gather: gather_cases, Scatter: scatter_cases}  # fmt: skip
    return list(families.get(type(op.lowering), movement_cases)(op))
