"""The rows of the op table.  Importing this package fills `dynagraph.ir.ops.OPS`."""

from dynagraph.ir.optable import blocked, creation, elementwise, indexing, linalg, movement, reductions

__all__ = ["blocked", "creation", "elementwise", "indexing", "linalg", "movement", "reductions"]
