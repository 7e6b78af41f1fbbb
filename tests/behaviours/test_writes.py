"""Writes into arrays: what programs of views, writes and reads do compiled is what they do plainly, in values and memory."""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
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
from tests import sampling

from .harness import Outcome, assert_same, observe

DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool", "int16", "uint64")
LAYOUTS = ("C", "C", "C", "F", "strided", "reversed", "fixed")
SHAPES = ((6,), (5,), (3, 4), (3, 4), (4, 4), (2, 3, 2), (1, 4), (3, 1), (0, 3), ())
NAMES = "abc"
_numbers = itertools.count()


# -- programs --------------------------------------------------------------------------------------------------------------------


@dataclass
class Base:
    """An argument, as it is made for each call."""

    shape: tuple[int, ...]
    dtype: str
    layout: str

    def make(self, seed: int, grown: int = 0) -> np.ndarray:
        shape = tuple(d + grown if d > 1 else d for d in self.shape)
        rng = np.random.default_rng(seed)
        values = rng.integers(0, 9, shape) - (0 if self.dtype in ("uint8", "uint64", "bool") else 4)
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
    described = [(x.flags.writeable, x.dtype, x.ndim) for x in (first, other)]
    if together == "part" and described[0] == described[1] and first.ndim:
        return first[1:] if len(first) > 2 else first
    return other


