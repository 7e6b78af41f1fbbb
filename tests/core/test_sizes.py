"""Sizes that 64 bits or the memory do not hold: the plain function runs, and raises NumPy's own error."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph._core._dispatch import Entry, GuardError, NativePlan, PythonPlan

F8 = np.dtype("f8")
FAR = 2**62 - 1  # no guard lets larger numbers in


def entry(recipe: Any, *limits: Any, relation: Any = None, n: int = 2) -> Entry:
    """Of a plan that computes nothing, with `n` numbers for symbols."""
    guards = tuple(("int", k, k) for k in range(n)) + ((("relation", *relation),) if relation else ())
    return Entry(guards, n, NativePlan(0, None, 0, (), 0, recipe, False, n, 0, None, (), limits))


S0, S1 = ("s", 0), ("s", 1)
PROGRAMS = [
    (S0, S1, "+"), (S0, S1, "-"), (S0, S1, "*"), (S0, S1, "//"), (S0, S1, "%"), (S0, S1, "min"), (S0, S1, "max"),
    (S0, S0, "*", S1, "*"), (S0, S0, "*", S1, "//"), (0, S0, "-", S1, "//"), (0, S0, "-", S1, "%"), (S0, 3, S1, "-", "//"),
    (S0, 3, S1, "-", "%"), (S0, 2**62, "+", S1, "+"), (-(2**63), S0, "+", S1, "-"), (S0, -(2**63), "*"), (S0, -1, "//"),
    (2**63 - 1, S0, "+", S1, "-"), (S0, S1, "-", S0, "*", S0, "*"),
]  # fmt: skip


def exactly(program: tuple, values: tuple[int, int]) -> int | None:
    """What Python makes of a size program; None: something in it does not fit into 64 bits."""
    stack: list[int] = []
    for item in program:
        if isinstance(item, str):
            b, a = stack.pop(), stack.pop()
            operators: dict[str, Any] = {
                "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b if b else 0,
                "%": lambda: a % b if b else 0, "min": lambda: min(a, b), "max": lambda: max(a, b),
            }  # fmt: skip
            item = operators[item]()
            if not -(2**63) <= item < 2**63:
                return None
        stack.append(values[item[1]] if isinstance(item, tuple) else item)
    return stack[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_size_programs_are_exact_or_refused(program: tuple) -> None:
    sizes = entry(("size", program))
    limited = entry(("const", "runs"), program)
    for a in (2, 3, 7, 2**20, 2**21, 2**31, 2**32 + 1, 2**40, FAR):
        for b in (2, 3, 5, 2**21, 2**31 - 1, 2**33, FAR):
            expected = exactly(program, (a, b))
            refused = "refused" if expected is None else expected
            assert sizes.run_or((a, b), "refused") == refused
            assert limited.run_or((a, b), "refused") == ("refused" if expected is None else "runs")


def test_relations_beyond_64_bits_do_not_hold() -> None:
    for holds in (True, False):
        found = entry(("const", 0), relation=("<", (S0, S1, "*"), 100, holds))
        assert found.check((2**32, 2**32)) == 2 and (found.check((2, 3)) is None) == holds


def test_outputs_and_views_that_bytes_cannot_count() -> None:
    plan = PythonPlan(lambda x: (x,), 1, ("view", ("out", 0), F8, ((S0, S0, "*"),), (1,), 0, False), 1)
    guards = (("array", 0, 0, F8, 1, (4,), None, None), ("int", 1, 0))
    made = Entry(guards, 2, plan)
    assert made.run((np.zeros(4), 2)).shape == (4,)
    for n in (2**31, 2**40):
        assert made.run_or((np.zeros(4), n), None) is None
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        NativePlan(8, None, 0, ((F8, (2**61, 4), False),), 0, ("out", 0), False, 0)
    with pytest.raises(ValueError, match="negative size"):
        NativePlan(8, None, 0, ((F8, (-1,), False),), 0, ("out", 0), False, 0)


def same_error(compiled: Any, *args: Any) -> BaseException:
    """The plain function's error, which the compiled one raises too."""
    errors = []
    for function in (compiled.__wrapped__, compiled):
        with pytest.raises((MemoryError, ValueError, OverflowError)) as caught:
            function(*args)
        errors.append(caught.value)
    assert type(errors[0]) is type(errors[1]) and str(errors[0]) == str(errors[1])
    return errors[0]


def test_a_product_of_sizes_beyond_64_bits() -> None:
    @dg.compile
    def f(x: np.ndarray) -> Any:
        return (x[:, None, None] * x[None, :, None] * x[None, None, :]).sum()

    for n in (4, 5, 6):
        f(np.ones(n))
    assert f.stats.hits == 1
    assert "Unable to allocate 32.0 TiB for an array with shape (2097152, 2097152, 1)" in str(same_error(f, np.ones(2**21)))
    assert f.stats.refusals == 1 and f(np.ones(7)) == 343


def test_arrays_that_are_too_big() -> None:
    @dg.compile(dynamic=True)
    def tile(x: np.ndarray, n: int) -> np.ndarray:
        return np.tile(x, n)

    for n in (3, 4, 5):
        np.testing.assert_array_equal(tile(np.arange(2.0), n), np.tile(np.arange(2.0), n))
    assert "array is too big" in str(same_error(tile, np.arange(8.0), 2**61 + 1))
    for n in (2**40, 2**59, 2**61, 2**63, 2**64):
        same_error(tile, np.arange(8.0), n)
    assert tile.stats.fallbacks == 0


def test_constant_sizes_that_are_too_big() -> None:
    @dg.compile
    def f(x: np.ndarray) -> np.ndarray:
        return np.tile(x, 2**61 + 1) * 2

    same_error(f, np.arange(8.0))

    @dg.compile
    def g(x: np.ndarray) -> np.ndarray:
        return x[:, None] * np.ones(2**45) + 1

    same_error(g, np.arange(8.0))


OUT_OF_MEMORY = """
import resource
import numpy as np, dynagraph as dg

@dg.compile
def f(x):
    return x[:, None] * x[None, :] + 1

@dg.compile
def g(x):  # a workspace
    y = np.sort(x[:, None] * x[None, :], axis=0)
    return y[0] + 1

for function in (f, g):
    for n in (4, 5, 6):
        function(np.ones(n))
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
x = np.ones(40000)
for function in (f, g):
    for called in (function.__wrapped__, function):
        try:
            called(x)
        except MemoryError as error:
            print(error)
    print(function(np.ones(7)).sum(), function.stats.fallbacks)
"""


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer itself needs what the limit takes")
def test_memory_that_cannot_be_had() -> None:
    ran = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, timeout=120)
    lines = ran.stdout.splitlines()
    assert len(lines) == 6, ran.stderr
    assert lines[0] == lines[1] == "Unable to allocate 11.9 GiB for an array with shape (40000, 40000) and data type float64"
    assert lines[3] == lines[4] and "Unable to allocate" in lines[3]
    assert lines[2] == "98.0 0" and lines[5] == "14.0 0"


def test_what_a_direct_run_says() -> None:
    with pytest.raises(GuardError, match="bails out"):
        entry(("size", (S0, S1, "*"))).run((2**40, 2**40))
