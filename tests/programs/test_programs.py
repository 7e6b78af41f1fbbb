"""NumPy programs as people write them: compiled, each gives what it gives plainly, writes what it writes, and reaches its class.

After a gain: ``python -m tests.programs.test_programs`` prints the table for classes.py.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from . import chance, images, learning, linear, physics, puzzles, signals, whole  # noqa: F401
from .classes import CLASSES
from .table import PROGRAMS, Program

pytestmark = pytest.mark.sampled(4)

SEEDS = (1, 2, 1)
SLOW = 0.5  # seconds: what takes longer to compile with symbolic sizes is tested with static ones only


def same(got: Any, want: Any, rtol: float) -> None:
    """Equal types, dtypes, shapes and values; floats within `rtol`."""
    assert type(got) is type(want)
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b, rtol)
    elif isinstance(want, dict):
        same(list(got.items()), list(want.items()), rtol)
    elif isinstance(want, np.random.Generator):
        assert got.bit_generator.state == want.bit_generator.state
    elif isinstance(want, (np.ndarray, np.generic)):
        assert got.dtype == want.dtype and got.shape == want.shape
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-11)
        else:
            np.testing.assert_array_equal(got, want)
    elif isinstance(want, float):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-11)
    else:
        assert got == want


def reached(compiled: Any) -> str:
    """"1" one graph or native loop, "B" breaks with such around them, "E" neither."""
    made = compiled.programs
    if not any(p.captured.loop or any(node.kind == "call_function" for node in p.graph.nodes) for p in made):
        return "E"
    return "B" if sum(compiled.stats.breaks.values()) else "1"


def compare(program: Program, dynamic: bool | None) -> Any:
    """Results, and arguments afterwards, of calls with changed arguments; gives the compiled function."""
    compiled = dg.compile(program.function, backend="c", dynamic=dynamic)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for seed in SEEDS:
            plainly, given = (program.maker(np.random.default_rng(seed)) for _ in range(2))
            want, got = program.function(*plainly), compiled(*given)
            same(got, want, program.rtol)
            same(given, plainly, program.rtol)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    return compiled


# "-": takes long to compile
CASES = [(name, dynamic) for name in PROGRAMS for dynamic in (None, True) if CLASSES[name][dynamic is True] != "-"]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name, dynamic", CASES, ids=[f"{name}-{'symbolic' if dynamic else 'static'}" for name, dynamic in CASES])
def test_program(name: str, dynamic: bool | None) -> None:
    asked = CLASSES[name][dynamic is True]
    compiled = compare(PROGRAMS[name], dynamic)
    found = reached(compiled)
    reasons = "\n".join(compiled.stats.breaks)
    assert "1BE".index(found) <= "1BE".index(asked), f"{name}: class {found}, classes.py says {asked}\n{reasons}"


def measured(program: Program, dynamic: bool | None) -> str:
    start = time.perf_counter()
    found = reached(compare(program, dynamic))
    return "-" if dynamic and time.perf_counter() - start > SLOW else found


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        print(f'    "{name}": "{measured(program, None)}{measured(program, True)}",', flush=True)