def compiled_source(source: str) -> Callable[..., Any]:
    name = f"<writes {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict[str, Any] = {"np": np}
    exec(compile(source, name, "exec"), scope)
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
                exec(line, self.scope)
        except Exception:
            return False
        array = self.scope[made] if made is not None else None
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
    "np.broadcast_to({x}, {wide})", "np.asarray({x})", "{x}.transpose({perm})", "np.moveaxis({x}, 0, -1)",
    "np.expand_dims({x}, {axis})", "[row for row in {x}][-1]", "{x}.copy()", "{x} + {y}", "np.zeros_like({x})",
    "{x}.astype(float)", "np.array({x})", "np.atleast_2d({x})", "{x}.flatten()", "np.ascontiguousarray({x})",
    "np.reshape({x}, -1, order='F')", "np.fliplr({x})", "np.rot90({x})", "{x}.astype({x}.dtype, copy=False)",
    "np.where({x} > 1, {x}, {y})", "{x} * 1", "np.array_split({x}, 2)[1]", "np.concatenate([{x}, {x}])", "+{x}",
    "np.full({x}.shape, 2.0)", "{x}.T.copy()", "(lambda t: t)({x})", "np.tril({x})", "np.diagonal({x})", "np.diag({x})",
    "{x}.T + {y}", "{x}.T * 2", "np.copy({x}.T)", "{x}.ravel('F')", "{x}.copy('F')", "{x}.reshape({shape}, order='F')",
    "np.asfortranarray({x})", "np.array({x}, order='F')", "np.stack([{x}, {x}.T], 1)", "{x}.cumsum(axis={axis})",
    "{x}.sum(axis={axis}, keepdims=True)", "{x}[[0, -1]]", "{x}[:, [0, 0, 1]]", "{x}.ravel('K')", "np.zeros_like({x}.T)",
    "np.where({x}.T > 1, {y}, {x})", "({x}.T * 2).reshape(-1)", "{x}.astype('f4', order='F')", "np.broadcast_to({x}, {wide}) * 1",
    "({x}.T + 1).T", "{x} @ {y}",
)  # fmt: skip
VALUES = (
    "2", "-1", "1.5", "True", "{y}", "{y}[{i}]", "{y}[{i}]", "{x}[::-1]", "{y} + 1", "{y}.sum()", "{y}.max(axis=0)",
    "{x} - {y}", "{x}.T", "{y}.mean()", "np.minimum({x}, {y})", "[1, 2, 3]", "np.float32(0.5)", "np.roll({x}, 1)",
    "{y}[{i}] * 2", "{y} > 0",
)  # fmt: skip
WRITES = (
    "{x}[{i}] = {v}", "{x}[{i}] = {v}", "{x}[{i}] = {v}", "{x}[:] = {v}", "{x}[...] = {v}", "{x}[{i}] {op}= {v}",
    "{x}[{i}] {op}= {v}", "{x} {op}= {v}", "{x} {op}= {v}", "np.add({x}, {v}, out={x})", "np.subtract({v}, {w}, out={x})",
    "np.multiply({v}, 2, {x})", "np.sum({v}, axis={axis}, out={x})", "np.add({x}, {v}, out={x}, where={w} > 0)",
    "{x}[{x} > 1] = {v}", "{x}[{w} > 0] = 3", "{x}[{x} > 0] {op}= 1", "np.copyto({x}, {v})",
    "np.copyto({x}, {v}, casting='unsafe')", "np.copyto({x}, {v}, where={w} > 0)", "{x}.fill(7)",
    "{x}[{i}], {x}[{j}] = {x}[{j}], {x}[{i}]", "np.maximum({v}, {w}, out={x}[{i}])", "np.negative({x}[{i}], out={x}[{j}])",
    "r.append(np.add({x}, 1, out={x}))", "{x}[{i}][{j}] = 4", "np.clip({v}, -1, 2, out={x})", "{x}.sum(axis={axis}, out={w})",
    "{x}.T[{j}] -= 1", "{x}.reshape(-1)[1:3] = 5", "{x}.ravel()[::2] += {v}", "np.dot({v}, {w}, out={x})",
    "for row{n} in {x}: row{n} += 1", "for k{n} in range(len({x}) - 1): {x}[k{n}] = {x}[k{n} + 1] + 1",
    "{x}[{i}] = {v} if {x}.ndim else {w}", "t{n} = {x}; t{n} += {v}", "r.append({x}); {x}[{i}] = {v}; r.append({x}.sum())",
    "q = [{x}, {x}[{i}]]; q[1] += 1; q[0][{j}] = q[1].max()", "d = dict(k={x}); d['k'] -= {v}; r.append(d)",
    "{x}[{i}] = {x}[{j}]", "{x}[{i}] = {x}[{j}] + {x}[{i}]", "{x}[...] = {x}.T", "np.divide({v}, 2, out={x})",
    "{x}[{i}] += {x}[{j}]", "for k{n} in range(3): {x}[{i}] += {x}[{j}] * 0.5", "np.add.reduce({v}, axis={axis}, out={x}[{i}])",
    "{x}[:1] = {v}; {x}[-1:] = {x}[:1]", "{x} @= {v}", "{x}[{i}] = r[-1]", "r[-1][{i}] = {v}", "r[-1] += 1",
    "np.greater({v}, {w}, out={x})", "np.rint({v}, out={x}[{i}])", "{x}[{i}].T[{j}] = 2", "{x}[{x}.ndim:] = {v}",
    "[t.fill({n}) for t in ({x}[{i}], {x}[{j}])]", "np.multiply({x}[{i}], {x}[{j}], out={x}[{j}])",
    "np.any({v}, axis={axis}, out={x})", "{x}.mean(axis={axis}, out={x}[{i}])", "{x}[{i}] = [1, {x}.max(), 2]",
    "{x}[{i}] = np.array(3)", "{x}[{x} == {x}.max()] = 0", "{x}[~({x} > 1)] *= 2", "np.fill_diagonal({x}, 1)",
    "{x}.flat[1] = 3", "{x}[[0]] = 4", "{x}.T[...] = {v}", "{x}[0], {x}[-1] = {x}[-1], {x}[0]", "{x}[0] = {x}[-1]",
    "np.where({v}, {w}, 0).clip(0, 1, out={x})", "(lambda t: t.fill(3))({x}[{i}])", "np.logical_and({v}, {w}, out={x})",
    "{x}.itemset(1)", "np.put({x}, 0, 1)", "{x}.sort()", "np.abs({x}, {x})", "np.sqrt(np.abs({v}), out={x})",
    "{x}.clip(0, 2, out={x})",
)  # fmt: skip
READS = (
    "r.append({x})", "r.append({x}.sum())", "r.append({x} + 1)", "r.append({x}.copy())", "r.append({x} is {y})",
    "r.append({x}.max(axis=0))", "r.append(({x}, {y}))", "r.append({x}[-1])", "r.append({x}.shape)",
    "print({x}.sum().round(3) + 0, {y}.shape)", "r.append(float({x}.sum()))", "r.append(np.dot({x}, {y}))",
    "r.append([v for v in {x}])", "r.append({x} == {y})", "r.append(lambda q={x}: q.sum())", "r.append({x}.max() > {y}.max())",
    "r.append({{'x': {x}[...], 'y': ({x}, {x}[None])}})", "r.append([{x}] * 2)", "r.append(sum(w.sum() for w in {x}))",
    "r.append({x}.ravel())", "r.append(np.shares_memory({x}, {y}))", "r.append({x}.flags.writeable)",
    "r.append(1 if {x}.any() else 0)", "r.append({x}.tolist())",
    "r.append(({x}.flags.c_contiguous, {x}.flags['F'], {x}.flags.fnc))", "r.append({x}.strides if {x}.ndim < 3 else 0)",
    "r.append(np.shares_memory({x}.reshape(-1), {x}))",
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


# -- comparison ------------------------------------------------------------------------------------------------------------------


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
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), where
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=where)
        if isinstance(expected, np.ndarray):
            assert got.flags.writeable == expected.flags.writeable, f"{where}: writeable"
            assert layout(got) == layout(expected), f"{where}: strides"
    elif isinstance(expected, float):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=where)
    else:
        assert got == expected, f"{where}: {got!r} instead of {expected!r}"


