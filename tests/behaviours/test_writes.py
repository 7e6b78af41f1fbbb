"""Writes into arrays: any program of views, writes and reads does compiled what it does plainly, in values, memory and identities."""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import os
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynagraph as dg

DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")
LAYOUTS = ("C", "C", "C", "F", "strided", "reversed", "fixed")
SHAPES = ((6,), (5,), (3, 4), (3, 4), (4, 4), (2, 3, 2), (1, 4), (3, 1), (0, 3), ())
NAMES = "abc"
_numbers = itertools.count()


# -- programs ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Base:
    """An argument, as it is made for each call."""

    shape: tuple[int, ...]
    dtype: str
    layout: str

    def make(self, seed: int, grown: int = 0) -> np.ndarray:
        shape = tuple(d + grown if d > 1 else d for d in self.shape)
        rng = np.random.default_rng(seed)
        values = rng.integers(0, 9, shape) - (0 if self.dtype in ("uint8", "bool") else 4)
        array = np.asarray(values / 2 if self.dtype.startswith("float") else values % 2 if self.dtype == "bool" else values)
        return laid_out(array.astype(self.dtype), self.layout)


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    if layout == "F":
        return np.array(array, order="F")
    if layout == "strided" and array.ndim:
        larger = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
        larger[..., 1::2] = array
        return larger[..., 1::2]
    if layout == "reversed" and array.ndim:
        return np.array(array[::-1])[::-1]
    array = np.array(array)
    array.flags.writeable = layout != "fixed"
    return array


@dataclass
class Case:
    """A function, and what it is called with."""

    bases: list[Base]
    lines: list[str] = field(default_factory=list)
    returned: str = ""
    together: str = "apart"  # how the arguments of the third call lie: apart, one array, or overlapping
    first: str = "apart"  # and of the first
    dynamic: bool = False

    @property
    def source(self) -> str:
        args = ", ".join(NAMES[: len(self.bases)])
        body = "\n".join("    " + line for line in self.lines)
        return f"def f({args}):\n    r = []\n{body}\n    return {self.returned}\n"

    def function(self) -> Callable[..., Any]:
        return compiled_source(self.source)

    def calls(self) -> list[list[np.ndarray]]:
        made = [self._arguments(1, self.first), self._arguments(2, self.first)]
        made.append(self._arguments(3, self.together))
        if self.dynamic:
            made.append([b.make(40 + k, 2) for k, b in enumerate(self.bases)])
        return made

    def _arguments(self, seed: int, together: str) -> list[np.ndarray]:
        given = [b.make(10 * seed + k) for k, b in enumerate(self.bases)]
        for k in range(1, len(given)):
            given[k] = joined(given[0], given[k], together)
        return given

    def __repr__(self) -> str:
        return f"{self.bases}, first {self.first}, then {self.together}, dynamic {self.dynamic}\n{self.source}"


def joined(first: np.ndarray, other: np.ndarray, together: str) -> np.ndarray:
    """What is given in the place of `other`."""
    alike = first.shape == other.shape and first.dtype == other.dtype and first.flags.writeable == other.flags.writeable
    if together == "same" and alike:
        return first
    if together == "view" and alike and first.ndim:
        return first[::-1]
    if together == "part" and first.flags.writeable == other.flags.writeable and first.dtype == other.dtype and first.ndim == other.ndim and first.ndim:
        return first[1:] if len(first) > 2 else first
    return other


def compiled_source(source: str) -> Callable[..., Any]:
    name = f"<writes {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict[str, Any] = {"np": np}
    exec(compile(source, name, "exec"), scope)  # noqa: S102
    return scope["f"]


