"""``torch.linalg``: factors, systems of equations, inverses, norms, eigenvalues of matrices in the last two dimensions."""

from __future__ import annotations

from dynagraph.torch.functions import contractions, decompositions, ldl, lowrank, matrix_functions, norms, solvers
from dynagraph.torch.functions.common import publish
from dynagraph.torch.missing import getattr_of

del contractions, decompositions, ldl, lowrank, matrix_functions, norms, solvers  # their import has filled the namespace
publish(globals(), "linalg")
__getattr__ = getattr_of(__name__)