def layout(array: np.ndarray) -> tuple[int, ...]:
    """The strides that mean something."""
    return tuple(s for s, d in zip(array.strides, array.shape) if d > 1) if array.size else ()


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
    return b.__array_interface__["data"][0] - a.__array_interface__["data"][0], layout(a), layout(b)


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


FEW = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=sampling.programs, derandomize=False)


@settings(FEW, max_examples=sampling.examples(200))
@given(cases())
def test_programs_by_the_reference(case: Case) -> None:
    check(case, "reference")


@settings(FEW, max_examples=sampling.examples(40, 2))
@given(cases())
def test_programs_by_the_compiler(case: Case) -> None:
    check(case, "cpu")


@pytest.mark.fuzz
@MANY
@given(cases(), st.sampled_from(["reference"] * 9 + ["cpu"]))
def test_many_programs(case: Case, backend: str) -> None:
    check(case, backend)


WRITTEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda x: x[:3, :4].copy(), "strided": lambda x: x[:3, ::2], "rows apart": lambda x: x[::2, :4],
    "transposed": lambda x: x[:4, :3].T, "reversed": lambda x: x[2::-1, 4:], "F": lambda x: np.asfortranarray(x[:3, :4]),
}  # fmt: skip


@pytest.mark.parametrize("layout", WRITTEN)
def test_what_numpy_copies_of_written_arrays_lies_as_its_copies(layout: str) -> None:
    def f(b: np.ndarray) -> list[np.ndarray]:
        b[0, 0] = 7
        made = [
            b.reshape((4, 3), order="F"), b.reshape((4, 3), order="A"), b.reshape(2, 6), b.T.reshape(2, 6), b.reshape(2, 2, 3).T,
            b.reshape((2, 6), order="F")[::-1], b.ravel("F"), np.broadcast_to(b.T.reshape(2, 6)[:, None], (2, 3, 6)), b.T.ravel(),
        ]  # fmt: skip
        made[0][0, 0] = 3
        made[5] += 1
        return made

    compiled = dg.compile(f, backend="reference", fullgraph=True)
    for _ in range(2):
        theirs, ours = (WRITTEN[layout](np.arange(48.0).reshape(6, 8)) for _ in range(2))
        expected, got = [theirs, *f(theirs)], [ours, *compiled(ours)]
        for k, (e, g) in enumerate(zip(expected, got)):
            assert_alike(e, g, f"result {k}")
        assert memory(got) == memory(expected)


# -- aliases, containers, breaks, errors: row by row -----------------------------------------------------------------------------


def five() -> np.ndarray:
    return np.arange(5.0)


def rows_of(*functions: Callable[..., Any]) -> Any:
    return pytest.mark.parametrize("function", functions, ids=lambda f: f.__name__)


def same_calls(function: Callable[..., Any], makers: list[Callable[[], tuple[Any, ...]]], backend: str = "reference") -> Any:
    """Compare calls with these arguments, one after the other."""
    compiled = dg.compile(function, backend=backend)
    with dg.config.override(strict=True):
        for number, maker in enumerate(makers, 1):
            theirs, ours = observe(function, maker(), {}, ""), observe(compiled, maker(), {}, "")
            assert_same(theirs, ours, f"call {number}")
            held = [list(arrays_in((o.arguments, o.result))) for o in (theirs, ours)]
            assert memory(held[1]) == memory(held[0]), f"call {number}: memory"
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    return compiled


