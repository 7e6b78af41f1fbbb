"""The rows of the op table.  Importing this package fills `dynagraph.ir.ops.OPS`."""

from dynagraph.ir.optable import blocked, callouts, creation, elementwise, indexing, linalg, movement, reductions

__all__ = ["blocked", "callouts", "creation", "elementwise", "indexing", "linalg", "movement", "reductions"]
