"""Random programs of loops: their gradients as machine code against those on the tape.

``python -m tests.gradients.test_random_loops FIRST END`` runs as many as you like.
"""

from __future__ import annotations

import random
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.errors import GradientError
from dynagraph.frontend.loops import nodes
from tests.gradients.test_loops import loops_called
from tests.sampling import examples

N = 9
FUNCTIONS = ("np.sin", "np.tanh", "np.cos", "np.exp", "np.sqrt", "abs")
SLICES = ("1:-1", ":-2", "2:", "::2")


class Program:
    """A function ``f(x, p)`` of a vector and a float."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.depth = 0
        body = "\n".join(self.block(2, self.r.randint(2, 4), 1))
        before = "    w = np.zeros_like(x)\n    y = x.copy()\n    a, b = 0.5, p"
        self.source = f"def f(x, p):\n{before}\n    for i in range({N}):\n{body}\n    return {self.result()}\n"

    def result(self) -> str:
        ends = ("a + b", "np.sum(y * y) + a", "np.sum(w * y) + b", "a * b + w[2] + y.mean()", "y.max() + w.sum() + a")
        return self.r.choice(ends)

    def index(self) -> str:
        return self.r.choice(("i", "i - 1", f"{N} - 1 - i", "(3 * i + 1) % 9", "0", "-1"))

    def value(self, depth: int = 0) -> str:
        r = self.r
        kind = r.randrange(9 if depth < 3 else 4)
        if kind < 2:
            return r.choice(("a", "b", "p"))
        if kind == 2:
            return f"{r.choice('xwy')}[{self.index()}]"
        if kind == 3:
            return r.choice(("0.3", "1.5", "-0.7"))
        if kind == 4:
            function = r.choice(FUNCTIONS)
            argument = self.value(depth + 1)
            if function == "np.sqrt":
                argument = f"abs({argument}) + 0.2"
            return f"{function}({f'np.tanh({argument})' if function == 'np.exp' else argument})"
        if kind == 5:
            return f"({self.value(depth + 1)} / (2.0 + ({self.value(depth + 1)}) ** 2))"
        if kind == 6 and depth < 2:
            return f"({self.value(depth + 1)} if {self.test()} else {self.value(depth + 1)})"
        if kind == 7:
            return f"{r.choice(('max', 'min', 'np.maximum'))}({self.value(depth + 1)}, {self.value(depth + 1)})"
        return f"({self.value(depth + 1)} {r.choice('+-*')} {self.value(depth + 1)})"

    def test(self) -> str:
        return f"{self.value(3)} {self.r.choice(('<', '>'))} {self.value(3)}"

    def array(self) -> str:
        r = self.r
        first = f"{r.choice('xwy')}"
        return r.choice(
            (f"np.tanh({first} * {self.value(3)})", f"0.5 * {first} + 0.1 * x", f"{first} - 0.2 * y * w", f"np.sin({first}) + p")
        )

    def block(self, indent: int, n: int, loops: int) -> list[str]:
        pad = "    " * indent
        lines: list[str] = []
        for _ in range(n):
            kind = self.r.randrange(9)
            if kind < 3:
                lines.append(f"{pad}{self.r.choice('ab')} = np.tanh({self.value()})")
            elif kind == 3:
                sign = self.r.choice(("=", "=", "+="))
                lines.append(f"{pad}{self.r.choice('wy')}[{self.index()}] {sign} np.tanh({self.value()})")
            elif kind == 4:
                lines += [f"{pad}if {self.test()}:", *self.block(indent + 1, self.r.randint(1, 2), 0)]
                if self.r.random() < 0.5:
                    lines += [f"{pad}else:", *self.block(indent + 1, 1, 0)]
            elif kind == 5 and loops:
                lines += [f"{pad}for j in range(1, {self.r.randint(2, 5)}):", *self.block(indent + 1, 2, 0)]
                lines.append(f"{pad}    y[j] = 0.5 * (y[j - 1] + {self.r.choice('ab')})")
            elif kind == 6:
                lines.append(f"{pad}{self.r.choice('wy')} = {self.array()}")
            elif kind == 7:
                at = self.r.choice(SLICES)
                lines.append(f"{pad}y[{at}] = 0.5 * y[{at}] + np.sin(w[{at}]) * {self.r.choice(('a', 'p', '0.2'))}")
            elif kind == 8:
                whole = self.r.choice(("y.sum()", "w @ y", "x @ w", "w.max()", "y.mean()"))
                lines.append(f"{pad}{self.r.choice('ab')} = np.tanh({whole})")
        return lines or [f"{pad}a = np.tanh({self.value()})"]

    def function(self) -> Any:
        namespace: dict[str, Any] = {"np": np}
        exec(self.source, namespace)
        return namespace["f"]


def compare(seed: int) -> str:
    """What became of a program: "native", or why there is nothing to compare."""
    program = Program(seed)
    r = np.random.default_rng(seed)
    x, p = r.normal(size=N), float(r.normal())
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with dg.disable():
                value, wanted = dg.value_and_grad(program.function(), (0, 1))(x, p)
        except GradientError as error:
            return str(error)
        transform = dg.value_and_grad(program.function(), (0, 1))
        got, gradients = transform(x, p)
    assert not transform.program.stats.fallbacks, (program.source, transform.program.stats.last_error)
    assert got == value or abs(got - value) <= 1e-13 * max(1.0, abs(value)), program.source
    if not all(np.all(np.isfinite(w)) for w in wanted):  # see "What gets no gradient" in docs/gradients.md
        return "infinite slopes"
    for mine, its in zip(gradients, wanted):
        scale = max(1.0, float(np.max(np.abs(its))))
        np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-10 * scale, err_msg=program.source)
    return "native" if "LoopGradient" in loops_called(transform.program) else "not native"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", range(0, 24, 4))
def test_equal_to_the_tape(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_OF_SMALL", 1)
    outcomes = [compare(seed) for seed in range(first, first + 4)]
    assert outcomes.count("native") >= 2, outcomes


def compare_tangents(seed: int, transform: Any) -> str:
    """As `compare`, of `dg.jvp` or `dg.hvp`."""
    program = Program(seed)
    r = np.random.default_rng(seed)
    given, ways = (r.normal(size=N), float(r.normal())), (r.normal(size=N), float(r.normal()))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = program.function()
        try:
            with dg.disable():
                wanted = transform(f, given, ways)
        except GradientError as error:
            return str(error)
        compiled = dg.compile(lambda x, v: transform(f, x, v))
        got = compiled(given, ways)
    assert not compiled.stats.fallbacks, (program.source, compiled.stats.last_error)
    if not all(np.all(np.isfinite(w)) for w in wanted):
        return "infinite slopes"
    for mine, its in zip(got, wanted):
        scale = max(1.0, float(np.max(np.abs(its))))
        np.testing.assert_allclose(mine, its, rtol=1e-8, atol=1e-9 * scale, err_msg=program.source)
    return "native" if loops_called(compiled) and not compiled.stats.breaks else "not native"


@pytest.mark.parametrize("transform", [dg.jvp, dg.hvp])
def test_tangents_equal_to_the_tape(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_OF_SMALL", 1)
    outcomes = [compare_tangents(seed, transform) for seed in range(100, 100 + examples(4, 2))]
    assert outcomes.count("native") >= len(outcomes) // 2, outcomes


@pytest.mark.fuzz
@pytest.mark.parametrize("transform", [dg.jvp, dg.hvp])
def test_many_tangents(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_OF_SMALL", 1)
    for seed in range(2000, 2100):
        compare_tangents(seed, transform)


@pytest.mark.fuzz
def test_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_OF_SMALL", 1)
    for seed in range(1000, 1300):
        compare(seed)


if __name__ == "__main__":
    nodes.MOST_OF_SMALL = 1
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        print(number, compare(number)[:150], *(compare_tangents(number, t)[:150] for t in (dg.jvp, dg.hvp)), flush=True)
