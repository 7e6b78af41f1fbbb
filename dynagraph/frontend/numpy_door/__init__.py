"""What NumPy callables mean as graph nodes: signatures, promotion (NEP 50) and rules are NumPy's.

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

from dynagraph.frontend.numpy_door import (  # noqa: F401  (importing the families fills the table)
    attributes,
    callouts,
    creation,
    elementwise,
    indexing,
    internals,
    linalg,
    operators,
    places,
    products,
    reductions,
    shapes,
    windows,
)
from dynagraph.frontend.numpy_door.builder import Builder, Chosen, Unsupported, WeakFloat
from dynagraph.frontend.numpy_door.python_values import of_python_values
from dynagraph.frontend.numpy_door.table import ATTRIBUTES, Door, lookup, method, operator_door

__all__ = [
    "ATTRIBUTES", "Builder", "Chosen", "Door", "Unsupported", "WeakFloat", "lookup", "method", "of_python_values", "operator_door",
]  # fmt: skip
