"""The table of programs: `@program(maker)` puts a function there, unmodified; `maker` makes arguments from a seeded Generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass
class Program:
    function: Callable
    maker: Callable[[np.random.Generator], tuple]
    rtol: float

    @property
    def name(self) -> str:
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"


PROGRAMS: dict[str, Program] = {}


def program(maker: Callable[[np.random.Generator], tuple], rtol: float = 1e-9) -> Callable[[Callable], Callable]:
    """`rtol`: how near floating-point results must be."""

    def register(function: Callable) -> Callable:
        row = Program(function, maker, rtol)
        assert row.name not in PROGRAMS, f"{row.name} is there twice"
        PROGRAMS[row.name] = row
        return function

    return register
