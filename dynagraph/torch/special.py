"""``torch.special``: error, gamma, zeta and Bessel functions, orthogonal polynomials."""

from __future__ import annotations

from dynagraph.torch.functions import special as _functions
from dynagraph.torch.functions.common import publish
from dynagraph.torch.missing import getattr_of

del _functions  # its import has filled the namespace
publish(globals(), "special")
__getattr__ = getattr_of(__name__)