def arrays_in(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))
    elif hasattr(value, "__dict__") and not callable(value):
        yield from arrays_in(vars(value))


def apart() -> tuple[Any, ...]:
    return five(), five() + 10


def one() -> tuple[Any, ...]:
    a = five()
    return a, a


def views() -> tuple[Any, ...]:
    a = np.arange(8.0)
    return a[:5], a[2:7]


def interleaved() -> tuple[Any, ...]:
    a = np.arange(10.0)
    return a[::2], a[1::2]


def backwards() -> tuple[Any, ...]:
    a = five()
    return a, a[::-1]


def neighbours() -> tuple[Any, ...]:
    a = np.arange(10.0)
    return a[:5], a[5:]


LYING = (apart, one, views, interleaved, backwards, neighbours)


def writes_the_first(a, b):
    a[1:] = b[:-1] + 1
    return a.sum() + b.sum()


def writes_the_second(a, b):
    b += a[::-1]
    return a * 2


def writes_both(a, b):
    a -= b
    b[...] = a * 2
    a[0] = b[-1]
    return a, b


def writes_and_returns_views(a, b):
    np.add(a, b, out=a)
    return a[1:], b[:2], a is b


def writes_what_it_has_read(a, b):
    old = b * 2
    a[:] = 0
    return old + b, a


def swaps(a, b):
    a[:], b[:] = b, a
    return a


def stores_in_turns(a, b):
    for k in range(4):
        a[k] = b[k + 1]
        b[k] = a[k + 1] + 1
    return b.max()


@rows_of(
    writes_the_first, writes_the_second, writes_both, writes_and_returns_views, writes_what_it_has_read, swaps, stores_in_turns
)
@pytest.mark.parametrize("first", LYING, ids=lambda m: m.__name__)
def test_arguments_that_share_memory_or_do_not(function: Callable[..., Any], first: Callable[[], Any]) -> None:
    same_calls(function, [first, *LYING, first])


def in_a_list(p):
    p[0] += 1
    p[1][...] = p[0]
    p[0] = p[0] * 2
    p[0] += 1


def in_a_dict(p):
    d = {"x": p[0], "y": p[1]}
    d["x"] *= 2
    d["x"][1] = d["y"][2]
    d["z"] = d["x"][::-1]
    d["z"] -= 1
    return d


class Holder:
    shared: Any

    def __init__(self, *arrays: Any):
        self.x, self.y = arrays


def in_attributes(p):
    h = Holder(*p)
    h.x += h.y
    h.x[:2] -= 1
    h.y = h.x
    h.y[-1] = 7
    return h


def in_an_object_of_the_callers(h):
    h.x += h.y
    h.z = h.x[1:]
    h.z[0] = 9
    h.y = h.z
    return h.x.sum()


TABLE = np.zeros(5)


def in_a_global(p):
    TABLE[1:] += p[0][1:]
    return TABLE.copy(), p[0] + TABLE


def in_a_closure(p):
    total = p[0]

    def add(n: float) -> Any:
        nonlocal total
        total += n
        total = total[1:]
        return total

    add(1)
    add(2)
    return total, p


def in_a_default(p, kept=[np.zeros(5)]):  # noqa: B006, B008
    kept[0] += p[0]
    kept.append(p[0])
    kept[-1][0] = 8
    del kept[1:]
    return kept[0].copy()


def in_nested_containers(p):
    q = [p, (p[0], [p[1]])]
    q[1][1][0][:] = q[0][0]
    p.append(q[1][0][2:])
    p[2] *= 2
    return q


@rows_of(in_a_list, in_a_dict, in_attributes, in_a_global, in_a_closure, in_a_default, in_nested_containers)
def test_arrays_in_containers(function: Callable[..., Any]) -> None:
    def run(as_compiled: bool) -> list[Outcome]:
        TABLE[:] = 0
        for held in function.__defaults__ or ():
            held[0][:] = 0
        called = dg.compile(function, backend="reference") if as_compiled else function
        return [observe(called, (list(lying()),), {}, "") for lying in (apart, apart, one, views, apart, backwards)]

    compare_runs(run(False), run(True))


def test_an_object_s_arrays() -> None:
    compiled = dg.compile(in_an_object_of_the_callers, backend="reference")
    made = (apart, apart, one, views, apart, backwards)
    compare_runs(*([observe(f, (Holder(*m()),), {}, "") for m in made] for f in (in_an_object_of_the_callers, compiled)))


