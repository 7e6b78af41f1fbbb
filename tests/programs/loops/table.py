"""The table of loop programs: `@loop(maker, sizes, large)` puts a function there, unmodified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import numpy as np

Maker = Callable[[np.random.Generator, int], tuple]


@dataclass(frozen=True)
class LoopProgram:
    function: Callable
    maker: Maker
    sizes: tuple[int, ...]
    large: int
    rtol: float

    @property
    def name(self) -> str:
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"

    def decorated(self, decorator: Callable[[Callable], Callable]) -> Callable:
        """The function as `@decorator` leaves it: where it calls itself, it calls what the decorator gives."""
        function = self.function
        if function.__name__ not in function.__code__.co_names:
            return decorator(function)
        scope = dict(function.__globals__)
        scope[function.__name__] = made = decorator(FunctionType(function.__code__, scope))
        return made

    def arguments(self, size: int, seed: int = 1) -> tuple:
        return self.maker(np.random.default_rng((seed, size)), size)


LOOPS: dict[str, LoopProgram] = {}


def loop(maker: Maker, sizes: tuple[int, ...], large: int, rtol: float = 0.0) -> Callable[[Callable], Callable]:
    """`maker` makes arguments of a size; `sizes` are those of tests, `large` that of the benchmark.

    Results are compared bit for bit, except where docs/numerics.md says that bits differ: `rtol` is then how near they must be.
    """

    def register(function: Callable) -> Callable:
        row = LoopProgram(function, maker, sizes, large, rtol)
        assert row.name not in LOOPS, f"{row.name} is there twice"
        LOOPS[row.name] = row
        return function

    return register
