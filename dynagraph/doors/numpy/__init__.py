"""NumPy functions as graph nodes, with NumPy's signatures, promotion (NEP 50) and rules.

The executor asks `lookup`, `method`, `operator_door` or `ATTRIBUTES`, and calls what it gets with a `Builder` and the
user's arguments; `Unsupported` says that the frame must run eagerly.

>>> from dynagraph.ir import dtypes
>>> from dynagraph.ir.graph import Graph, Meta
>>> b = Builder(Graph())
>>> x = b.graph.placeholder("x", Meta(dtypes.int32, (3, 4)))
>>> lookup(np.mean)(b, x, axis=-1).meta.dtype
float64
"""

from __future__ import annotations

import numpy as np  # noqa: F401  (the example's)

from dynagraph.doors.numpy import (  # noqa: F401  (importing the families fills the table)
    attributes,
    convolutions,
    creation,
    elementwise,
    elementwise_functions,
    external_calls,
    external_linalg,
    indexing,
    internals,
    joining,
    linalg,
    movement,
    operators,
    places,
    pooling,
    products,
    recurrent,
    reductions,
    windows,
)
from dynagraph.doors.numpy.builder import Builder, Chosen, Unsupported, WeakFloat
from dynagraph.doors.numpy.python_values import of_python_values
from dynagraph.doors.numpy.table import ATTRIBUTES, Door, lookup, method, operator_door

__all__ = [
    "ATTRIBUTES", "Builder", "Chosen", "Door", "Unsupported", "WeakFloat", "lookup", "method", "of_python_values", "operator_door",
]  # fmt: skip