def compare_runs(expected: list[Outcome], got: list[Outcome]) -> None:
    for number, (e, g) in enumerate(zip(expected, got), 1):
        assert_same(e, g, f"call {number}")
        held = [list(arrays_in((o.arguments, o.result))) for o in (e, g)]
        assert memory(held[1]) == memory(held[0]), f"call {number}: memory"


# -- breaks, effects, errors -----------------------------------------------------------------------------------------------------


def prints_in_between(a, b):
    a += 1
    print(a)
    a[0] = b[1]
    print(a.sum(), b[0])
    b[:] = a
    return a, b


def appends_in_between(a, b):
    log = []
    a += 1
    log.append(a.sum())
    log.append(a)
    a[0] = 5
    log.append(a[1:])
    log.append(a.copy())
    print(len(log))
    a[1] = 6
    return log


def breaks_in_a_loop(a, b):
    for k in range(3):
        a[k] = b[k] * 2
        if a.sum() > 3:
            a[k + 1 :] -= 1
        else:
            a *= 2
        print(k, a[k])
    return a


def breaks_in_a_callee(a, b):
    def callee(x):
        x[1:] += 1
        print(x[1])
        x[0] = -1
        return x[::-1]

    r = callee(a)
    r += callee(b)
    return r, a


def writes_in_a_generator(a, b):
    def gen(x):
        for k in range(3):
            x[k] += 1
            yield x[k:]
            x[k] *= 2

    out = []
    for part in gen(a):
        part -= b[0]
        out.append(part.sum())
    return out, a


def leaves_a_generator(a, b):
    def gen(x):
        try:
            x += 1
            yield x
            x += 1
            yield x
        finally:
            x[0] = 100

    g = gen(a)
    first = next(g)
    g.close()
    return first, a


def raises_after_writes(a, b):
    a += 1
    b[0] = a[1]
    if a.shape[0] == 5:
        raise ValueError("no")
    a += 1


def catches(a, b):
    try:
        a += 1
        a[7] = 3
        a += 1
    except IndexError as error:
        b[0] = 4
        print(error)
    finally:
        b[1] = a[0]
    return a.sum()


def catches_a_bad_shape(a, b):
    try:
        a[1:] = b
    except ValueError as error:
        a[0] = 9
        return str(error)


def bad_shape(a, b):
    a[0] = 3
    a[1:] = b
    a[0] = 4


def bad_shape_in_place(a, b):
    a[0] = 3
    a[1:] += b


def bad_out(a, b):
    b += 1
    np.add(a, b, out=b[1:])


def bad_sum_out(a, b):
    b += 1
    np.sum(a, axis=0, out=b)


def bad_mask(a, b):
    b += 1
    a[b[1:] > 2] = 1


def many_for_a_mask(a, b):
    a[b > 11] = [1, 2, 3]
    return a


def wrong_number_for_a_mask(a, b):
    b += 1
    a[b > 2] = np.arange(77.0)


def bad_index(a, b):
    a[0] = 1
    a[1, 1] = 2


def sequence_for_an_element(a, b):
    a[0] = 3
    a[1] = [1, 2]


def one_element_for_an_element(a, b):
    a[0] = b[:1]


def text_for_an_element(a, b):
    a[0] = 3
    a[1] = "x"


def number_as_text(a, b):
    a[1] = "2.5"
    return a


def none_for_an_element(a, b):
    a[1] = None
    return a


def warns_and_writes(a, b):
    a[1:] = np.sqrt(b[:-1])
    a /= b.sum()
    return a


def unwritable_view(a, b):
    b[0] = 7
    np.broadcast_to(a, (2, 5))[0] = 1


def unwritable_same_shape(a, b):
    b[0] = 7
    v = np.broadcast_to(a, (5,))
    v += 1


def unwritable_view_gets_what_it_shows(a, b):
    b[0] = 7
    v = np.broadcast_to(a, (2, 5))
    v[0] = a


def unwritable_flag(a, b):
    b[0] = 7
    a.flags.writeable = False
    b[1] = 8
    a[0] = 1


def diagonal_written(a, b):
    m = a[:4].reshape(2, 2)
    b[0] = 3
    np.diagonal(m)[0] = 1


def raises_in_a_callee(a, b):
    def callee(x):
        x += 1
        raise KeyError("k")

    try:
        callee(a)
    except KeyError:
        callee(b)


