"""Every row of the op table that NumPy has too, compiled against NumPy itself, on one thread.

    python benchmarks/op_rows.py [--quick] [--only TEXT] [--sizes 16,1000,1000000] [--json out.json] [--below 0.95]

A row is one expression on one kind of arrays.  Both sides run in turn, round after round, in the processor time of their thread,
and results are dropped at once, so that each side reuses its memory.  A figure is how many times as fast as NumPy the program is,
by the least time of either side, and by their medians; what is clearly faster gets few rounds, what seems slower three times as
many.  What is slower is then measured as users have it, where calls go the faster way: "as used".  A figure fails where that,
too, is below the bar.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dynagraph as dg
import dynagraph.ir.optable  # fills OPS
from dynagraph.errors import DTypeError
from dynagraph.ir.dtypes import from_numpy
from dynagraph.ir.graph import Meta
from dynagraph.ir.ops import OPS, Elementwise, Op, Reduction, Scan

DTYPES = ("float32", "float64", "int64", "bool", "complex128")
SHAPES = {16: (4, 4), 1000: (25, 40), 1_000_000: (1000, 1000)}
BAR = 0.95
SAMPLE_SECONDS = 4e-4  # of one timing
CLEAR, CLEAR_ROUNDS = 1.3, 4  # what is so much above the bar after so many rounds is not in doubt
WARM_UP = 2
CHOOSING = 200, 12, 0.05  # calls after which the faster way is chosen, however close they are: all, or some that take so long
AXES = ("", "axis=0", "axis=1")

# rows whose NumPy spelling is not the ufunc of their name; x, y: arrays of the dtype, c: of bools, k: places
SPELLED: dict[str, tuple[str, ...]] = {
    "power_int": ("np.power(x, y)",),
    "frexp_mantissa": ("np.frexp(x)",),
    "complex": ("x + 1j * y",),
    "real": ("np.real(x).copy()",),
    "imag": ("np.imag(x).copy()",),
    "where": ("np.where(c, x, y)",),
    "cast": tuple(
        f"x.astype(np.{t})" for t in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool_", "complex128")
    ),
    "all_bits": tuple(f"np.bitwise_and.reduce(x, {a or 'axis=None'})" for a in AXES),
    "any_bits": tuple(f"np.bitwise_or.reduce(x, {a or 'axis=None'})" for a in AXES),
    "odd_bits": tuple(f"np.bitwise_xor.reduce(x, {a or 'axis=None'})" for a in AXES),
    "full": ("np.full(x.shape, 1.5)", "np.zeros(x.shape)"),
    "iota": ("np.arange(x.size)",),
    "eye": ("np.eye(x.shape[0])",),
    "linspace": ("np.linspace(0.0, 1.0, x.size)",),
    "reshape": ("x.reshape(-1)",),
    "transpose": ("x.T.copy()", "x.T"),
    "broadcast_to": ("np.broadcast_to(x[0], x.shape).copy()",),
    "slice": ("x[::2].copy()", "x[:, ::2].copy()", "x[::-1, ::-1].copy()", "x[1:-1, 1:-1]"),
    "diagonal": ("np.diagonal(x).copy()",),
    "concatenate": ("np.concatenate([x, y])", "np.concatenate([x, y], axis=1)", "np.stack([x, y], axis=-1)"),
    "pad": ("np.pad(x, 1)",),
    "roll": ("np.roll(x, 1, axis=0)", "np.roll(x, 1, axis=1)"),
    "repeat": ("np.repeat(x, 2, axis=0)", "np.repeat(x, 2, axis=1)"),
    "tile": ("np.tile(x, (2, 2))",),
    "copy": ("x.copy()",),
    "gather": ("x.reshape(-1)[k]", "np.take(x, k)"),
    "scatter": ("np.put(x, k, y)",),
    "matmul": ("x @ y",),
    "external_call": ("np.sort(x)", "np.argsort(x)"),
}
# what people write that is made of several rows, or of one in another way
COMMON: dict[str, tuple[str, ...]] = {
    "clip": ("np.clip(x, 0, 1)", "x.clip(-1, 1)"),
    "powers": ("x ** 2", "x ** 3", "x ** 0.5", "abs(x) ** 2.4", "2.0 ** x"),
    "decibels": ("10 * np.log10(np.maximum(1e-10, abs(x)))",),
    "scalars": ("x + 1", "x * 2", "x / 2", "x // 2", "x % 3", "x == 1", "1 - x", "x > 0"),
    "tests": ("np.isclose(x, y)", "np.allclose(x, y)", "np.nan_to_num(x)", "np.array_equal(x, y)"),
    "counts": ("np.count_nonzero(x)", "np.count_nonzero(x, axis=1)", "np.ptp(x)", "np.median(x)"),
    "rounded": ("np.round(x)", "np.round(x, 2)"),
    "nan-kin": ("np.nansum(x)", "np.nanmax(x)", "np.nanmean(x)", "np.nanargmax(x)"),
    "differences": ("np.diff(x)", "np.gradient(x, axis=1)", "np.convolve(x[0], y[0])"),
    "argmax-kin": ("np.argmax(abs(x))", "np.argmax(x + y, axis=0)"),
}
ONE_DTYPE = {"full", "iota", "eye", "linspace"}
NOT_MEASURED = {"erf", "constant", "block_reduce", "windows", "variable", "stop_gradient", "optimization_barrier", "frexp_exponent",
                "update_slice", "complex_accumulate"}  # fmt: skip


@dataclass(frozen=True)
class Row:
    name: str
    text: str
    dtype: str
    domain: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.text:40} {self.dtype:10}"


@dataclass
class Figure:
    row: Row
    size: int
    least: float  # NumPy's least time by ours
    median: float
    ours: float  # seconds
    numpy: float
    used: float | None = None  # NumPy's least time by that of calls that go the faster way, where the program is slower

    @property
    def worth(self) -> float:
        """What users get: the faster way is theirs."""
        return max(self.least, self.used or 0.0)

    def __str__(self) -> str:
        times = f"{1e6 * self.ours:10.2f} µs  {1e6 * self.numpy:10.2f} µs"
        used = "" if self.used is None else f"  as used {self.used:5.2f}"
        return f"{self.row} {self.size:8}  {self.least:6.2f}  {self.median:6.2f}  {times}{used}"


def rows() -> Iterator[Row]:
    for op in OPS.values():
        if op.name not in NOT_MEASURED:
            for text in _spellings(op):
                for dtype in ("float64",) if op.name in ONE_DTYPE else DTYPES:
                    if dtype == "complex128" and op.name == "cast" and "complex" not in text and "bool" not in text:
                        continue  # NumPy warns
                    if (op.name in SPELLED and not isinstance(op.lowering, Elementwise)) or _takes(op, dtype):
                        yield Row(op.name, text, dtype, op.domain)
    for name, texts in COMMON.items():
        for text in texts:
            for dtype in DTYPES:
                yield Row(name, text, dtype, (-3.0, 3.0) if name != "powers" else (0.1, 3.0))


def _spellings(op: Op) -> tuple[str, ...]:
    if op.name in SPELLED:
        return SPELLED[op.name]
    if isinstance(op.lowering, Scan):
        if op.name in ("cumsum", "cumprod"):
            return tuple(f"np.{op.name}(x, axis={axis})" for axis in (None, 0, 1))
        return tuple(f"np.{_numpy_name(op.name.removesuffix('_accumulate'))}.accumulate(x, axis={axis})" for axis in (0, 1))
    if isinstance(op.lowering, Reduction) or op.name in ("mean", "var", "std"):
        return tuple(f"np.{op.name}({', '.join(filter(None, ('x', axis)))})" for axis in AXES)
    ufunc = getattr(np, op.name)
    return (f"np.{op.name}({', '.join('xy'[: ufunc.nin])})",)


def _numpy_name(name: str) -> str:
    return {"power_int": "power"}.get(name, name)


def _takes(op: Op, dtype: str) -> bool:
    """Whether the row takes arrays of the dtype as they are."""
    known = from_numpy(np.dtype(dtype))
    assert known is not None
    metas = tuple(Meta(known, (2, 2)) for _ in range(op.arity or 1))
    if op.name == "where":
        return True
    if op.name == "ldexp":
        return False
    try:
        op.dtype(metas, {**op.attrs, "dtype": known, "axis": (0,)})
    except DTypeError:
        return False
    return True


def operands(row: Row, size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    shape, (low, high) = SHAPES[size], row.domain

    def sample() -> np.ndarray:
        if row.dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if row.dtype.startswith("int"):
            return rng.integers(int(low), int(high) + 1, shape).astype(row.dtype)
        real = rng.uniform(low, high, shape)
        return (real + 1j * rng.uniform(low, high, shape) if row.dtype == "complex128" else real).astype(row.dtype)

    x, y = sample(), sample()
    if row.text == "x @ y":
        y = np.ascontiguousarray(y.T)
    if row.dtype == "int64" and any(word in row.text for word in ("divide", "remainder", "mod", "//", "/")):
        y[y == 0] = 1  # NumPy warns
    return {"x": x, "y": y, "c": rng.integers(0, 2, shape).astype(bool), "k": rng.integers(0, size, size)}


def function_of(text: str) -> tuple[Callable[..., Any], list[str]]:
    """The row as a function of the operands that it names."""
    code = compile(text, f"<{text}>", "eval")
    names = [name for name in "xyck" if name in code.co_names]
    return eval(f"lambda {', '.join(names)}: {text}", {"np": np}), names


def measure(row: Row, size: int, rounds: int, bar: float) -> Figure | None:
    """None where NumPy refuses the dtype."""
    plain, names = function_of(row.text)
    given = operands(row, size)
    arguments = [given[name] for name in names]
    try:
        plain(*arguments)
    except TypeError:
        return None
    figure = compare(row, size, plain, compiled(row, arguments, WARM_UP), arguments, rounds, bar)
    if figure.least < bar:
        dg.config.stay_eager = True
        chosen = compiled(row, arguments, *CHOOSING)
        dg.config.stay_eager = False
        figure.used = compare(row, size, plain, chosen, arguments, rounds, bar).least
    return figure


def compiled(row: Row, arguments: list[Any], calls: int, least: int = 0, seconds: float = math.inf) -> Callable[..., Any]:
    """Called so often, or less where `least` calls or more take so long."""
    f = dg.compile(function_of(row.text)[0])
    f(*arguments)
    end = time.thread_time() + seconds
    for k in range(1, calls):
        f(*arguments)
        if k >= least and time.thread_time() > end:
            break
    return f


def compare(
    row: Row, size: int, plain: Callable[..., Any], ours: Callable[..., Any], arguments: list[Any], rounds: int, bar: float
) -> Figure:
    times: dict[Callable[..., Any], list[float]] = {plain: [], ours: []}
    start = time.thread_time()
    plain(*arguments)
    calls = max(1, int(SAMPLE_SECONDS / (time.thread_time() - start)))
    figure = None
    for k in range(3 * rounds):
        for f in (plain, ours) if k % 2 else (ours, plain):
            start = time.thread_time()
            for _ in range(calls):
                f(*arguments)
            times[f].append((time.thread_time() - start) / calls)
        if k + 1 in (CLEAR_ROUNDS, rounds, 3 * rounds):
            least, median = ({f: of(taken) for f, taken in times.items()} for of in (min, statistics.median))
            figure = Figure(row, size, least[plain] / least[ours], median[plain] / median[ours], least[ours], least[plain])
            if figure.least > (bar if k + 1 >= rounds else CLEAR * bar):
                break
    assert figure is not None
    return figure


def summarize(figures: list[Figure], bar: float) -> int:
    """Prints what is slow, and says how many figures fail."""
    programs = sorted((f for f in figures if f.least < bar), key=lambda f: f.least)
    slow = sorted((f for f in programs if f.worth < bar), key=lambda f: f.worth)
    served = [f for f in programs if f.worth >= bar]
    for title, found in (("programs are slower, calls are not", served), ("calls are slower", slow)):
        print(f"\n{len(found)} of {len(figures)} figures are below {bar} of NumPy's speed: {title}")
        for figure in found:
            print(figure)
    for size in sorted({f.size for f in figures}):
        of_size = [f for f in figures if f.size == size]
        mean, used = (statistics.geometric_mean([value(f) for f in of_size]) for value in (lambda f: f.least, lambda f: f.worth))
        failed = sum(f.worth < bar for f in of_size)
        print(f"{size:8} elements: {len(of_size)} figures, geometric mean {mean:.2f} (as used {used:.2f}), {failed} below {bar}")
    return len(slow)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default="", help="rows whose expression or name holds this; several by |")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--sizes", default=",".join(map(str, SHAPES)))
    parser.add_argument("--below", type=float, default=BAR)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--all", action="store_true", help="print every row")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    dg.config.threads = 1
    dg.config.compile_budget = None  # it is programs that are measured, whatever they cost
    dg.config.stay_eager = False  # the kernels are what is measured
    gc.disable()
    rounds = 10 if arguments.quick else 30
    wanted, figures = arguments.only.split("|"), []
    sizes = [int(size) for size in arguments.sizes.split(",")]
    for row in rows():
        if row.dtype not in arguments.dtypes.split(",") or not any(w in row.text or w == row.name for w in wanted):
            continue
        for size in sizes:
            figure = measure(row, size, rounds, arguments.below)
            if figure is None:
                break
            figures.append(figure)
            if arguments.all or figure.least < arguments.below:
                print(figure, flush=True)
    slow = summarize(figures, arguments.below)
    if arguments.json:
        arguments.json.write_text(json.dumps([{**vars(f), "row": vars(f.row)} for f in figures], indent=1))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
