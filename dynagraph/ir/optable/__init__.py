"""The rows of the op table.  Importing this package fills `OPS`: who asks for all rows imports it from here."""

from dynagraph.ir.ops import OPS
from dynagraph.ir.optable import (
    blocked,
    convolution,
    creation,
    elementwise,
    external_calls,
    indexing,
    joining,
    linalg,
    movement,
    pooling,
    reductions,
)

__all__ = [
    "OPS", "blocked", "convolution", "creation", "elementwise", "external_calls", "indexing", "joining", "linalg", "movement",
    "pooling", "reductions",
]  # fmt: skip