class Writer:
    """Draws a program line by line, running each line plainly to know the shapes."""

    def __init__(self, draw: Callable[[Any], Any], bases: list[Base]):
        self.draw = draw
        self.scope: dict[str, Any] = {"np": np, "r": []}
        for k, base in enumerate(bases):
            self.scope[NAMES[k]] = base.make(10 + k)
        self.names = list(NAMES[: len(bases)])
        self.lines: list[str] = []

    def one_of(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def add(self, line: str, made: str | None = None) -> bool:
        """Keep a line that runs."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                exec(line, self.scope)  # noqa: S102
        except Exception:
            return False
        array = self.scope[made] if made is not None else None
        if isinstance(array, np.ndarray) and array.base is None and not array.flags.c_contiguous and made not in NAMES:
            return False  # where NumPy makes an array in another order, that of the compiled code is in C order
        self.lines.append(line)
        if isinstance(array, np.ndarray):
            self.names.append(made)
        return True

    def array(self) -> str:
        return self.one_of(reversed(self.names))

    def index(self, name: str, with_integers: bool = True) -> str:
        entries = []
        for dim in self.scope[name].shape:
            options = [":", "::-1", "::2", "1:", ":-1", "1:-1", "-2:", "::-2", ":2"]
            if with_integers and dim:
                options += ["0", "-1"]
            entries.append(self.one_of(options))
        n = self.draw(st.integers(0, len(entries)))
        entries = entries[:n]
        extra = self.draw(st.integers(0, 9))
        if extra == 0:
            entries.insert(self.draw(st.integers(0, n)), "None")
        elif extra == 1 or not entries:
            entries.append("...")
        return ", ".join(entries)

    def view(self) -> None:
        x, made = self.array(), f"v{len(self.lines)}"
        array = self.scope[x]
        kind = self.one_of(VIEWS)
        fields = {"x": x, "i": self.index(x), "axis": self.one_of(range(-array.ndim, array.ndim)) if array.ndim else 0}
        fields["perm"] = tuple(self.draw(st.permutations(range(array.ndim))))
        fields["shape"] = self.one_of(((-1,), array.shape[::-1], (array.size, 1), (2, -1), (*array.shape, 1)))
        fields["wide"] = (self.one_of((1, 2)), *array.shape)
        fields["y"] = self.array()
        self.add(f"{made} = {kind.format(**fields)}", made)

    def value(self, x: str) -> str:
        """Something to write into x."""
        y = self.array()
        kind = self.one_of(VALUES)
        return kind.format(x=x, y=y, i=self.index(y))

    def write(self) -> None:
        x = self.array()
        kind = self.one_of(WRITES)
        y = self.value(x)
        z = self.value(x)
        op = self.one_of(("+", "-", "*", "+", "/", "//", "|"))
        axis = self.one_of(range(self.scope[x].ndim + 1))
        self.add(kind.format(x=x, i=self.index(x), j=self.index(x), v=y, w=z, op=op, axis=axis, n=len(self.lines)))

    def read(self) -> None:
        self.add(self.one_of(READS).format(x=self.array(), y=self.array(), n=len(self.lines)))

    def body(self, n: int) -> None:
        for _ in range(n):
            self.one_of((self.view, self.view, self.write, self.write, self.write, self.read))()

    def result(self) -> str:
        names = [self.array() for _ in range(self.draw(st.integers(1, 3)))]
        return "r, " + ", ".join(names)


VIEWS = (
    "{x}[{i}]", "{x}[{i}]", "{x}[{i}]", "{x}[{i}]", "{x}.T", "{x}.reshape({shape})", "{x}.ravel()", "{x}.reshape({x}.shape)",
    "{x}[None]", "{x}[..., None]", "{x}.squeeze()", "np.swapaxes({x}, 0, -1)", "np.flip({x})", "np.flip({x}, {axis})",
    "np.broadcast_to({x}, {wide})", "np.asarray({x})", "{x}.transpose({perm})", "np.moveaxis({x}, 0, -1)", "np.expand_dims({x}, {axis})",
    "[row for row in {x}][-1]", "{x}.copy()", "{x} + {y}", "np.zeros_like({x})", "{x}.astype(float)", "np.array({x})",
    "np.atleast_2d({x})", "{x}.flatten()", "np.ascontiguousarray({x})", "np.reshape({x}, -1, order='F')", "np.fliplr({x})",
    "np.rot90({x})", "{x}.astype({x}.dtype, copy=False)", "np.where({x} > 1, {x}, {y})", "{x} * 1", "np.array_split({x}, 2)[1]",
    "np.concatenate([{x}, {x}])", "+{x}", "np.full({x}.shape, 2.0)", "{x}.T.copy()", "(lambda t: t)({x})", "np.tril({x})", "np.diagonal({x})", "np.diag({x})",
)  # fmt: skip
VALUES = (
    "2", "-1", "1.5", "True", "{y}", "{y}[{i}]", "{y}[{i}]", "{x}[::-1]", "{y} + 1", "{y}.sum()", "{y}.max(axis=0)", "{x} - {y}",
    "{x}.T", "{y}.mean()", "np.minimum({x}, {y})", "[1, 2, 3]", "np.float32(0.5)", "np.roll({x}, 1)", "{y}[{i}] * 2", "{y} > 0",
)  # fmt: skip
WRITES = (
    "{x}[{i}] = {v}", "{x}[{i}] = {v}", "{x}[{i}] = {v}", "{x}[:] = {v}", "{x}[...] = {v}", "{x}[{i}] {op}= {v}", "{x}[{i}] {op}= {v}",
    "{x} {op}= {v}", "{x} {op}= {v}", "np.add({x}, {v}, out={x})", "np.subtract({v}, {w}, out={x})", "np.multiply({v}, 2, {x})",
    "np.sum({v}, axis={axis}, out={x})", "np.add({x}, {v}, out={x}, where={w} > 0)", "{x}[{x} > 1] = {v}", "{x}[{w} > 0] = 3",
    "{x}[{x} > 0] {op}= 1", "np.copyto({x}, {v})", "np.copyto({x}, {v}, casting='unsafe')", "np.copyto({x}, {v}, where={w} > 0)",
    "{x}.fill(7)", "{x}[{i}], {x}[{j}] = {x}[{j}], {x}[{i}]", "np.maximum({v}, {w}, out={x}[{i}])", "np.negative({x}[{i}], out={x}[{j}])",
    "r.append(np.add({x}, 1, out={x}))", "{x}[{i}][{j}] = 4", "np.clip({v}, -1, 2, out={x})", "{x}.sum(axis={axis}, out={w})",
    "{x}.T[{j}] -= 1", "{x}.reshape(-1)[1:3] = 5", "{x}.ravel()[::2] += {v}", "np.dot({v}, {w}, out={x})",
    "for row{n} in {x}: row{n} += 1", "for k{n} in range(len({x}) - 1): {x}[k{n}] = {x}[k{n} + 1] + 1", "{x}[{i}] = {v} if {x}.ndim else {w}",
    "t{n} = {x}; t{n} += {v}", "r.append({x}); {x}[{i}] = {v}; r.append({x}.sum())", "q = [{x}, {x}[{i}]]; q[1] += 1; q[0][{j}] = q[1].max()",
    "d = dict(k={x}); d['k'] -= {v}; r.append(d)", "{x}[{i}] = {x}[{j}]", "{x}[{i}] = {x}[{j}] + {x}[{i}]", "{x}[...] = {x}.T", "np.divide({v}, 2, out={x})",
    "{x}[{i}] += {x}[{j}]", "for k{n} in range(3): {x}[{i}] += {x}[{j}] * 0.5", "np.add.reduce({v}, axis={axis}, out={x}[{i}])", "{x}[:1] = {v}; {x}[-1:] = {x}[:1]",
    "{x} @= {v}", "{x}[{i}] = r[-1]", "r[-1][{i}] = {v}", "r[-1] += 1", "np.greater({v}, {w}, out={x})", "np.rint({v}, out={x}[{i}])", "{x}[{i}].T[{j}] = 2",
    "{x}[{x}.ndim:] = {v}", "[t.fill({n}) for t in ({x}[{i}], {x}[{j}])]", "np.multiply({x}[{i}], {x}[{j}], out={x}[{j}])", "np.any({v}, axis={axis}, out={x})",
    "{x}.mean(axis={axis}, out={x}[{i}])", "{x}[{i}] = [1, {x}.max(), 2]", "{x}[{i}] = np.array(3)", "{x}[{x} == {x}.max()] = 0", "{x}[~({x} > 1)] *= 2",
    "np.fill_diagonal({x}, 1)", "{x}.flat[1] = 3", "{x}[[0]] = 4", "{x}.T[...] = {v}", "{x}[0], {x}[-1] = {x}[-1], {x}[0]", "{x}[0] = {x}[-1]",
    "np.where({v}, {w}, 0).clip(0, 1, out={x})", "(lambda t: t.fill(3))({x}[{i}])", "np.logical_and({v}, {w}, out={x})",
    "{x}.itemset(1)", "np.put({x}, 0, 1)", "{x}.sort()", "np.abs({x}, {x})", "np.sqrt(np.abs({v}), out={x})", "{x}.clip(0, 2, out={x})",
)  # fmt: skip
READS = (
    "r.append({x})", "r.append({x}.sum())", "r.append({x} + 1)", "r.append({x}.copy())", "r.append({x} is {y})", "r.append({x}.max(axis=0))",
    "r.append(({x}, {y}))", "r.append({x}[-1])", "r.append({x}.shape)", "print({x}.sum().round(3) + 0, {y}.shape)", "r.append(float({x}.sum()))", "r.append(np.dot({x}, {y}))",
    "r.append([v for v in {x}])", "r.append({x} == {y})", "r.append(lambda q={x}: q.sum())", "r.append({x}.max() > {y}.max())",
    "r.append({{'x': {x}[...], 'y': ({x}, {x}[None])}})", "r.append([{x}] * 2)", "r.append(sum(w.sum() for w in {x}))", "r.append({x}.ravel())", "r.append(np.shares_memory({x}, {y}))", "r.append({x}.flags.writeable)",
    "r.append(1 if {x}.any() else 0)", "r.append({x}.tolist())",
    "try:\n        {x}[{x}.shape[0]] = 1\n    except IndexError:\n        r.append({x}.sum())",
)  # fmt: skip


@st.composite
def cases(draw: Any, most: int = 8) -> Case:
    bases: list[Base] = []
    for k in range(draw(st.integers(1, 3))):
        if k and draw(st.booleans()):
            bases.append(Base(bases[0].shape, bases[0].dtype, draw(st.sampled_from(LAYOUTS))))
            continue
        bases.append(Base(draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES)), draw(st.sampled_from(LAYOUTS))))
    writer = Writer(draw, bases)
    writer.body(draw(st.integers(1, most)))
    arrangements = st.sampled_from(["apart", "same", "view", "part"])
    first = draw(arrangements) if draw(st.integers(0, 3)) == 0 else "apart"
    return Case(bases, writer.lines, writer.result(), draw(arrangements), first, draw(st.integers(0, 3)) == 0)


# -- comparison --------------------------------------------------------------------------------------------------------------------


def outcome(function: Callable[..., Any], args: list[np.ndarray]) -> tuple[Any, str | None]:
    """What a call gives, with what it prints; and its error."""
    printed = io.StringIO()
    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        try:
            return [function(*args), printed.getvalue()], None
        except Exception as error:
            return [printed.getvalue()], f"{type(error).__name__}: {error}"


def leaves(value: Any) -> list[Any]:
    """What a result holds, in order."""
    if isinstance(value, dict):
        return [*value, *itertools.chain.from_iterable(map(leaves, value.values()))]
    if isinstance(value, types.FunctionType):
        return leaves(value())
    if isinstance(value, (tuple, list)):
        return [type(value), len(value), *itertools.chain.from_iterable(map(leaves, value))]
    return [value]


def assert_alike(expected: Any, got: Any, where: str) -> None:
    assert type(got) is type(expected), f"{where}: {type(got)} instead of {type(expected)}"
    if isinstance(expected, (np.ndarray, np.generic)):
        assert got.dtype == expected.dtype and got.shape == expected.shape, f"{where}: {got.dtype}{got.shape}, {expected.dtype}{expected.shape}"
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=where)
        if isinstance(expected, np.ndarray):
            assert got.flags.writeable == expected.flags.writeable, f"{where}: writeable"
    elif isinstance(expected, float):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=where)
    else:
        assert got == expected, f"{where}: {got!r} instead of {expected!r}"


def memory(values: list[Any]) -> list[tuple[int, int, str]]:
    """Which of the values are one object, or share memory."""
    arrays = [(k, v) for k, v in enumerate(values) if isinstance(v, np.ndarray)]
    found = []
    for (k, a), (n, b) in itertools.combinations(arrays, 2):
        if a is b:
            found.append((k, n, "is"))
        elif a.size and b.size and np.shares_memory(a, b):
            found.append((k, n, f"shares from {relative(a, b)}"))
    return found


def relative(a: np.ndarray, b: np.ndarray) -> tuple:
    """Where one lies in the other."""
    steps = [tuple(s for s, d in zip(x.strides, x.shape) if d > 1) for x in (a, b)]
    return b.__array_interface__["data"][0] - a.__array_interface__["data"][0], *steps


def check(case: Case, backend: str) -> None:
    plain, function = case.function(), case.function()
    compiled = dg.compile(function, backend=backend, dynamic=True if case.dynamic else None)
    with dg.config.override(strict=True):
        for number, (theirs, ours) in enumerate(zip(case.calls(), case.calls()), 1):
            expected, error = outcome(plain, theirs)
            got, our_error = outcome(compiled, ours)
            assert our_error == error, f"call {number}"
            expected, got = [*theirs, *leaves(expected)], [*ours, *leaves(got)]
            assert len(got) == len(expected), f"call {number}"
            for k, (e, g) in enumerate(zip(expected, got)):
                assert_alike(e, g, f"call {number}, {'argument' if k < len(theirs) else 'result'} {k}")
            assert memory(got) == memory(expected), f"call {number}: memory"
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


def many(backend: str, usual: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As many examples as there is time for."""
    n = int(os.environ.get("DYNAGRAPH_WRITES", usual))
    ignored = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=n, deadline=None, derandomize=n == usual, suppress_health_check=ignored)


@many("reference", 200)
@given(cases())
def test_programs_by_the_reference(case: Case) -> None:
    check(case, "reference")


@many("cpu", 40)
@given(cases())
def test_programs_by_the_compiler(case: Case) -> None:
    check(case, "cpu")
