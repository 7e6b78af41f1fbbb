"""Reductions of random arrays have NumPy's bits: over dtypes, shapes, axes, strides, and arguments; many of them in one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import config

AT_ONCE = 30  # compiling takes longer than running
ROUNDS = 350
LIMITS = (0, 20_000, 150, 40, 12)  # of sizes, by rank
LARGEST = 60_000
ELIDED = 2**18  # bytes from which on NumPy writes over temporaries, wherever the other operand lies
DTYPES = ("float32", "float64", "complex64", "complex128", "float16", "int32", "uint8", "bool")
WEIGHTS = (0.3, 0.3, 0.1, 0.1, 0.1, 0.05, 0.03, 0.02)
ACCUMULATED = {"float32": "float64", "float16": "float32", "complex64": "complex128"}


@dataclass
class Case:
    text: str
    function: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        return f"{self.text} of " + ", ".join(f"{x.dtype}{x.shape} with strides {x.strides}" for x in self.arrays)


def some_shape(rng: np.random.Generator) -> tuple[int, ...]:
    rank = int(rng.integers(1, 5))
    if rank == 2 and rng.random() < 0.3:  # long in one direction
        return (int(rng.integers(1, 6)), int(rng.integers(1, 12_000)))[:: int(rng.choice([1, -1]))]
    return tuple(int(rng.integers(1, LIMITS[rank])) if rng.random() < 0.9 else 1 for _ in range(rank))


def some_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """In C or Fortran order, a part of a larger one, with steps, backwards, transposed, or broadcast."""
    whole = [d * int(rng.choice([1, 1, 2])) + int(rng.choice([0, 0, 3])) for d in shape]
    x = rng.standard_normal(whole)
    if dtype.startswith("c"):
        x = x + 1j * rng.standard_normal(whole)
    if not dtype.startswith(("c", "f")):
        x = np.abs(x * 50)
    x = np.asarray(x.astype(dtype), order=str(rng.choice(["C", "F"])))  # type: ignore[call-overload]
    x = x[tuple(some_part(rng, w, d) for w, d in zip(whole, shape))]
    if rng.random() < 0.3:
        x = x[tuple(slice(None, None, -1) if rng.random() < 0.4 else slice(None) for _ in shape)]
    if rng.random() < 0.5:
        x = x.transpose(rng.permutation(x.ndim))
    if rng.random() < 0.15:
        axis = int(rng.integers(x.ndim))
        x = np.broadcast_to(x[tuple(slice(0, 1) if k == axis else slice(None) for k in range(x.ndim))], x.shape)
    return x


def some_part(rng: np.random.Generator, whole: int, size: int) -> slice:
    if rng.random() < 0.6:
        return slice(0, size)
    return slice(0, 2 * size, 2) if whole >= 2 * size else slice(whole - size, whole)


def some_case(rng: np.random.Generator) -> Case:
    while True:
        dtype = str(rng.choice(DTYPES, p=WEIGHTS))
        x = some_array(rng, dtype, some_shape(rng))
        if x.size <= LARGEST:
            break
    axes = tuple(sorted(rng.choice(x.ndim, rng.integers(1, x.ndim + 1), replace=False).tolist()))
    options: dict[str, Any] = {"axis": None if len(axes) == x.ndim else axes}
    if rng.random() < 0.3:
        options["keepdims"] = True
    if dtype in ACCUMULATED and rng.random() < 0.3:
        options["dtype"] = ACCUMULATED[dtype]
    kinds = [k for k in KINDS if x.dtype.kind in "fc" or k not in ("sum", "fused")]
    return KINDS[str(rng.choice(kinds))](rng, x, options)


def method(name: str) -> Callable[..., Case]:
    def case(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
        if name in ("var", "std"):
            options = {**options, "ddof": int(rng.integers(0, 2)) if reduced(x, options) > 1 else 0}
            if x.dtype.kind == "c":
                options.pop("dtype", None)
        return Case(f"{name}({options})", lambda x: getattr(x, name)(**options), (x,))

    return case


def product(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    """Of halves near one, so that neither zero nor infinity comes of it."""
    halves = some_array(rng, "float16", x.shape)
    near = np.clip(halves, -2, 2, out=halves) if halves.flags.writeable else np.clip(halves, -2, 2)
    options = {k: v for k, v in options.items() if k == "keepdims" or near.shape == x.shape}
    options["dtype"] = "float16" if rng.random() < 0.5 else "float32"
    return Case(f"prod({options})", lambda x: (1 + x / 64).prod(**options), (near,))


def reduced(x: np.ndarray, options: dict[str, Any]) -> int:
    return int(np.prod([x.shape[k] for k in options["axis"] or range(x.ndim)]))


def of_float64(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    options = {**options, "dtype": "complex128" if x.dtype.kind == "c" else "float64"}
    return Case(f"sum({options})", lambda x: x.sum(**options), (x,))


def of_two(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    options.pop("dtype", None)
    if x.size * 16 > ELIDED:
        return fused(rng, x, options)
    y = some_array(rng, "float64", x.shape)
    if y.shape != x.shape:
        y = np.asfortranarray(rng.standard_normal(x.shape))
    return Case(f"two operands, sum({options})", lambda x, y: (x * 2 + y).sum(**options), (x, y))


def fused(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    options.pop("dtype", None)
    return Case(f"fused sum({options})", lambda x: (x * 2.5 - 1).sum(**options), (x,))


def with_nan(name: str) -> Callable[..., Case]:
    def case(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
        options.pop("dtype", None)
        x = x.real if x.dtype.kind == "c" else x if x.dtype.kind == "f" and x.itemsize > 2 else x.astype("float64")
        if reduced(x, options) < 20:
            return of_two(rng, x, options)
        missing = rng.random(x.shape) < 0.1
        return Case(f"{name}({options})", lambda x, m: getattr(np, name)(np.where(m, np.nan, x), **options), (x, missing))

    return case


def initial(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    options = {**options, "initial": 2.5, "dtype": "float64" if x.dtype.kind in "iub" else x.dtype}
    return Case(f"sum({options})", lambda x: x.sum(**options), (x,))


def some_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """In any memory order, with few or many runs; sometimes of less axes than the array."""
    mask = some_array(rng, "float64", shape) > rng.choice([-2, -1, 0, 1])
    if mask.shape != shape or rng.random() < 0.2:
        mask = rng.random(shape) < rng.choice([0.1, 0.5, 0.95, 1])
    return mask[tuple(slice(0, 1) for _ in shape[:1])] if rng.random() < 0.15 else mask


def where(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    mask = some_mask(rng, x.shape)
    if x.dtype.kind in "iub":
        options = {**options, "dtype": "float64"}
    if rng.random() < 0.3:
        options = {**options, "initial": 1}
    return Case(f"sum({options}, where)", lambda x, m: np.sum(x, **options, where=m), (x, mask))


def spread_where(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    mask = np.broadcast_to(some_mask(rng, x.shape), x.shape).copy()
    mask[(0,) * x.ndim] = True
    if x.dtype.kind == "c" or x.dtype == "float16" or not mask.any(axis=options["axis"]).all():
        return where(rng, x, options)
    name = str(rng.choice(["mean", "var", "std", "nanmean"]))
    return Case(f"{name}({options}, where)", lambda x, m: getattr(np, name)(x, **options, where=m), (x, mask))


def average(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    options.pop("dtype", None)
    if x.dtype.kind == "c":
        return method("mean")(rng, x, options)
    return Case(f"average({options})", lambda x, w: np.average(x, weights=w, **options), (x, rng.random(x.shape)))


def segments(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    if x.dtype.kind != "f":
        return of_float64(rng, x, options)
    axis = int(rng.integers(x.ndim))
    starts = sorted(rng.integers(0, x.shape[axis], 3).tolist())
    return Case(f"add.reduceat({starts}, {axis})", lambda x: np.add.reduceat(x, starts, axis=axis), (x,))


def running(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    axis = int(rng.integers(x.ndim))
    return Case(f"cumsum({axis})", lambda x: x.cumsum(axis=axis, dtype=options.get("dtype")), (x,))


def norm(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    """NumPy's own complex products depend on its SIMD path, and halves are not captured."""
    if x.dtype.kind == "c" or x.dtype == "float16":
        return method("mean")(rng, x, options)
    axis = None if rng.random() < 0.5 else int(rng.integers(x.ndim))
    return Case(f"norm({axis})", lambda x: np.linalg.norm(x, axis=axis), (x,))