def context_manager(a, b):
    with np.errstate(divide="ignore"):
        a /= 0.5
        b[:] = a
    return b


def del_and_rebind(a, b):
    c = a
    del a
    c[0] = 1
    a = c
    a += 1
    c = c + 1
    c += 1
    return a, c


def star_unpacking(a, b):
    first, *rest = [a[k:] for k in range(3)]
    for r in rest:
        r += 1
    first *= 2
    x, y, *_ = a
    a[0], a[1] = y, x
    return rest


def comparisons_after(a, b):
    if a is not b:
        a[:] = b
    return bool((a == b).all()), a.tobytes() == b.tobytes()


def recursion(a, b):
    def go(x, n):
        if n:
            x[n:] += n
            go(x[1:], n - 1)
            x[0] -= 1

    go(a, 2)
    return a


def aliases_after_break(a, b):
    v = a[1:]
    w = v[::-1]
    print("x")
    v += 1
    w[0] = 50
    a[2] = 60
    return v, w


def fresh_and_broken(a, b):
    z = np.zeros(5)
    v = z[1:]
    v += a[1:]
    print("x")
    z[0] = 4
    v[0] = 3
    return z, v


def stored_then_changed(a, b):
    kept = {"now": a, "then": a.copy(), "sum": a.sum()}
    a[:] = 0
    kept["later"] = a[0]
    return kept


def lambda_over(a, b):
    f = lambda: a.sum()  # noqa: E731
    before = f()
    a[:] = 1
    return before, f()


def sorts(a, b):
    a[:] = a[::-1]
    a.sort()
    a += 1
    return a


EVERY = [
    prints_in_between, appends_in_between, breaks_in_a_loop, breaks_in_a_callee, writes_in_a_generator, leaves_a_generator,
    raises_after_writes, catches, catches_a_bad_shape, bad_shape, bad_shape_in_place, bad_out, bad_sum_out, bad_mask,
    many_for_a_mask, wrong_number_for_a_mask, bad_index, sequence_for_an_element, one_element_for_an_element,
    text_for_an_element, number_as_text, none_for_an_element, warns_and_writes, unwritable_view, unwritable_same_shape,
    unwritable_view_gets_what_it_shows, unwritable_flag, diagonal_written, raises_in_a_callee, context_manager, del_and_rebind,
    star_unpacking, comparisons_after, recursion, aliases_after_break, fresh_and_broken, stored_then_changed, lambda_over, sorts,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@rows_of(*EVERY)
def test_writes_among_other_things(function: Callable[..., Any]) -> None:
    same_calls(function, [apart, apart, one, views, backwards, fixed_first, fixed_second])


def fixed_first() -> tuple[Any, ...]:
    a, b = apart()
    a.flags.writeable = False
    return a, b


def fixed_second() -> tuple[Any, ...]:
    a, b = apart()
    b.flags.writeable = False
    return a[:], b[:]


STATEMENTS = (
    "a /= 2", "a += 1.5", "a *= b", "a -= 1", "a += True", "a[0] = 1.7", "a[1:] = b[1:]", "a[:] = -1", "a[:] = 300",
    "np.add(a, b, out=a)", "a[a > 1] += 1", "a //= 2", "a **= 2", "np.copyto(a, b)", "np.copyto(a, b, casting='unsafe')",
    "a.fill(2.9)", "a |= 1", "a &= a > 2", "a[0] = np.float64(2.5)", "a[0] = np.nan", "a[0] = 2**40", "a[0] = -1",
    "a += np.int64(3)", "a += np.uint8(200)", "a <<= 1", "a %= 3", "np.sqrt(a, out=a)", "np.sum(b, out=a[:1].reshape(()))",
    "np.multiply(a, 2.0, out=a, casting='unsafe')", "np.add(a, 1, out=b)", "a @= a", "np.add(a, 1, out=a, dtype=float)",
    "a[2] = b.max()", "a[2] += b.max()", "a[:] = [1, 2.5, 3, 4, 5]", "a[:] = [True] * 5", "a ^= True",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float32", "int32"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_casts(statement: str, dtype: str) -> None:
    function = compiled_source(f"def f(a, b):\n    b[0] = 3\n    {statement}\n    b[1] = 4\n    return a, a.sum()\n")
    same_calls(function, [lambda: (five().astype(dtype), five())] * 2)
