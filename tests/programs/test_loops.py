"""Loop programs as people write them: compiled, each gives what it gives plainly, bit for bit, and writes what it writes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import dynagraph as dg

from .loops import LOOPS
from .loops.exact import check_same, places

# Loops are unrolled, and programs made for each index: few of both, as each takes time to compile.
FEW = {"unroll_limit": 2, "entry_limit": 2}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", LOOPS)
def test_loop_program(name: str) -> None:
    """One compiled function for all sizes, and again for the first."""
    program = LOOPS[name]
    compiled = program.decorated(lambda function: dg.compile(function, backend="c"))
    with dg.config.override(**FEW), warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.RecompileLimitWarning)
        for size in (*program.sizes, program.sizes[0]):
            plainly, given = program.arguments(size), program.arguments(size)
            want, got = program.function(*plainly), compiled(*given)
            check_same(got, want, program.rtol)
            check_same(given, plainly, program.rtol)
            assert places(got, given) == places(want, plainly)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


def test_makers_give_the_same_arguments_each_time() -> None:
    for program in LOOPS.values():
        for size in program.sizes:
            check_same(program.arguments(size), program.arguments(size))


UNEQUAL = [
    (0.0, -0.0), (1, True), (1.0, np.float64(1)), (np.int32(1), np.int64(1)), (np.nextafter(1.0, 2), np.float64(1)),
    ([1], (1,)), ([1], [1, 1]), ({1: 2, 3: 4}, {3: 4, 1: 2}), (complex(0, 0.0), complex(0, -0.0)),
    (np.zeros(2), np.zeros((2, 1))), (np.array([0.0, np.nan]), np.array([-0.0, np.nan])),
]  # fmt: skip


@pytest.mark.parametrize(("got", "want"), UNEQUAL)
def test_unequal_results_are_told_apart(got: object, want: object) -> None:
    with pytest.raises(AssertionError):
        check_same(got, want)