def given_out(rng: np.random.Generator, x: np.ndarray, options: dict[str, Any]) -> Case:
    options.pop("dtype", None)
    dtype = x.dtype if x.dtype.kind in "fc" else np.dtype("float64")
    y = np.sum(x, **options, dtype=dtype)
    order = str(rng.choice(["C", "F"]))
    text = f"sum({options}, out={order})"
    return Case(text, lambda x: np.sum(x, **options, dtype=dtype, out=np.zeros(y.shape, dtype, order)), (x,))


KINDS: dict[str, Callable[..., Case]] = {
    "sum": method("sum"), "fused": fused, "mean": method("mean"), "var": method("var"), "std": method("std"),
    "sum of float64": of_float64, "two operands": of_two, "nansum": with_nan("nansum"), "nanmean": with_nan("nanmean"),
    "nanvar": with_nan("nanvar"), "initial": initial, "average": average, "reduceat": segments, "cumsum": running, "norm": norm,
    "product": product, "out": given_out, "where": where, "spread where": spread_where,
}  # fmt: skip


def bits(value: Any) -> tuple[np.dtype, tuple[int, ...], bytes]:
    array = np.asarray(value)
    return array.dtype, array.shape, array.tobytes()


def differing(seed: int) -> list[str]:
    """Of some random cases, those whose results differ from NumPy's."""
    rng = np.random.default_rng(seed)
    cases = [some_case(rng) for _ in range(AT_ONCE)]
    functions, counts = [c.function for c in cases], [len(c.arrays) for c in cases]

    def program(*arrays: np.ndarray) -> list[Any]:
        results, at = [], 0
        for f, count in zip(functions, counts):
            results.append(f(*arrays[at : at + count]))
            at += count
        return results

    arrays = [x for c in cases for x in c.arrays]
    with config.override(threads=1 + seed % 2):
        got = dg.compile(program, backend="c", fullgraph=True)(*arrays)
    return [f"seed {seed}: {c}" for c, g, want in zip(cases, got, program(*arrays)) if bits(g) != bits(want)]


@pytest.mark.parametrize("seed", range(2))
def test_some_random_reductions_are_numpys(seed: int) -> None:
    assert differing(seed) == []


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(10))
def test_random_reductions_are_numpys(part: int) -> None:
    rounds = ROUNDS // 10
    assert [text for seed in range(part * rounds, (part + 1) * rounds) for text in differing(1000 + seed)] == []
