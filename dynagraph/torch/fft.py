"""``torch.fft``: discrete Fourier transforms."""

from __future__ import annotations

from dynagraph.torch.functions import fft as _functions
from dynagraph.torch.functions import spectra
from dynagraph.torch.functions.common import publish
from dynagraph.torch.missing import getattr_of

del _functions, spectra  # their import has filled the namespace
publish(globals(), "fft")
__getattr__ = getattr_of(__name__)
