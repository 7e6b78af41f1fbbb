"""Programs of loops as people write them, by theme."""

from __future__ import annotations

from . import chance, filters, integers, learning, linear, physics, searching, stencils, tables  # noqa: F401
from .table import LOOPS, LoopProgram

__all__ = ["LOOPS", "LoopProgram"]
