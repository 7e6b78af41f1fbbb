"""Indexing expressions of all kinds: what they read, write and share is NumPy's, compiled and plain."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dynagraph as dg
from tests import sampling

from .test_writes import compiled_source, laid_out, leaves, memory

LAYOUTS = ("C", "C", "C", "F", "strided", "reversed")
INDEX_DTYPES = ("int64", "int64", "int32", "int8", "uint8", "uint64")


@dataclass
class Case:
    """Lines of a function of `x` and of the arrays that its indices take, and the arguments of each call."""

    lines: list[str]
    x: np.ndarray
    layout: str
    given: list[list[np.ndarray]]  # for each call

    @property
    def source(self) -> str:
        names = "".join(f", p{k}" for k in range(len(self.given[0])))
        body = "\n".join("    " + line for line in self.lines)
        return f"def f(x{names}):\n    r = []\n{body}\n    return r, x * 2\n"

    def arguments(self, call: int) -> list[np.ndarray]:
        return [laid_out(self.x.copy(), self.layout), *(p.copy() for p in self.given[call])]

    def __repr__(self) -> str:
        return f"{self.x.dtype}{self.x.shape} {self.layout}, {self.given}\n{self.source}"


class Drawn:
    """An index under way: entries as text, and the arrays that are given for it."""

    def __init__(self, draw: Callable[[Any], Any], given: list[list[np.ndarray]]):
        self.draw, self.given = draw, given

    def one_of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def index(self, shape: tuple[int, ...]) -> str:
        entries, axis = [], 0
        common = self.draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
        kinds = self.one_of(("slice", "integer"), ("places", "slice", "integer"), ("mask", "slice", "integer"), EVERY)
        while axis < len(shape) and self.draw(st.integers(0, 9)):
            kind = self.one_of(*kinds)
            n = self.draw(st.integers(1, len(shape) - axis)) if kind == "mask" else 1
            entries.append(getattr(self, kind)(shape[axis : axis + n], common))
            axis += n
        for extra in ("None", "...", "True", "False"):
            if self.draw(st.integers(0, 7 if extra == "..." else 14)) == 0:
                entries.insert(self.draw(st.integers(0, len(entries))), extra)
        return ", ".join(entries) + ("," if len(entries) == 1 and self.draw(st.booleans()) else "") or "..."

    def slice(self, dims: tuple[int, ...], common: tuple[int, ...]) -> str:
        s = self.draw(st.slices(dims[0]))
        return ":".join("" if v is None else str(v) for v in (s.start, s.stop, s.step))

    def integer(self, dims: tuple[int, ...], common: tuple[int, ...]) -> str:
        if dims[0] == 0:
            return ":"
        i = self.draw(st.integers(-dims[0], dims[0] - 1))
        return self.one_of(f"{i}", f"{i}", f"np.int64({i})", f"np.array({i})")

    def places(self, dims: tuple[int, ...], common: tuple[int, ...]) -> str:
        size, dtype = max(dims[0], 1), np.dtype(self.one_of(*INDEX_DTYPES))
        own = self.one_of(common, common, common[1:], (1,) * len(common))
        low = 0 if dtype.kind == "u" else -size
        beyond = self.draw(st.integers(0, 39)) == 0  # out of bounds now and then
        made = [
            self.draw(hnp.arrays(dtype, own, elements=st.integers(low, size if beyond else size - 1))) for _ in self.given
        ]
        if self.draw(st.booleans()):
            return self.name(made)
        text = f"np.array({made[0].tolist()!r}, {dtype.name!r})"
        if made[0].ndim and self.draw(st.booleans()):
            text = repr(made[0].tolist())
        return text

    def count(self, dims: tuple[int, ...], common: tuple[int, ...]) -> str:
        return f"range({min(dims[0], common[-1] if common else 1)})"

    def mask(self, dims: tuple[int, ...], common: tuple[int, ...]) -> str:
        made = [self.draw(hnp.arrays(bool, dims)) for _ in self.given]
        return self.one_of(self.name(made), self.name(made), f"np.array({made[0].tolist()!r}, bool).reshape({dims})")

    def name(self, made: list[np.ndarray]) -> str:
        for call, array in zip(self.given, made):
            call.append(array)
        return f"p{len(self.given[0]) - 1}"


EVERY = ("places", "slice", "integer", "mask", "count")
READS = ("r.append({x}[{i}])", "r.append({x}[{i}] * 1)", "r.append({x}[{i}].sum())", "r.append({x}[{i}] + {x}[{i}])",
         "r.append(({x}[{i}] > 1).any())", "t = {x}[{i}]; t = t + 1; r.append(t)", "r.append(np.max({x}[{i}], initial=0))",
         "r.append({x}[{i}].mean())", "r.append({x}[{i}].max())", "r.append(np.sqrt(np.abs({x}[{i}])).sum(axis=-1))",
         "r.append({x}[{i}].sum(axis=0))", "r.append({x}[{i}].shape)", "r.append({x}[{j}][{i}])")  # fmt: skip
WRITES = ("{x}[{i}] = {v}", "{x}[{i}] += {v}", "{x}[{i}] *= {x}[{i}]", "{x}[{i}] = {x}[{i}]", "{x}[{j}] = {x}[{i}]",
          "t = {x}[{i}]; t += 1; r.append(t)", "{x}[{i}] -= {x}[{j}]", "{x}[{i}], {x}[{j}] = {v}, 5",
          "t = {x}[{i}]; {x}[{j}] = 7; r.append(t)", "np.add.at({x}, np.s_[{i}], 1)", "{x}[{i}] = {x}[{i}] * 2 + {v}")  # fmt: skip


@st.composite
def cases(draw: Any) -> Case:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=draw(st.sampled_from((1, 1, 1, 0))), max_side=4))
    x = (np.arange(np.prod(shape)) % 7 - 2).reshape(shape).astype(draw(st.sampled_from(("float64", "float64", "int32", "float32"))))
    given: list[list[np.ndarray]] = [[], []]
    drawn = Drawn(draw, given)
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        i, j = drawn.index(shape), drawn.index(shape)
        selected, v = None, "2"
        try:
            selected = eval(f"x[{i}]", {"np": np, "x": x, **{f"p{k}": p for k, p in enumerate(given[0])}})
        except IndexError:
            pass
        if selected is not None and selected.size < 200:
            whole = (-1.0 - np.arange(selected.size)).reshape(selected.shape)
            row = f"np.full({selected.shape[-1:]}, 3)"
            v = draw(st.sampled_from(("2", "np.float32(0.5)", row, f"np.array({whole.tolist()!r})", "x.flat[0]", "x[:1].sum()")))
        lines.append(draw(st.sampled_from(READS + WRITES)).format(x="x", i=i, j=j, v=v))
    return Case(lines, x, draw(st.sampled_from(LAYOUTS)), given)


def outcome(function: Callable[..., Any], args: list[np.ndarray]) -> tuple[Any, str]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args), ""
        except (IndexError, ValueError, TypeError) as error:
            return None, f"{type(error).__name__}: {error}"


def check(case: Case, backend: str) -> None:
    plain = compiled_source(case.source)
    compiled = dg.compile(compiled_source(case.source), backend=backend)
    with dg.config.override(strict=True):
        for call in (0, 1, 0):
            theirs, ours = case.arguments(call), case.arguments(call)
            expected, error = outcome(plain, theirs)
            got, our_error = outcome(compiled, ours)
            assert our_error == error
            expected, got = [*theirs, *leaves(expected)], [*ours, *leaves(got)]
            assert len(got) == len(expected)
            for k, (e, g) in enumerate(zip(expected, got)):
                assert type(g) is type(e), f"value {k}"
                if isinstance(e, (np.ndarray, np.generic)):
                    assert (g.dtype, g.shape) == (e.dtype, e.shape), f"value {k}"
                    np.testing.assert_allclose(g, e, rtol=1e-6, err_msg=f"value {k}")
            assert memory(got) == memory(expected)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


FEW = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=sampling.programs, derandomize=False)


@settings(FEW, max_examples=sampling.examples(300))
@given(cases())
def test_indices_by_the_reference(case: Case) -> None:
    check(case, "reference")


@settings(FEW, max_examples=sampling.examples(30, 2))
@given(cases())
def test_indices_by_the_compiler(case: Case) -> None:
    check(case, "cpu")


@pytest.mark.fuzz
@MANY
@given(cases(), st.sampled_from(["reference"] * 9 + ["cpu"]))
def test_many_indices(case: Case, backend: str) -> None:
    check(case, backend)


def test_an_index_of_very_many_parts_is_numpys() -> None:
    compiled = dg.compile(lambda x: x[(True,) * 64])
    with pytest.raises(IndexError):
        compiled(np.ones(1))
